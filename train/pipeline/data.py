"""Distilled sequences in memory, and batches of them.

A batch is a pure function of (seed, step, rank, world): nothing is remembered between steps, so a training that was killed
goes on with exactly the batches it would have seen.
"""

import hashlib
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from .config import Config, InputError
from .files import read_arrays, read_json, sha256_of

ROUND = 64  # lengths are rounded up to multiples of this, so that few shapes occur


@dataclass
class Sequences:
    """n token sequences one after the other. Immutable by convention."""

    tokens: np.ndarray  # int32 [sum of lengths]
    answer: np.ndarray  # bool, the same shape: written by the teacher
    offsets: np.ndarray  # int64 [n + 1]
    prompt_id: np.ndarray  # int32 [n]
    greedy: np.ndarray  # bool [n]

    def __len__(self) -> int:
        return len(self.offsets) - 1

    @property
    def lengths(self) -> np.ndarray:
        return np.diff(self.offsets)

    @property
    def sha256(self) -> str:
        """Of everything that batches are made of."""
        content = hashlib.sha256()
        for part in (self.tokens, self.answer, self.offsets):
            content.update(np.ascontiguousarray(part))
        return content.hexdigest()

    def sequence(self, i: int) -> tuple[np.ndarray, np.ndarray]:
        """tokens and answer of sequence i."""
        part = slice(self.offsets[i], self.offsets[i + 1])
        return self.tokens[part], self.answer[part]

    def select(self, chosen: np.ndarray) -> "Sequences":
        """The sequences with the given indices, in that order."""
        lengths = self.lengths[chosen]
        offsets = np.concatenate(([0], np.cumsum(lengths)))
        places = np.repeat(self.offsets[chosen] - offsets[:-1], lengths) + np.arange(offsets[-1])
        return Sequences(self.tokens[places], self.answer[places], offsets, self.prompt_id[chosen], self.greedy[chosen])

    def filtered(self, kept: np.ndarray) -> "Sequences":
        """The same sequences with some of their tokens only, bool of the shape of tokens."""
        offsets = np.concatenate(([0], np.cumsum(kept)))[self.offsets]
        return Sequences(self.tokens[kept], self.answer[kept], offsets, self.prompt_id, self.greedy)


def load_sequences(config: Config, split: str) -> Sequences:
    """The finished shards; "train" leaves out the prompts held aside, "held" is only those.

    A prompt with answered follow-ups is in one shard with its first answer and in a later one with the whole
    conversation. Only the last, which contains the others, is kept."""
    if split not in ("train", "held"):
        raise ValueError(f"split: expected train or held, got {split!r}")
    folder = config.folder / "distilled"
    manifest = read_json(folder / "manifest.json")
    if not manifest["shards"]:
        raise InputError(f"{folder}/manifest.json: expected finished shards, got none")
    everything = joined([read_listed_shard(folder / name, entry) for name, entry in sorted(manifest["shards"].items())])
    (held_ids,) = read_arrays(config.folder / "prepared" / "prompts.npz", "held_ids")
    wanted = np.isin(everything.prompt_id, held_ids) == (split == "held")
    last = {prompt: i for i, prompt in enumerate(everything.prompt_id.tolist())}
    kept = np.zeros(len(everything), dtype=bool)
    kept[list(last.values())] = True
    return everything.select(np.flatnonzero(wanted & kept))


def load_training_sequences(config: Config) -> Sequences:
    """What heads are trained on: the "train" sequences, or what config.data makes of them."""
    sequences = load_sequences(config, "train")
    if 0 < config.data.sequences < len(sequences):
        chosen = np.random.default_rng((config.seed, 3)).permutation(len(sequences))[: config.data.sequences]
        sequences = sequences.select(np.sort(chosen))
    if config.data.text == "prompts":
        sequences = prompts_of(sequences)
    if config.data.control_tokens == "stripped":
        (control,) = read_arrays(config.folder / "prepared" / "prompts.npz", "control_ids")
        sequences = sequences.filtered(~np.isin(sequences.tokens, control))
    return sequences


def prompts_of(sequences: Sequences) -> Sequences:
    """What stands before the first answers, marked as if the teacher had written it. What all of them begin with is the
    template's and stays unmarked."""
    numbers = np.repeat(np.arange(len(sequences)), sequences.lengths)
    answered = np.cumsum(sequences.answer)  # answer tokens up to here
    in_earlier_ones = np.concatenate(([0], answered))[sequences.offsets[:-1]]
    prompts = sequences.filtered(answered == in_earlier_ones[numbers])
    places = np.arange(len(prompts.tokens)) - np.repeat(prompts.offsets[:-1], prompts.lengths)
    prompts.answer = places >= shared_beginning(prompts)
    return prompts


def shared_beginning(sequences: Sequences) -> int:
    """How many tokens all sequences have in common from the start."""
    shared = int(sequences.lengths.min())
    columns = sequences.tokens[sequences.offsets[:-1, None] + np.arange(shared)]
    differs = (columns != columns[0]).any(0)
    return int(differs.argmax()) if differs.any() else shared


def read_listed_shard(path: Path, entry: dict) -> Sequences:
    """A shard that is what the manifest says: vocabularies and trainings go by the hashes there."""
    found = sha256_of(path) if path.exists() else "no file"
    if found != entry["sha256"]:
        raise InputError(
            f"{path}: expected SHA-256 {entry['sha256']} as in the manifest, got {found}; remove it and run the step distil"
        )
    return read_shard(path)


