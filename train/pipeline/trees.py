"""Which trees to draft: static ones for Medusa, sizes of dynamic ones for EAGLE, from what `simulate` recorded.

Static trees. The value of a node is how often the true text passes through it: the share of positions where head 0
ranks its token c1, head 1 ranks its token c2, and so on. Heads are not independent, so these joint frequencies are
counted and not multiplied from those of single heads. A child is never worth more than its parent, so taking the best
node again and again gives the best tree of every size, and the list in that order can be cut anywhere.

Dynamic trees. The best setting gives the most tokens for each second of a round:

    tau(M, levels, K, N) / (verify(M) + levels * draft(K, N))

with times from the files of trees.step_costs, each what `espalier bench --json --draft eagle3` printed with one
instruction set, or that cut down to `isa` and `figures`: `step` figures of the teacher, the
mean of all contexts, and `round_draft`, which trees.draft_levels passes of the head share. A pass of other sizes, or of
the other kind of EAGLE head, costs more or less in proportion to the weights it reads and to what the teacher takes for
as many rows. Without a round_draft of a head that is exported here a pass is taken to cost the share of the teacher's
weights that the head reads, without any times all steps of the teacher are taken to cost the same.

WORK/trees/ gets medusa-SIZE.json (lists of paths, best node first) and eagle3-ISA.json, eagle3.json where no instruction
set is told, and the same of eagle2. Beside the exported heads go choices-SIZE.json and choices.json, the one of 16
nodes or the first size that was asked for, and into their config.json what the engine should do with them
(espalier.suggested, docs/drafters.md), for each instruction set of the step costs.
"""

import heapq
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .config import Config, InputError, TreesConfig
from .files import read_arrays, read_json, write_json
from .head_files import exported_kinds, out_folder, simulation_file, simulation_of
from .teacher import source_bytes

EAGLE = {"eagle3": "EAGLE-3", "eagle2": "EAGLE-2"}  # kinds with dynamic trees
DEFAULT_SIZE = 16
SUGGESTIONS = 5
CHEAPEST_DRAFT = 0.02  # of a step of one row: a head pass never costs less than its launches


def main(config: Config) -> None:
    kinds = exported_kinds(config)
    if not kinds:
        raise InputError(f"{out_folder(config, 'eagle3')}: expected an exported head, got none; run the step export")
    found = {kind: simulation_of(config, kind) for kind in kinds}
    for kind in kinds:
        path = simulation_file(config, kind)
        if found[kind] is None:
            got = "those of other weights" if path.exists() else "nothing"
            raise InputError(f"{path}: expected figures of the exported head, got {got}; run the step simulate")
        if kind in EAGLE and "grid" not in found[kind]:
            raise InputError(f"{path}: expected a grid, got none; run the step simulate with simulate.grid = true")
    if "medusa" in kinds:
        ranks = simulation_file(config, "medusa").with_name("medusa_ranks.npz")
        write_static_trees(config, read_arrays(ranks, "ranks")[0])
    heads = {kind: head_weights(config, kind) for kind in kinds if kind in EAGLE}
    for kind in heads:
        suggest(config, kind, heads, found[kind]["grid"])


# Static trees


def write_static_trees(config: Config, ranks: np.ndarray) -> None:
    out = out_folder(config, "medusa")
    for size in config.trees.sizes:
        choices = best_tree(ranks, size)
        gain = expected_gain(ranks, choices)
        write_json(config.heads_folder / "trees" / f"medusa-{size}.json", choices)
        write_json(out / f"choices-{size}.json", choices)
        if size == (DEFAULT_SIZE if DEFAULT_SIZE in config.trees.sizes else config.trees.sizes[0]):
            write_json(out / "choices.json", choices)
        print(
            f"trees: Medusa, {size} nodes, {max(map(len, choices))} levels: {1 + gain:.3f} tokens expected", flush=True
        )
    write_suggestion(config, "medusa", {"nodes": "auto", "depth": ranks.shape[1]}, "")


