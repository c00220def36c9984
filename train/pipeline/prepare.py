"""Step 1: prompts through the teacher's chat template to token ids, without anything the evaluation asks.

Writes WORK/prepared/prompts.npz:
  tokens int32          the token pieces of all prompts one after the other
  piece_offsets int64   where each piece begins; [pieces + 1]
  prompt_offsets int64  which pieces belong to each prompt; [prompts + 1]. Piece 0 is what stands before the first answer,
                        piece k what stands between answer k - 1 and answer k, beginning with the end token of the former
  prompt_id int32       the line of each prompt, counted over all files
  held_ids int32        prompts that nothing is trained on
  control_ids int32     control tokens of the teacher
and report.json: what was dropped and why.
"""

import hashlib
import json
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .config import Config, InputError, digest
from .files import read_arrays, read_json, sha256_of, write_json, write_packed_arrays
from .progress import Progress
from .teacher import source_hash
from .tokens import ChatTokenizer, load_chat_tokenizer

GRAM = 13  # words in a row that a training prompt may not share with an evaluation prompt
SHORTEST_GRAM = 5  # evaluation prompts with fewer words are only compared whole
EVALUATION_FIELDS = ("turns", "prompt", "reference", "canonical_solution")
CHUNK = 4096  # prompts tokenised in one call
LISTED = 500  # dropped prompts named in the report


@dataclass
class Prompt:
    id: int
    turns: list[str]


def main(config: Config) -> None:
    folder = config.folder / "prepared"
    made_from = fingerprint(config)
    if (folder / "report.json").exists() and read_json(folder / "report.json")["made_from"] == made_from:
        print(f"prepare: {folder} is up to date", flush=True)
        return
    prompts = read_prompts(config.prepare.prompts)
    kept, dropped = drop_overlaps(prompts, read_evaluation(config.prepare.evaluation))
    tokenizer = load_chat_tokenizer(config)
    pieces, kept = tokenise(tokenizer, kept, config, dropped)
    if not kept:
        reasons = ", ".join(sorted({entry["reason"] for entry in dropped})) or "there was none"
        raise InputError(f"{config.prepare.prompts[0]}: expected prompts that can be used, got none: {reasons}")
    held = choose_held([prompt.id for prompt in kept], config.prepare.held_aside, config.seed)
    (folder / "report.json").unlink(missing_ok=True)  # it stands for the prompts beside it: comes last, goes first
    save_prompts(folder / "prompts.npz", kept, pieces, held, tokenizer.control_ids)
    report = make_report(made_from, len(prompts), kept, pieces, held, dropped)
    write_json(folder / "report.json", report)
    reasons = ", ".join(f"{count} {reason}" for reason, count in report["dropped"].items()) or "none"
    print(
        f"prepare: {len(kept)} of {len(prompts)} prompts kept, {report['tokens']} tokens, {len(held)} held aside; "
        f"dropped: {reasons}; {report['followups_cut']} later turns cut off",
        flush=True,
    )


def fingerprint(config: Config) -> str:
    """Of everything the result depends on, by content: a moved file is the same file."""
    files = [sha256_of(existing(name)) for name in (*config.prepare.prompts, *config.prepare.evaluation)]
    numbers = [config.prepare.system, config.prepare.max_prompt_tokens, config.prepare.held_aside, config.seed]
    tokenizer = [sha256_of(file) for file in tokenizer_files(config)]
    return digest(files, numbers, source_hash(existing(config.teacher.path)), *tokenizer)


def tokenizer_files(config: Config) -> list[Path]:
    """Of tokenizer and chat template, where these are not in the file of the teacher's weights."""
    path = existing(config.teacher.tokenizer or config.teacher.path)
    if not path.is_dir():
        return [path] if config.teacher.tokenizer else []
    return sorted(file for file in path.iterdir() if file.suffix in (".json", ".jinja", ".model", ".txt"))


def existing(name: str) -> Path:
    path = Path(name)
    if not path.exists():
        raise InputError(f"{path}: no such file")
    return path


# Reading


