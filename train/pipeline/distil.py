"""Step 2: the teacher answers its own prompts. Token ids are stored as they were written, control and end tokens included.

Round 0 answers the first turns, round r the r-th follow-up with everything before it as history. Every round is cut into
shards of the same prompts; WORK/distilled/shard-NNNNN.npz is written when all its answers are there, and listed in
manifest.json. A run that was stopped goes on with the shards that are missing. Under torchrun each rank takes every
world-th shard of a round, and all wait for the round to be complete.
"""

import fcntl
import hashlib
import os
import time
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

from .config import Config, InputError, digest
from .data import Sequences, read_shard
from .files import read_json, sha256_of, write_arrays, write_json
from .generator import Generator, Request, Sampling
from .loops import trimmed_length
from .prepare import PreparedPrompts, load_prompts
from .progress import Progress
from .teacher import Teacher, teacher_of


@dataclass
class Shard:
    """The answers of one round to some prompts: places in the prepared prompts."""

    number: int
    round: int
    prompts: np.ndarray
    before: str  # file with the conversations so far; "" in round 0

    @property
    def file(self) -> str:
        return f"shard-{self.number:05d}.npz"


def main(config: Config) -> None:
    prompts = load_prompts(config)
    teacher = teacher_of(config)
    folder = config.folder / "distilled"
    shards = plan_shards(config, prompts)
    open_manifest(folder, fingerprint(config, prompts, teacher), teacher)
    rank, world = rank_and_world()
    for number in range(config.distil.followups + 1):
        wanted = [shard for shard in shards if shard.round == number]
        run_round(config, folder, teacher, prompts, wanted[rank::world])
        wait_for(folder, wanted, world, config.distil.wait_seconds)
    print_totals(folder, [shard.file for shard in shards])


def rank_and_world() -> tuple[int, int]:
    """As torchrun says them."""
    return int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))


def fingerprint(config: Config, prompts: PreparedPrompts, teacher: Teacher) -> str:
    """Of everything the answers depend on. The batch size is left out: it changes rounding, not meaning."""
    left_out = ("batch", "wait_seconds")
    settings = {name: value for name, value in vars(config.distil).items() if name not in left_out}
    content = hashlib.sha256(
        prompts.tokens.tobytes() + prompts.prompt_id.tobytes() + prompts.held_ids.tobytes()
    ).hexdigest()
    return digest(settings, content, teacher.source_sha256, config.seed)


# Which prompts, in which shards


def plan_shards(config: Config, prompts: PreparedPrompts) -> list[Shard]:
    """Held-aside prompts first, then the training prompts in the order of the files, up to the limit."""
    held = np.isin(prompts.prompt_id, prompts.held_ids)
    training = np.flatnonzero(~held)
    if config.distil.limit:
        training = training[: config.distil.limit]
    chosen = np.concatenate((np.flatnonzero(held), training))
    ranges = [
        chosen[begin : begin + config.distil.shard_prompts]
        for begin in range(0, len(chosen), config.distil.shard_prompts)
    ]
    turns = np.diff(prompts.prompt_offsets)
    shards: list[Shard] = []
    before = [""] * len(ranges)
    for number in range(config.distil.followups + 1):
        for i, places in enumerate(ranges):
            shards.append(Shard(number * len(ranges) + i, number, places[turns[places] > number], before[i]))
            before[i] = shards[-1].file
    return shards


def greedy_flags(config: Config, prompts: PreparedPrompts, places: np.ndarray) -> list[bool]:
    """Which prompts are answered greedily. Held-aside ones always are: heads are measured on greedy text."""
    share, held = config.distil.greedy_share, set(prompts.held_ids.tolist())
    ids = prompts.prompt_id[places].tolist()
    return [identity in held or hashed(config.seed, "greedy", identity) < share * 2**62 for identity in ids]


def hashed(*parts) -> int:
    """A number below 2^62 that depends on all parts."""
    return int.from_bytes(hashlib.sha256("/".join(map(str, parts)).encode()).digest()[:8], "big") >> 2