def best_tree(ranks: np.ndarray, nodes: int) -> list[list[int]]:
    """The paths of the nodes - 1 most visited nodes, best first. ranks int [positions, heads]: the rank of the true
    token by each head; negative or too large: not drafted."""
    visits = path_counts(ranks)
    heap = [(-visits[path], path) for path in visits if len(path) == 1]
    heapq.heapify(heap)
    children = {}
    for path in visits:
        children.setdefault(path[:-1], []).append(path)
    chosen = []
    while heap and len(chosen) < nodes - 1:
        _, path = heapq.heappop(heap)
        chosen.append(list(path))
        for child in children.get(path, ()):
            heapq.heappush(heap, (-visits[child], child))
    return chosen or [[0]]


def path_counts(ranks: np.ndarray, ranks_told_apart: int = 10) -> Counter:
    counts = Counter()
    for row, times in Counter(map(tuple, ranks.tolist())).items():
        for depth in range(1, len(row) + 1):
            if not 0 <= row[depth - 1] < ranks_told_apart:
                break
            counts[row[:depth]] += times
    return counts


def expected_gain(ranks: np.ndarray, choices: list[list[int]]) -> float:
    """Accepted drafts a round, over all positions."""
    visits = path_counts(ranks)
    return sum(visits[tuple(path)] for path in choices) / max(len(ranks), 1)


# Dynamic trees


@dataclass
class HeadWeights:
    """What a pass of an EAGLE head reads, for machines whose time goes into reading weights."""

    layer: int  # weights besides the output matrix
    hidden: int
    vocabulary: int
    teacher_bytes: int

    def read(self, vocabulary: int) -> int:
        return self.layer + vocabulary * self.hidden

    @property
    def share_of_teacher(self) -> float:
        return 2.0 * self.read(self.vocabulary) / max(self.teacher_bytes, 1)


class StepCosts:
    """Seconds of passes by rows: linear between measured numbers of rows, in proportion beyond them."""

    def __init__(self, figures: list[dict], trees: TreesConfig, head: HeadWeights, measured: HeadWeights | None):
        """measured: the head of the round_draft figures; None where it is not known, and they say nothing."""
        self.steps = mean_by_rows(figures, "step") or {1: 1.0}
        self.measured_rows = trees.draft_expand
        rounds = mean_by_rows(figures, "round_draft") if measured else {}
        self.pass_seconds = (
            sum(rounds.values()) / len(rounds) / trees.draft_levels
            if rounds
            else max(head.share_of_teacher, CHEAPEST_DRAFT) * self.verify(self.measured_rows)
        )
        self.head = head
        self.measured = (measured or head).read((measured or head).vocabulary)

    def verify(self, rows: int) -> float:
        return interpolated(self.steps, rows)

    def draft(self, rows: int, vocabulary: int) -> float:
        """A pass of the head over `rows` nodes."""
        of_rows = self.verify(rows) / self.verify(self.measured_rows)
        return self.pass_seconds * of_rows * self.head.read(vocabulary) / self.measured


def mean_by_rows(figures: list[dict], name: str) -> dict[int, float]:
    groups = {}
    for figure in figures:
        if figure.get("name") == name and figure.get("median_seconds") is not None:
            groups.setdefault(int(figure.get("rows") or 0), []).append(float(figure["median_seconds"]))
    return {rows: sum(values) / len(values) for rows, values in groups.items()}


def interpolated(points: dict[int, float], at: int) -> float:
    known = sorted(points)
    if at > known[-1] and known[-1] > 1:
        return points[known[-1]] * at / known[-1]
    return float(np.interp(at, known, [points[point] for point in known]))


@dataclass
class Measurement:
    """What a file of trees.step_costs says; nothing without one."""

    figures: list[dict]
    isa: str
    drafter: str = "eagle3"


def read_measurements(paths: list[str]) -> list[Measurement]:
    """One for each instruction set. Without files: one that says nothing."""
    found = [read_measurement(path) for path in paths] or [Measurement([], "")]
    for i, measured in enumerate(found):
        first = [other.isa for other in found].index(measured.isa)
        if first != i:
            raise InputError(
                f"trees.step_costs: expected one file for each instruction set, got two for {measured.isa or 'none'}: "
                f"{paths[first]} and {paths[i]}"
            )
    return found


def read_measurement(path: str) -> Measurement:
    content = read_json(Path(path))
    figures = content.get("figures") if isinstance(content, dict) else None
    if not isinstance(figures, list) or not any(isinstance(f, dict) and f.get("name") == "step" for f in figures):
        raise InputError(f'{path}: expected a list "figures" with at least one named "step", got {str(content)[:60]!r}')
    figures = [figure for figure in figures if isinstance(figure, dict)]
    return Measurement(figures, str(content.get("isa") or ""), str(content.get("draft") or "eagle3"))