def read_lines(path: Path) -> list[str]:
    """Split at "\\n" only: str.splitlines() would also cut at U+2028, which occurs inside JSON strings."""
    data = unpack(path) if path.suffix == ".zst" else path.read_bytes()
    return [line for line in data.decode("utf-8").split("\n") if line.strip()]


def unpack(path: Path) -> bytes:
    try:
        return subprocess.run(["zstd", "-dcq", str(path)], check=True, capture_output=True).stdout
    except FileNotFoundError as error:
        raise InputError(
            f"{path}: expected the program zstd to unpack it, got none; install the package zstd"
        ) from error
    except subprocess.CalledProcessError as error:
        raise InputError(f"{path}: expected zstd data, got {error.stderr.decode().strip()}") from error


def read_records(name: str) -> list[dict]:
    records = []
    for number, line in enumerate(read_lines(existing(name)), 1):
        try:
            records.append(json.loads(line))
        except ValueError as error:
            raise InputError(f"{name}:{number}: expected a JSON object, got {error}") from error
    return records


def read_prompts(names: list[str]) -> list[Prompt]:
    prompts = []
    for name in names:
        for number, record in enumerate(read_records(name), 1):
            turns = record.get("turns") if isinstance(record, dict) else None
            if not isinstance(turns, list) or not turns or not all(isinstance(turn, str) for turn in turns):
                raise InputError(f"{name}:{number}: turns: expected a list of strings, got {str(turns)[:80]}")
            prompts.append(Prompt(len(prompts), turns))
    return prompts


def read_evaluation(names: list[str]) -> list[str]:
    """Every text of the evaluation files that a prompt could give away."""
    texts = []
    for name in names:
        for record in read_records(name):
            for field in EVALUATION_FIELDS:
                value = record.get(field)
                texts += [value] if isinstance(value, str) else [text for text in value or [] if isinstance(text, str)]
    return texts


# Overlap


def words_of(text: str) -> list[str]:
    return re.findall(r"[a-z0-9]+", text.lower())


def grams(words: list[str], size: int):
    return (" ".join(words[i : i + size]) for i in range(len(words) - size + 1))


class Overlap:
    """Tells whether a text equals an evaluation text, or shares GRAM words in a row with one (all of its words, if shorter)."""

    def __init__(self, evaluation: list[str]):
        self.whole: set[str] = set()
        self.by_size: dict[int, set[str]] = {}
        for text in evaluation:
            words = words_of(text)
            if words:
                self.whole.add(" ".join(words))
            if len(words) >= SHORTEST_GRAM:
                size = min(GRAM, len(words))
                self.by_size.setdefault(size, set()).update(grams(words, size))

    def of(self, text: str) -> tuple[str, str] | None:
        """(reason, what is shared), or None."""
        words = words_of(text)
        joined = " ".join(words)
        if joined in self.whole:
            return "equal to an evaluation prompt", joined[:200]
        for size, known in self.by_size.items():
            shared = next((gram for gram in grams(words, size) if gram in known), None)
            if shared:
                return "overlaps an evaluation prompt", shared
        return None


def drop_overlaps(prompts: list[Prompt], evaluation: list[str]) -> tuple[list[Prompt], list[dict]]:
    """Prompts that share nothing with the evaluation and occur once; and the others, each with its reason."""
    overlap, seen, kept, dropped = Overlap(evaluation), set(), [], []
    progress = Progress("prepare: overlaps", len(prompts))
    for done, prompt in enumerate(prompts, 1):
        found = next(filter(None, map(overlap.of, prompt.turns)), None)
        key = tuple(prompt.turns)
        if found is None and key in seen:
            found = "repeats another prompt", prompt.turns[0][:200]
        if found:
            dropped.append({"id": prompt.id, "reason": found[0], "text": found[1]})
        else:
            seen.add(key)
            kept.append(prompt)
        progress.show(done)
    return kept, dropped


# Tokens


