"""How well exported heads would draft, without an engine: teacher-forced on texts the teacher wrote greedily.

Texts are the held-aside distilled answers, or those of the engine (simulate.turns: `turns.json` of `espalier eval
run`). Rounds are replayed: from the first token of an answer on, each round drafts below
its root, gets as many tokens right as the tree contains of the true text, and the next root stands behind them.

WORK/simulate/eagle3.json, eagle2.json and medusa.json hold what follows. For texts of the engine it lies in
WORK/simulate-turns/, where neither `trees` nor the model cards look: nothing is chosen on an evaluation.
    weights    SHA-256 of the file that was simulated: figures of one head are never taken for those of the next
    top        [depth][k]: how often the true token is among the k + 1 best, given the true path above it
    settings   for each tree: tau (tokens a round, the bonus token included), and by depth as the engine counts them:
               reached, how often the tree had guesses there below the true path, and accept_pos, the share that was right
    grid       the same tau for many sizes, from which `trees` chooses (EAGLE; simulate.grid = false leaves it out)
"""

import copy
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from .card import write_card
from .config import Config, InputError
from .data import load_sequences
from .draft_layer import DraftLayer
from .draft_trees import Prefix, true_places
from .export import load_exported_eagle2, load_exported_eagle3, load_exported_medusa
from .files import read_json, sha256_of, write_arrays, write_json
from .head_files import exported_kinds, out_folder, weights_file
from .medusa import Medusa
from .progress import Progress
from .teacher import Teacher, teacher_of
from .trees import best_tree

TOP = 10  # ranks that are told apart, Medusa's TOPK
CHAINS = (3, 5, 7)  # drafted tokens
TREES = ((8, 5, 4), (16, 6, 4), (16, 11, 4), (32, 7, 8), (60, 8, 10))  # nodes M, levels, K
GRID_WIDTHS = (1, 2, 4, 8, 10)
GRID_VOCABULARIES = (4096, 8192)  # besides the whole, and besides that of EAGLE-3 where a head has more
GRID_NODES = (2, 3, 4, 6, 8, 12, 16, 24, 32, 48, 60)
NODES = sorted({*GRID_NODES, *(n + 1 for n in CHAINS), *(nodes for nodes, _, _ in TREES)})


@dataclass
class Text:
    tokens: torch.Tensor  # int64 [T]
    answers: list[tuple[int, int]]  # [begin, end) of what the teacher wrote

    @property
    def roots(self) -> torch.Tensor:
        """Every place where a round could begin: answer tokens with another one behind them."""
        return torch.tensor(
            [n for begin, end in self.answers for n in range(max(begin, 1), end - 1)], dtype=torch.int64
        )


def main(config: Config) -> None:
    teacher = teacher_of(config)
    texts, source = load_texts(config)
    if not texts:
        raise InputError(f"{source}: expected texts with answers of two tokens or more, got none")
    kinds = exported_kinds(config)
    if not kinds:
        raise InputError(f"{out_folder(config, 'eagle3')}: expected an exported head, got none; run the step export")
    for kind in kinds:
        out, used = out_folder(config, kind), texts_for(config, kind, texts)
        facts = {"source": source, "sequences": len(used), "weights": sha256_of(weights_file(out, kind))}
        with torch.inference_mode():
            simulate = simulate_medusa if kind == "medusa" else simulate_eagle
            result = facts | simulate(config, kind, teacher, used, out)
        write_json(results_folder(config) / f"{kind}.json", result)
        print_result(kind, result)
        if not config.simulate.turns:
            write_card(config, kind, teacher)


def results_folder(config: Config) -> Path:
    return config.heads_folder / ("simulate-turns" if config.simulate.turns else "simulate")


# Texts


def load_texts(config: Config) -> tuple[list[Text], str]:
    if config.simulate.turns:
        texts = [text for path in config.simulate.turns for text in turns_of(Path(path))]
        source = ", ".join(Path(path).name for path in config.simulate.turns)
    else:
        held = load_sequences(config, "held")
        texts = [
            Text(torch.from_numpy(tokens.astype(np.int64)), runs(answer))
            for tokens, answer in map(held.sequence, np.flatnonzero(held.greedy))
        ]
        source = "held-aside prompts"
    return [text for text in texts if len(text.roots)][: config.simulate.max_sequences], source


