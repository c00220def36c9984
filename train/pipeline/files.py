"""JSON, arrays and digests in files."""

import hashlib
import json
import zipfile
from pathlib import Path

import numpy as np

from .config import InputError
from .whole_files import written_whole


def write_json(path: Path, content) -> None:
    with written_whole(path) as temporary:
        temporary.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


def read_json(path: Path):
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path}: expected JSON, got {error}") from error


def write_arrays(path: Path, **arrays: np.ndarray) -> None:
    with written_whole(path) as temporary, open(temporary, "wb") as file:
        np.savez(file, **arrays)


def write_packed_arrays(path: Path, **arrays: np.ndarray) -> None:
    """The same, slower and smaller: for files that travel from machine to machine."""
    with written_whole(path) as temporary, open(temporary, "wb") as file:
        np.savez_compressed(file, **arrays)


def read_arrays(path: Path, *names: str) -> list[np.ndarray]:
    """The named arrays of a .npz file. Pickles are refused: a data file runs no code."""
    try:
        with np.load(path, allow_pickle=False) as file:
            return [file[name] for name in names]
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (KeyError, ValueError, EOFError, zipfile.BadZipFile) as error:
        raise InputError(f"{path}: expected the arrays {', '.join(names)}, got {error}") from error


def sha256_of(path: Path) -> str:
    with open(path, "rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