def tokenise(tokenizer: ChatTokenizer, prompts: list[Prompt], config: Config, dropped: list[dict]):
    """(pieces of each kept prompt, kept prompts). Prompts that cannot be used join `dropped`."""
    pieces, kept = [], []
    progress = Progress("prepare: tokens", len(prompts))
    for begin in range(0, len(prompts), CHUNK):
        chunk = []
        for prompt in prompts[begin : begin + CHUNK]:
            if any(map(tokenizer.mentions_control, prompt.turns)):
                dropped.append({"id": prompt.id, "reason": "spells a control token", "text": prompt.turns[0][:200]})
            else:
                chunk.append(prompt)
        for prompt, found in zip(chunk, encode_chunk(tokenizer, chunk, config.prepare.system)):
            usable = usable_pieces(found, config.prepare.max_prompt_tokens)
            if usable:
                pieces.append(usable)
                kept.append(prompt)
            else:
                dropped.append({"id": prompt.id, "reason": "too long", "text": f"{len(found[0])} tokens"})
        progress.show(min(begin + CHUNK, len(prompts)))
    return pieces, kept


def encode_chunk(tokenizer: ChatTokenizer, prompts: list[Prompt], system: str | None) -> list[list[list[int]]]:
    texts = [tokenizer.piece_texts(prompt.turns, system) for prompt in prompts]
    ids = iter(tokenizer.encode([piece for pieces in texts for piece in pieces]) if texts else [])
    return [[next(ids) for _ in pieces] for pieces in texts]


def usable_pieces(pieces: list[list[int]], longest: int) -> list[list[int]]:
    """The leading pieces of at most `longest` tokens: a conversation ends before a turn that is too long."""
    count = next((i for i, piece in enumerate(pieces) if len(piece) > longest), len(pieces))
    return pieces[:count]


def choose_held(ids: list[int], count: int, seed: int) -> list[int]:
    """The `count` prompts with the smallest hash: which ones does not depend on what else is in the files."""
    rank = {i: hashlib.sha256(f"{seed}/{i}".encode()).digest() for i in ids}
    return sorted(sorted(ids, key=rank.get)[:count])


def save_prompts(
    path: Path, prompts: list[Prompt], pieces: list[list[list[int]]], held: list[int], control: list[int]
) -> None:
    flat = [piece for found in pieces for piece in found]
    write_packed_arrays(
        path,
        tokens=np.fromiter((token for piece in flat for token in piece), np.int32),
        piece_offsets=np.cumsum([0] + [len(piece) for piece in flat], dtype=np.int64),
        prompt_offsets=np.cumsum([0] + [len(found) for found in pieces], dtype=np.int64),
        prompt_id=np.array([prompt.id for prompt in prompts], np.int32),
        held_ids=np.array(held, np.int32),
        control_ids=np.array(control, np.int32),
    )


def make_report(
    made_from: str, read: int, prompts: list[Prompt], pieces, held: list[int], dropped: list[dict]
) -> dict:
    counts: dict[str, int] = {}
    for entry in dropped:
        counts[entry["reason"]] = counts.get(entry["reason"], 0) + 1
    return {
        "made_from": made_from,
        "read": read,
        "kept": len(pieces),
        "with_followups": sum(len(found) > 1 for found in pieces),
        "tokens": sum(len(piece) for found in pieces for piece in found),
        "held_aside": len(held),
        "dropped": counts,
        "followups_cut": sum(len(prompt.turns) - len(found) for prompt, found in zip(prompts, pieces)),
        "dropped_prompts": dropped[:LISTED],
    }


@dataclass
class PreparedPrompts:
    """prompts.npz in memory."""

    tokens: np.ndarray
    piece_offsets: np.ndarray
    prompt_offsets: np.ndarray
    prompt_id: np.ndarray
    held_ids: np.ndarray
    control_ids: np.ndarray

    def __len__(self) -> int:
        return len(self.prompt_id)

    def pieces(self, i: int) -> int:
        return int(self.prompt_offsets[i + 1] - self.prompt_offsets[i])

    def piece(self, i: int, k: int) -> np.ndarray:
        """Piece k of prompt i, int32."""
        place = self.prompt_offsets[i] + k
        return self.tokens[self.piece_offsets[place] : self.piece_offsets[place + 1]]


def load_prompts(config: Config) -> PreparedPrompts:
    names = ("tokens", "piece_offsets", "prompt_offsets", "prompt_id", "held_ids", "control_ids")
    return PreparedPrompts(*read_arrays(config.folder / "prepared" / "prompts.npz", *names))