def texts_for(config: Config, kind: str, texts: list[Text]) -> list[Text]:
    limited = kind != "medusa" and config.simulate.grid and config.simulate.grid_sequences
    return texts[: config.simulate.grid_sequences] if limited else texts


def turns_of(path: Path) -> list[Text]:
    texts = []
    for i, turn in enumerate(read_json(path)):
        if not isinstance(turn, dict) or "prompt" not in turn or "tokens" not in turn:
            raise InputError(f"{path}: turn {i}: expected prompt and tokens, got {str(turn)[:60]!r}")
        tokens = torch.tensor(turn["prompt"] + turn["tokens"], dtype=torch.int64)
        texts.append(Text(tokens, [(len(turn["prompt"]), len(tokens))]))
    return texts


def runs(answer: np.ndarray) -> list[tuple[int, int]]:
    """[begin, end) of the stretches of ones."""
    edges = np.flatnonzero(np.diff(np.concatenate(([0], answer.astype(np.int8), [0]))))
    return [(int(begin), int(end)) for begin, end in edges.reshape(-1, 2)]


# Replay


class Replays:
    """Counts the rounds of many settings at once over all texts."""

    def __init__(self, settings: list[dict]):
        """A setting is whatever describes it; `levels` is the depth of its tree."""
        self.settings = settings
        self.rounds, self.tokens = np.zeros(len(settings), np.int64), np.zeros(len(settings), np.int64)
        depth = max(setting["levels"] for setting in settings) + 2
        self.reaching, self.taking = (np.zeros((len(settings), depth), np.int64) for _ in range(2))

    def add(self, text: Text, lengths: np.ndarray, judged: np.ndarray) -> None:
        """[settings, roots]: accepted drafts, and depths at which the tree had guesses, below each of text.roots."""
        number = np.arange(len(self.settings))
        first = 0  # the place of an answer's first root among all roots
        for begin, end in text.answers:
            begin = max(begin, 1)
            root = np.full(len(number), begin)
            while (going := root < end - 1).any():
                who = number[going]
                left = end - 1 - root[going]  # true tokens behind the root
                place = first + root[going] - begin
                length = np.minimum(lengths[who, place], left)
                self.rounds[who] += 1
                self.tokens[who] += np.minimum(length + 1, left)
                self.reaching[who, np.minimum(judged[who, place], left)] += 1
                self.taking[who, length] += 1
                root[going] += length + 1
            first += max(end - 1 - begin, 0)

    def facts(self, details: bool) -> list[dict]:
        """Each setting with its tau; with details also how often each depth was reached and then right."""
        results = []
        for i, setting in enumerate(self.settings):
            result = setting | {"tau": float(self.tokens[i] / max(self.rounds[i], 1))}
            if details:
                reached, taken = (
                    row[::-1].cumsum()[::-1][1 : setting["levels"] + 1].tolist()
                    for row in (self.reaching[i], self.taking[i])
                )
                rates = [hits / tries if tries else None for hits, tries in zip(taken, reached)]
                result |= {"rounds": int(self.rounds[i]), "accept_pos": rates, "reached": reached}
            results.append(result)
        return results


# EAGLE-2 and EAGLE-3


