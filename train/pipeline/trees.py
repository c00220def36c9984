"""Which trees to draft: static ones for Medusa, sizes of dynamic ones for EAGLE-3, from what `simulate` recorded.

Static trees. The value of a node is how often the true text passes through it: the share of positions where head 0
ranks its token c1, head 1 ranks its token c2, and so on. Heads are not independent, so these joint frequencies are
counted and not multiplied from those of single heads. A child is never worth more than its parent, so taking the best
node again and again gives the best tree of every size, and the list in that order can be cut anywhere.

Dynamic trees. The best setting gives the most tokens for each second of a round:

    tau(M, levels, K, N) / (verify(M) + draft(K, N) * levels)

with times from trees.step_costs: JSON with a list `figures` of objects `name` ("step" for a pass of the teacher,
"draft" for one of the head), `rows`, `seconds` (or `median`), and for drafts `vocabulary`; several contexts are
averaged. Without draft figures a pass is taken to cost the share of the teacher's weights that the head reads, without
any times all passes of the teacher are taken to cost the same.

WORK/trees/ gets medusa-SIZE.json (lists of paths, best node first) and eagle3.json; the choices also go beside the
exported heads, as choices-SIZE.json and choices.json, the one of 16 nodes or the first size that was asked for.
"""

import heapq
from collections import Counter
from pathlib import Path

import numpy as np

from .config import Config, InputError
from .export import out_folder
from .files import read_arrays, read_json, write_json

DEFAULT_SIZE = 16
SUGGESTIONS = 5
CHEAPEST_DRAFT = 0.02  # of a step of one row: a head pass never costs less than its launches


def main(config: Config) -> None:
    folder = config.folder / "simulate"
    medusa, eagle3 = folder / "medusa_ranks.npz", folder / "eagle3.json"
    if not medusa.exists() and not eagle3.exists():
        raise InputError(f"{folder}: expected medusa_ranks.npz or eagle3.json, got neither; run the step simulate")
    if medusa.exists():
        write_static_trees(config, read_arrays(medusa, "ranks")[0])
    if eagle3.exists():
        suggest(config, read_json(eagle3))


# Static trees


def write_static_trees(config: Config, ranks: np.ndarray) -> None:
    out = out_folder(config, "medusa")
    for size in config.trees.sizes:
        choices = best_tree(ranks, size)
        gain = expected_gain(ranks, choices)
        write_json(config.folder / "trees" / f"medusa-{size}.json", choices)
        write_json(out / f"choices-{size}.json", choices)
        if size == (DEFAULT_SIZE if DEFAULT_SIZE in config.trees.sizes else config.trees.sizes[0]):
            write_json(out / "choices.json", choices)
        print(
            f"trees: Medusa, {size} nodes, {max(map(len, choices))} levels: {1 + gain:.3f} tokens expected", flush=True
        )


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


class StepCosts:
    """Seconds of passes by rows, linear between measured numbers of rows and in proportion beyond them."""

    def __init__(self, figures: list[dict], fallback_draft: float):
        self.steps = mean_by(figures, "step", ("rows",)) or {(1,): 1.0}
        self.drafts = mean_by(figures, "draft", ("rows", "vocabulary"))
        self.fallback_draft = fallback_draft

    def verify(self, rows: int) -> float:
        return interpolated({r: seconds for (r,), seconds in self.steps.items()}, rows)

    def draft(self, rows: int, vocabulary: int) -> float:
        """A pass of the head over `rows` nodes. `vocabulary` picks the measured sizes around it."""
        if not self.drafts:
            return self.fallback_draft * self.verify(1)
        sizes = sorted({size for _, size in self.drafts})
        by_size = {
            size: interpolated({r: s for (r, of), s in self.drafts.items() if of == size}, rows) for size in sizes
        }
        return interpolated(by_size, vocabulary)


def mean_by(figures: list[dict], name: str, keys: tuple[str, ...]) -> dict[tuple, float]:
    groups = {}
    for figure in figures:
        if figure.get("name") == name:
            seconds = figure.get("seconds", figure.get("median"))
            groups.setdefault(tuple(int(figure.get(key) or 0) for key in keys), []).append(float(seconds))
    return {key: sum(values) / len(values) for key, values in groups.items()}


def interpolated(points: dict[int, float], at: int) -> float:
    known = sorted(points)
    if at > known[-1] and known[-1] > 1:
        return points[known[-1]] * at / known[-1]
    return float(np.interp(at, known, [points[point] for point in known]))


def read_costs(path: str, fallback_draft: float) -> StepCosts:
    if not path:
        return StepCosts([], fallback_draft)
    content = read_json(Path(path))
    figures = content.get("figures") if isinstance(content, dict) else content
    if not isinstance(figures, list) or not any(isinstance(f, dict) and f.get("name") == "step" for f in figures):
        raise InputError(f'{path}: expected a list "figures" with at least one named "step", got {str(content)[:60]!r}')
    return StepCosts([figure for figure in figures if isinstance(figure, dict)], fallback_draft)


def weight_share(config: Config, vocabulary: int) -> float:
    """The head's weights over the teacher's, for a machine whose time goes into reading weights."""
    head = read_json(out_folder(config, "eagle3") / "config.json")
    h, f = head["hidden_size"], head["intermediate_size"]
    rows = (head["num_attention_heads"] + 2 * head["num_key_value_heads"]) * head["head_dim"]
    layer = 2 * h * rows + h * head["num_attention_heads"] * head["head_dim"] + 3 * h * f
    teacher = Path(config.teacher.path)
    size = (
        teacher.stat().st_size
        if teacher.is_file()
        else sum(file.stat().st_size for file in teacher.glob("model*.safetensors"))
    )
    return max(2.0 * (layer + vocabulary * h) / max(size, 1), CHEAPEST_DRAFT)


def suggest(config: Config, found: dict) -> None:
    """Prints and writes the fastest settings of the grid."""
    rated = []
    for setting in found["grid"]:
        costs = read_costs(config.trees.step_costs, weight_share(config, setting["vocabulary"]))
        round_time = costs.verify(setting["nodes"]) + setting["levels"] * costs.draft(
            setting["expand"], setting["vocabulary"]
        )
        rated.append(setting | {"speedup": setting["tau"] * costs.verify(1) / round_time})
    rated.sort(key=lambda setting: -setting["speedup"])
    write_json(config.folder / "trees" / "eagle3.json", rated)
    for setting in rated[:SUGGESTIONS]:
        print(
            "trees: EAGLE-3, M={nodes}, {levels} levels, K={expand}, vocabulary {vocabulary}: tau {tau:.3f}, "
            "{speedup:.2f} times plain decoding".format(**setting),
            flush=True,
        )
