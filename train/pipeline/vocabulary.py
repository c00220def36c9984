"""Step 3: which of the teacher's tokens a draft head can say: the most frequent of the distilled answers.

WORK/vocabulary/<hash>/ holds
  ids.npy      int64, ascending teacher ids of the draft vocabulary
  d2t.npy      int64, ids[i] - i: the offsets EAGLE-3 files store
  order.json   the same teacher ids, control tokens first, the others by falling frequency: a prefix of it is the best
               smaller vocabulary that still can end an answer
  report.json  coverage of the training and of the held-aside answers for several sizes
The hash is that of all it is made from: the distilled data, the prompts held aside, the control tokens and the size. So a
vocabulary is made once and found again.
"""

from dataclasses import dataclass
from pathlib import Path

import numpy as np

from .config import Config, InputError, digest
from .data import Sequences, load_sequences
from .files import read_arrays, read_json, write_json
from .prepare import load_prompts
from .teacher import teacher_of
from .whole_files import written_whole

TABLE = (1024, 2048, 4096, 8192, 12288, 16384, 24576, 32768, 49152, 65536)


@dataclass
class Vocabulary:
    ids: np.ndarray  # int64, ascending
    order: np.ndarray  # int64, the same ids: control tokens, then the others by falling frequency

    @property
    def d2t(self) -> np.ndarray:
        return self.ids - np.arange(len(self.ids))


def vocabulary_folder(config: Config) -> Path:
    shards = read_json(config.folder / "distilled" / "manifest.json")["shards"]
    hashes = {name: entry["sha256"] for name, entry in shards.items()}
    parts = read_arrays(config.folder / "prepared" / "prompts.npz", "held_ids", "control_ids")
    return config.folder / "vocabulary" / digest(hashes, config.vocabulary.size, *(part.tolist() for part in parts))


def load_vocabulary(config: Config) -> Vocabulary:
    folder = vocabulary_folder(config)
    if not (folder / "report.json").exists():
        raise InputError(f"{folder}: no vocabulary for this data and size yet; run the step vocabulary")
    return Vocabulary(
        np.load(folder / "ids.npy", allow_pickle=False), np.array(read_json(folder / "order.json"), np.int64)
    )


def whole_order(config: Config, size: int) -> np.ndarray:
    """All of the teacher's `size` tokens in the order of order.json, for heads that can say any of them."""
    (control_ids,) = read_arrays(config.folder / "prepared" / "prompts.npz", "control_ids")
    return choose(token_counts(load_sequences(config, "train"), size), control_ids, size).order


def main(config: Config) -> None:
    folder = vocabulary_folder(config)
    if (folder / "report.json").exists():
        print(f"vocabulary: {folder} is up to date", flush=True)
        print_coverage(read_json(folder / "report.json"))
        return
    size = teacher_of(config).vocab
    counts, held_counts = (token_counts(load_sequences(config, split), size) for split in ("train", "held"))
    vocabulary = choose(counts, load_prompts(config).control_ids, config.vocabulary.size)
    save_array(folder / "ids.npy", vocabulary.ids)
    save_array(folder / "d2t.npy", vocabulary.d2t)
    write_json(folder / "order.json", vocabulary.order.tolist())
    report = make_report(counts, held_counts, vocabulary)
    write_json(folder / "report.json", report)
    print_coverage(report)


def token_counts(sequences: Sequences, size: int) -> np.ndarray:
    """How often the teacher wrote each token."""
    written = sequences.tokens[sequences.answer]
    if len(written) and int(written.max()) >= size:
        raise InputError(
            f"distilled data: expected tokens below {size}, got {int(written.max())}; it is from another teacher"
        )
    return np.bincount(written, minlength=size)


def choose(counts: np.ndarray, control_ids: np.ndarray, size: int) -> Vocabulary:
    """The `size` most frequent tokens, control tokens always among them; equally frequent ones by id."""
    size = min(size, len(counts))
    control = np.unique(control_ids[control_ids < len(counts)])
    if len(control) > size:
        raise InputError(f"vocabulary.size: expected at least the {len(control)} control tokens, got {size}")
    by_frequency = np.argsort(-counts, kind="stable")
    others = by_frequency[~np.isin(by_frequency, control)][: size - len(control)]
    order = np.concatenate((control, others))
    return Vocabulary(np.sort(order), order)


def make_report(counts: np.ndarray, held: np.ndarray, vocabulary: Vocabulary) -> dict:
    """Coverage of the whole vocabulary cut down to several sizes: share of written tokens that can be drafted."""
    by_frequency = np.argsort(-counts, kind="stable")
    sizes = sorted({size for size in TABLE if size < len(counts)} | {len(vocabulary.ids), len(counts)})
    table = [
        {"size": size, "train": share(counts, by_frequency[:size]), "held": share(held, by_frequency[:size])}
        for size in sizes
    ]
    return {
        "size": len(vocabulary.ids),
        "answer_tokens": int(counts.sum()),
        "distinct": int((counts > 0).sum()),
        "coverage": table,
    }


def share(counts: np.ndarray, ids: np.ndarray) -> float | None:
    total = int(counts.sum())
    return round(float(counts[ids].sum()) / total, 5) if total else None


def print_coverage(report: dict) -> None:
    print(
        f"vocabulary: {report['size']} entries; the teacher wrote {report['answer_tokens']} tokens, {report['distinct']} distinct"
    )
    print("vocabulary:    size   train    held")
    for row in report["coverage"]:
        train, held = (f"{100 * row[key]:6.2f}%" if row[key] is not None else "      -" for key in ("train", "held"))
        print(f"vocabulary:  {row['size']:6d} {train} {held}", flush=True)


def save_array(path: Path, array: np.ndarray) -> None:
    with written_whole(path) as temporary, open(temporary, "wb") as file:
        np.save(file, array)