def simulate_eagle(config: Config, kind: str, teacher: Teacher, texts: list[Text], out: Path) -> dict:
    model = (
        load_exported_eagle2(out, teacher)
        if kind == "eagle2"
        else load_exported_eagle3(out, tuple(config.eagle3.taps), teacher)
    )
    depths = config.simulate.depths
    models, grid = {len(model.ids): model}, []
    if config.simulate.grid:
        models = smaller_vocabularies(model, read_json(out / "vocab_order.json"), config.vocabulary.size)
        grid = grid_settings(list(models), depths)
    named = named_settings(len(model.ids))
    replays = Replays(named + grid)
    top = np.zeros((depths, TOP + 1), np.int64)
    progress = Progress(f"simulate {kind}", len(texts))
    for done, text in enumerate(texts, 1):
        tokens, roots = text.tokens.to(model.ids.device), text.roots.to(model.ids.device)
        features = model.features_of(teacher, tokens[None])[0]
        top += rank_counts(model, tokens, features, roots, depths)
        table = {}
        for size, variant in models.items():
            prefix = Prefix(variant, tokens, features)
            for width in widths_of(replays.settings, size):
                levels = max(setting["levels"] for setting in replays.settings if setting["expand"] == width)
                places = true_places(variant, prefix, tokens, roots, width, levels)
                table[size, width] = torch.stack((places.accepted(NODES), places.judged(NODES))).cpu().numpy()
        replays.add(text, *np.stack([lengths_of(table, setting) for setting in replays.settings], axis=1))
        progress.show(done)
    shares = top.cumsum(-1)[:, :TOP] / top.sum(-1, keepdims=True).clip(min=1)
    facts = {"top": shares.tolist(), "settings": replays.facts(details=True)[: len(named)]}
    return facts | ({"grid": replays.facts(details=False)[len(named) :]} if grid else {})


def smaller_vocabularies(model: DraftLayer, order: list[int], common: int) -> dict[int, DraftLayer]:
    """By their sizes. `common` is that of EAGLE-3 heads, at which other kinds can be compared with them."""
    sizes = [size for size in sorted({*GRID_VOCABULARIES, common}) if size < len(model.ids)]
    return {size: restricted(model, order[:size]) for size in sizes} | {len(model.ids): model}


def named_settings(vocabulary: int) -> list[dict]:
    chains = [{"name": f"chain of {n}", "nodes": n + 1, "levels": n, "expand": 1} for n in CHAINS]
    trees = [
        {"name": f"M={m}, K={k}, {levels} levels", "nodes": m, "levels": levels, "expand": k} for m, levels, k in TREES
    ]
    return [setting | {"vocabulary": vocabulary} for setting in chains + trees if setting["expand"] <= vocabulary]


def grid_settings(vocabularies: list[int], depths: int) -> list[dict]:
    """Sizes worth comparing: no fewer drafted nodes than levels, which would stay empty, nor more than candidates."""
    return [
        {"vocabulary": vocabulary, "nodes": nodes, "levels": levels, "expand": width}
        for vocabulary in vocabularies
        for width in GRID_WIDTHS
        for levels in range(1, depths + 1)
        for nodes in GRID_NODES
        if width <= vocabulary and levels <= nodes - 1 <= width + (levels - 1) * width * width
    ]


def widths_of(settings: list[dict], vocabulary: int) -> list[int]:
    return sorted({setting["expand"] for setting in settings if setting["vocabulary"] == vocabulary})


def lengths_of(table: dict, setting: dict) -> np.ndarray:
    """Accepted and judged of one setting, [2, roots]. table[vocabulary, width]: [2, len(NODES), roots, levels]."""
    return table[setting["vocabulary"], setting["expand"]][:, NODES.index(setting["nodes"]), :, setting["levels"] - 1]


def restricted(model: DraftLayer, kept: list[int]) -> DraftLayer:
    """The same head speaking fewer tokens: what --draft-vocab does. The output matrix may be its own or the teacher's."""
    rows = torch.isin(model.ids, torch.as_tensor(kept, device=model.ids.device)).nonzero().squeeze(1)
    smaller = copy.copy(model)
    smaller._parameters = {name: value for name, value in model._parameters.items() if name != "lm_head"}
    smaller._buffers = dict(model._buffers) | {"ids": model.ids[rows], "lm_head": model.lm_head[rows]}
    return smaller


def rank_counts(
    model: DraftLayer, tokens: torch.Tensor, features: torch.Tensor, roots: torch.Tensor, depths: int
) -> np.ndarray:
    """[depths, TOP + 1]: how often the true token has each rank; the last column is everything behind."""
    counts = np.zeros((depths, TOP + 1), np.int64)
    for depth, a in enumerate(model.unrolled(tokens[None], features[None], depths, roots - 1)):
        inside = roots + depth + 1 < len(tokens)
        true = tokens[roots[inside] + depth + 1]
        row = torch.searchsorted(model.ids, true).clamp(max=len(model.ids) - 1)
        ranks = ranks_of(model.logits(a[inside]), row)
        ranks = torch.where(model.ids[row] == true, ranks, TOP)
        counts[depth] = np.bincount(ranks.cpu().numpy(), minlength=TOP + 1)
    return counts