def read_shard(path) -> Sequences:
    tokens, offsets, answer, prompt_id, greedy = read_arrays(path, "tokens", "offsets", "answer", "prompt_id", "greedy")
    if len(offsets) != len(prompt_id) + 1 or offsets[-1] != len(tokens) or len(answer) != len(tokens):
        raise InputError(f"{path}: expected offsets that end at {len(tokens)} tokens, got {offsets[-1:]}")
    return Sequences(tokens, answer.astype(bool), offsets, prompt_id, greedy.astype(bool))


def joined(parts: list[Sequences]) -> Sequences:
    lengths = np.concatenate([part.lengths for part in parts])
    return Sequences(
        tokens=np.concatenate([part.tokens for part in parts]),
        answer=np.concatenate([part.answer for part in parts]),
        offsets=np.concatenate(([0], np.cumsum(lengths))),
        prompt_id=np.concatenate([part.prompt_id for part in parts]),
        greedy=np.concatenate([part.greedy for part in parts]),
    )


class Batches:
    """Length-bucketed batches of about tokens_per_batch padded tokens over all ranks.

    An epoch shuffles the sequences, sorts them by rounded length (which keeps the shuffled order among equals), cuts the
    result into batches and shuffles those. The rows of a batch are dealt out to the ranks, so all have the same to do.
    """

    def __init__(
        self, sequences: Sequences, tokens_per_batch: int, max_tokens: int, seed: int, rank: int = 0, world: int = 1
    ):
        if len(sequences) == 0:
            raise InputError("training data: expected at least one sequence, got none")
        self.sequences = sequences
        self.tokens_per_batch = tokens_per_batch
        self.max_tokens = max_tokens
        self.seed = seed
        self.rank = rank
        self.world = world
        self.padded = np.minimum(rounded(sequences.lengths), max_tokens)
        self.plans: dict[int, list[np.ndarray]] = {}
        self.starts = [0]  # first step of each epoch planned so far

    def epoch_of(self, step: int) -> int:
        while self.starts[-1] <= step:
            self.starts.append(self.starts[-1] + len(self.plan(len(self.starts) - 1)))
        return int(np.searchsorted(self.starts, step, side="right")) - 1

    def plan(self, epoch: int) -> list[np.ndarray]:
        """The batches of an epoch as lists of sequence indices. Only the latest is kept."""
        if epoch not in self.plans:
            self.plans = {epoch: self.make_plan(np.random.default_rng((self.seed, 1, epoch)))}
        return self.plans[epoch]

    def make_plan(self, random: np.random.Generator) -> list[np.ndarray]:
        order = random.permutation(len(self.sequences))
        order = order[np.argsort(self.padded[order], kind="stable")]
        batches, begin = [], 0
        while begin < len(order):
            rows = self.rows_at(int(self.padded[order[begin]]))
            # Rows only get longer from here: shrink until the longest of the batch fits as well.
            while rows > self.world and self.rows_at(int(self.padded[order[min(begin + rows, len(order)) - 1]])) < rows:
                rows = self.rows_at(int(self.padded[order[min(begin + rows, len(order)) - 1]]))
            batches.append(order[begin : begin + rows])
            begin += rows
        if (
            len(batches[-1]) < self.world
        ):  # every rank needs a row: the last batch is filled up from the start of the order
            batches[-1] = np.resize(np.concatenate((batches[-1], order)), self.world)
        return [batches[i] for i in random.permutation(len(batches))]

    def rows_at(self, length: int) -> int:
        return max(self.tokens_per_batch // length // self.world, 1) * self.world

    def batch(self, step: int) -> dict[str, torch.Tensor]:
        """tokens int64 [B, T], answer bool [B, T], valid bool [B, T]; right padding with token 0."""
        epoch = self.epoch_of(step)
        rows = self.plan(epoch)[step - self.starts[epoch]][self.rank :: self.world]
        random = np.random.default_rng((self.seed, 2, step, self.rank))
        cuts = [self.cut(int(row), random) for row in rows]
        length = rounded(max(len(tokens) for tokens, _ in cuts))
        shape = (len(cuts), min(int(length), self.max_tokens))
        tokens, answer, valid = np.zeros(shape, np.int64), np.zeros(shape, bool), np.zeros(shape, bool)
        for i, (part, written) in enumerate(cuts):
            tokens[i, : len(part)], answer[i, : len(part)], valid[i, : len(part)] = part, written, True
        return {
            "tokens": torch.from_numpy(tokens),
            "answer": torch.from_numpy(answer),
            "valid": torch.from_numpy(valid),
        }

    def cut(self, row: int, random: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
        """A sequence, or a random window of max_tokens that keeps at least one answer token if there is one."""
        tokens, answer = self.sequences.sequence(row)
        if len(tokens) <= self.max_tokens:
            return tokens, answer
        places = np.flatnonzero(answer)
        anchor = int(random.choice(places)) if len(places) else 0
        lowest, highest = max(anchor - self.max_tokens + 1, 0), min(anchor, len(tokens) - self.max_tokens)
        begin = int(random.integers(lowest, highest + 1))
        return tokens[begin : begin + self.max_tokens], answer[begin : begin + self.max_tokens]


def rounded(length):
    """Up to the next multiple of ROUND."""
    return -(-length // ROUND) * ROUND