# The manifest


@contextmanager
def locked(folder: Path):
    """Ranks add to one manifest: read, change and write it under this lock."""
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / ".lock", "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def open_manifest(folder: Path, made_from: str, teacher: Teacher) -> None:
    """Starts a manifest, or finds that the one that is there belongs to this run."""
    path = folder / "manifest.json"
    with locked(folder):
        if not path.exists():
            write_json(
                path,
                {"config": made_from, "teacher": teacher.source_sha256, "teacher_name": teacher.name, "shards": {}},
            )
        found = read_json(path)["config"]
    if found != made_from:
        raise InputError(
            f"{path}: expected answers of this configuration ({made_from}), got others ({found}); use another work folder"
        )


def finished(folder: Path) -> set[str]:
    return {name for name in read_json(folder / "manifest.json")["shards"] if (folder / name).exists()}


def add_shard(folder: Path, shard: Shard, sequences: Sequences) -> None:
    path = folder / shard.file
    arrays = {"tokens": sequences.tokens, "offsets": sequences.offsets, "answer": sequences.answer.astype(np.uint8)}
    write_arrays(path, **arrays, prompt_id=sequences.prompt_id, greedy=sequences.greedy.astype(np.uint8))
    entry = {
        "sha256": sha256_of(path),
        "round": shard.round,
        "sequences": len(sequences),
        "tokens": len(sequences.tokens),
        "answer_tokens": int(sequences.answer.sum()),
    }
    with locked(folder):
        manifest = read_json(folder / "manifest.json")
        manifest["shards"][shard.file] = entry
        manifest["shards"] = dict(sorted(manifest["shards"].items()))
        write_json(folder / "manifest.json", manifest)


def wait_for(folder: Path, shards: list[Shard], world: int, patience: float) -> None:
    """Until other ranks have finished theirs. A rank that died would be waited for in vain: `patience` seconds without
    any new shard are the end, unless 0."""
    fewest, since = len(shards) + 1, time.monotonic()
    while True:
        done = finished(folder)
        late = [(shard.file, i % world) for i, shard in enumerate(shards) if shard.file not in done]
        if not late:
            return
        if len(late) < fewest:
            fewest, since = len(late), time.monotonic()
        if patience and time.monotonic() - since >= patience:
            file, rank = late[0]
            raise InputError(
                f"{folder / file}: expected this shard from rank {rank}, got neither it nor any other of the {len(late)} "
                f"missing ones in {patience:g} s (distil.wait_seconds); see what that rank said last"
            )
        time.sleep(1)


def print_totals(folder: Path, files: list[str]) -> None:
    entries = [entry for name, entry in read_json(folder / "manifest.json")["shards"].items() if name in files]
    for number in sorted({entry["round"] for entry in entries}):
        counts = [[entry[key] for entry in entries if entry["round"] == number] for key in ("sequences", "tokens")]
        print(f"distil: round {number}: {sum(counts[0])} sequences, {sum(counts[1])} tokens", flush=True)


# Answers