def ranks_of(logits: torch.Tensor, column: torch.Tensor) -> torch.Tensor:
    """How many logits are larger than that of the given column, at most TOP."""
    return (logits > logits.gather(1, column[:, None])).sum(-1).clamp(max=TOP)


# Medusa


def simulate_medusa(config: Config, kind: str, teacher: Teacher, texts: list[Text], out: Path) -> dict:
    model = load_exported_medusa(out, teacher)
    progress, all_ranks = Progress(f"simulate {kind}", len(texts)), []
    for done, text in enumerate(texts, 1):
        all_ranks.append(medusa_ranks(model, teacher, text))
        progress.show(done)
    joined = np.concatenate(all_ranks)
    write_arrays(results_folder(config) / "medusa_ranks.npz", ranks=joined)
    trees = {f"chain of {model.heads}": [[0] * depth for depth in range(1, model.heads + 1)]}
    trees |= {f"static tree of {nodes}": best_tree(joined, nodes) for nodes in sorted({*config.trees.sizes, 16, 60})}
    replays = Replays(
        [{"name": name, "nodes": len(tree) + 1, "levels": max(map(len, tree))} for name, tree in trees.items()]
    )
    for text, ranks in zip(texts, all_ranks):
        replays.add(text, *np.stack([static_rounds(tree, ranks) for tree in trees.values()], axis=1))
    counts = np.stack([np.bincount(column[column >= 0], minlength=TOP + 1) for column in joined.T])
    shares = counts.cumsum(-1)[:, :TOP] / counts.sum(-1, keepdims=True).clip(min=1)
    return {"top": shares.tolist(), "settings": replays.facts(details=True)}


def medusa_ranks(model: Medusa, teacher: Teacher, text: Text) -> np.ndarray:
    """int16 [roots, heads]: the rank of the true token by each head, TOP where it is not among the best, -1 behind the
    end of the text."""
    tokens, roots = text.tokens.to(model.weight.device), text.roots.to(model.weight.device)
    last, _ = teacher.features(tokens[None], ())
    hidden = teacher.final_norm(last[0, roots - 1])
    ranks = torch.full((len(roots), model.heads), -1, dtype=torch.int64, device=tokens.device)
    for k in range(model.heads):
        inside = roots + 1 + k < len(tokens)
        logits = torch.nn.functional.linear(model.head(k, hidden[inside]), model.output.float())
        ranks[inside, k] = ranks_of(logits, tokens[roots[inside] + 1 + k])
    return ranks.cpu().numpy().astype(np.int16)


def static_rounds(choices: list[list[int]], ranks: np.ndarray) -> np.ndarray:
    """[2, roots]: accepted drafts of a static tree, and depths at which it had guesses."""
    nodes = {tuple(path) for path in choices}
    with_children = {path[:-1] for path in nodes}
    accepted = [accepted_of(nodes, row) for row in ranks.tolist()]
    judged = [length + (tuple(row[:length]) in with_children) for length, row in zip(accepted, ranks.tolist())]
    return np.array((accepted, judged))


def accepted_of(nodes: set[tuple[int, ...]], ranks: list[int]) -> int:
    length = 0
    while length < len(ranks) and tuple(ranks[: length + 1]) in nodes:
        length += 1
    return length


def print_result(kind: str, result: dict) -> None:
    for depth, row in enumerate(result["top"], 1):
        print(f"simulate {kind}: depth {depth}: top 1 {row[0]:.3f}, top 4 {row[3]:.3f}, top 10 {row[-1]:.3f}")
    for setting in result["settings"]:
        rates = " ".join("-" if rate is None else f"{rate:.3f}" for rate in setting["accept_pos"])
        print(f"simulate {kind}: {setting['name']}: tau {setting['tau']:.3f}, accepted by depth {rates}", flush=True)