def head_weights(config: Config, kind: str) -> HeadWeights:
    head = read_json(out_folder(config, kind) / "config.json")
    h, f = head["hidden_size"], head["intermediate_size"]
    rows = (head["num_attention_heads"] + 2 * head["num_key_value_heads"]) * head["head_dim"]
    entering = h * (2 * h + rows) if kind == "eagle2" else 2 * h * rows  # fc in every pass, or a wider input
    layer = entering + h * head["num_attention_heads"] * head["head_dim"] + 3 * h * f
    vocabulary = head.get("draft_vocab_size", head["vocab_size"])
    return HeadWeights(layer, h, vocabulary, source_bytes(Path(config.teacher.path)))


def suggest(config: Config, kind: str, heads: dict[str, HeadWeights], grid: list[dict]) -> None:
    """Prints and writes the fastest settings of the grid, and tells the head's config.json."""
    head, deepest = heads[kind], max(setting["levels"] for setting in grid)
    for measured in read_measurements(config.trees.step_costs):
        rated = rate(grid, StepCosts(measured.figures, config.trees, head, heads.get(measured.drafter)))
        write_json(config.heads_folder / "trees" / ("-".join(filter(None, (kind, measured.isa))) + ".json"), rated)
        where = f" on {measured.isa}" if measured.isa else ""
        for setting in rated[:SUGGESTIONS]:
            print(
                f"trees: {EAGLE[kind]}{where}, "
                "M={nodes}, {levels} levels, K={expand}, vocabulary {vocabulary}: tau {tau:.3f}, "
                "{speedup:.2f} times plain decoding".format(**setting),
                flush=True,
            )
        suggestion = suggestion_of(rated[0], head.vocabulary, deepest, config.trees)
        write_suggestion(config, kind, suggestion, measured.isa)


def rate(grid: list[dict], costs: StepCosts) -> list[dict]:
    """Every setting with what it makes of plain decoding, the fastest first."""
    rated = []
    for setting in grid:
        drafting = setting["levels"] * costs.draft(setting["expand"], setting["vocabulary"])
        speedup = setting["tau"] * costs.verify(1) / (costs.verify(setting["nodes"]) + drafting)
        rated.append(setting | {"speedup": speedup})
    return sorted(rated, key=lambda setting: -setting["speedup"])


def suggestion_of(setting: dict, whole: int, deepest: int, trees: TreesConfig) -> dict:
    """As the engine reads it. The best setting is that of an average round. Where the engine chooses rows round by
    round, levels and K only bound the choice: easy rounds get some levels more, as far as they were simulated, and no
    round has only a chain to choose from."""
    cut = {"vocab": setting["vocabulary"]} if setting["vocabulary"] < whole else {}
    if trees.suggest_nodes == "best":
        return {"nodes": setting["nodes"], "depth": setting["levels"], "expand": setting["expand"]} | cut
    depth = min(setting["levels"] + trees.spare_levels, deepest)
    return {"nodes": "auto", "depth": depth, "expand": max(setting["expand"], 2)} | cut


def most_careful(suggestions: list[dict]) -> dict:
    """For machines that nobody measured: of each bound the lowest, since too large a tree costs more than it brings."""
    bounds = {key: [s[key] for s in suggestions if key in s] for key in ("nodes", "depth", "expand", "vocab")}
    return {key: "auto" if "auto" in found else min(found) for key, found in bounds.items() if found}


def write_suggestion(config: Config, kind: str, suggestion: dict, isa: str) -> None:
    """espalier.suggested of a head. With an instruction set what is said about that one is replaced, and what is said
    about those that nobody measured."""
    path = out_folder(config, kind) / "config.json"
    head = read_json(path)
    suggested = head.setdefault("espalier", {}).setdefault("suggested", {})
    with_ngram = kind in EAGLE and config.trees.suggest_ngram
    suggested["drafters"] = [kind, "ngram"] if with_ngram else [kind]
    if isa:
        suggested.setdefault("isa", {})[isa] = suggestion
        suggested |= most_careful(list(suggested["isa"].values()))
    else:
        suggested |= suggestion
    write_json(path, head)