class Collection:
    """The conversations of one shard while its answers come in."""

    def __init__(self, config: Config, prompts: PreparedPrompts, shard: Shard, folder: Path):
        self.shard, self.prompts = shard, prompts
        self.greedy = greedy_flags(config, prompts, shard.prompts)
        self.seed = config.seed
        self.histories = histories(prompts, shard, folder)
        self.answers: list[np.ndarray | None] = [None] * len(shard.prompts)
        self.missing = len(shard.prompts)

    def requests(self) -> list[Request]:
        """Sorted by length, so that prompts prefilled together need little padding."""
        order = sorted(range(len(self.histories)), key=lambda i: len(self.histories[i][0]))
        ids = self.prompts.prompt_id[self.shard.prompts].tolist()
        keys = [hashed(self.seed, "answer", identity, self.shard.round) for identity in ids]
        return [Request((self, i), self.histories[i][0], self.greedy[i], keys[i]) for i in order]

    def add(self, i: int, answer: np.ndarray, eos_ids: tuple[int, ...]) -> None:
        ended = len(answer) > 0 and int(answer[-1]) in eos_ids
        self.answers[i] = answer if ended else answer[: trimmed_length(answer)]
        self.missing -= 1

    def sequences(self) -> Sequences:
        whole = [np.concatenate((tokens, answer)) for (tokens, _), answer in zip(self.histories, self.answers)]
        marks = [
            np.concatenate((mark, np.ones(len(answer), bool)))
            for (_, mark), answer in zip(self.histories, self.answers)
        ]
        return Sequences(
            tokens=np.concatenate([np.empty(0, np.int32), *whole]).astype(np.int32),
            answer=np.concatenate([np.empty(0, bool), *marks]),
            offsets=np.cumsum([0] + [len(tokens) for tokens in whole], dtype=np.int64),
            prompt_id=self.prompts.prompt_id[self.shard.prompts],
            greedy=np.array(self.greedy, bool),
        )


def histories(prompts: PreparedPrompts, shard: Shard, folder: Path) -> list[tuple[np.ndarray, np.ndarray]]:
    """What stands before each answer of a shard: (tokens, which of them the teacher wrote)."""
    pieces = [prompts.piece(place, shard.round) for place in shard.prompts.tolist()]
    if shard.round == 0:
        return [(piece, np.zeros(len(piece), bool)) for piece in pieces]
    earlier = read_shard(folder / shard.before)
    row_of = {identity: row for row, identity in enumerate(earlier.prompt_id.tolist())}
    rows = [row_of[int(prompts.prompt_id[place])] for place in shard.prompts.tolist()]
    return [continued(*earlier.sequence(row), piece) for row, piece in zip(rows, pieces)]


def continued(tokens: np.ndarray, answer: np.ndarray, piece: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """A conversation and the next turn. The piece begins with the end token of the answer before, which the teacher has
    usually written itself; an answer that was cut off gets it here."""
    if len(tokens) and len(piece) and tokens[-1] == piece[0] and answer[-1]:
        piece = piece[1:]
    return np.concatenate((tokens, piece)), np.concatenate((answer, np.zeros(len(piece), bool)))


def run_round(config: Config, folder: Path, teacher: Teacher, prompts: PreparedPrompts, shards: list[Shard]) -> None:
    """The given shards, as far as they are missing."""
    done = finished(folder)
    missing = [shard for shard in shards if shard.file not in done]
    if not missing:
        return
    collections = [Collection(config, prompts, shard, folder) for shard in missing]
    requests = [request for collection in collections for request in collection.requests()]
    for collection in collections:
        if collection.missing == 0:
            add_shard(folder, collection.shard, collection.sequences())
    if requests:
        answer_all(config, folder, teacher, requests, missing[0].round)
        torch.cuda.empty_cache()  # the next round needs a cache of another length, a training the whole memory


def answer_all(config: Config, folder: Path, teacher: Teacher, requests: list[Request], number: int) -> None:
    """One queue for all shards of a round, so that the slots stay full from one to the next."""
    settings = config.distil
    sampling = Sampling(settings.temperature, settings.top_p, any(not request.greedy for request in requests))
    longest = max(len(request.tokens) for request in requests)
    generator = Generator(teacher, min(settings.batch, len(requests)), longest, settings.max_new_tokens, sampling)
    progress, written, begin = Progress(f"distil: round {number}", len(requests)), 0, time.monotonic()
    for done, ((collection, i), answer) in enumerate(generator.answers(requests), 1):
        written += len(answer)
        collection.add(i, answer, teacher.eos_ids)
        if collection.missing == 0:
            add_shard(folder, collection.shard, collection.sequences())
            collection.histories = collection.answers = []  # written: the memory is free again
        progress.show(done, f"{written} tokens, {written / (time.monotonic() - begin):.0f} per second")
