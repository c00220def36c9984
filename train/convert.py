#!/usr/bin/env python3
"""Turns a pickled checkpoint (.bin or .pt) into safetensors, which is what the engine reads.

  python train/convert.py PATH [--out FILE] [--force]

PATH is a .bin or .pt file, or a directory with one such file or with pytorch_model.bin.index.json and its shards.
The result lies beside it: model.safetensors for pytorch_model.bin, otherwise the same name with .safetensors.

A pickle can run code when it is read. This program only lets PyTorch read tensors (weights_only) and refuses anything
but a flat table of named tensors. The file is written under a temporary name and renamed, so nobody sees half a file.
"""

import argparse
import json
import os
import pickle
import re
import sys
import warnings
from pathlib import Path

from pipeline.whole_files import written_whole

SUFFIXES = (".bin", ".pt")
INDEX = "pytorch_model.bin.index.json"
WRAPPERS = ("state_dict", "model_state_dict")  # what trainers put around a table of tensors


class ConvertError(Exception):
    """One line for the user: where, what, expected, got."""


def sources(path):
    """The pickled files to read, in order."""
    if not path.exists():
        raise ConvertError(f"{path}: no such file or directory")
    if path.is_file():
        if path.suffix not in SUFFIXES:
            raise ConvertError(f"{path}: expected a .bin or .pt file, got {path.suffix or 'no suffix'}")
        return [path]
    if (path / INDEX).exists():
        return shards(path / INDEX)
    found = sorted(file for file in path.iterdir() if file.is_file() and file.suffix in SUFFIXES)
    if len(found) != 1:
        names = ", ".join(file.name for file in found) or "none"
        raise ConvertError(f"{path}: expected one .bin or .pt file, got {names}")
    return found


def shards(index):
    try:
        names = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConvertError(f"{index}: expected a JSON object with weight_map, got {error}") from error
    for name in names:
        if not isinstance(name, str) or Path(name).name != name or Path(name).suffix not in SUFFIXES:
            raise ConvertError(f"{index}: weight_map: expected names of .bin files in this folder, got {name!r}")
    return [index.parent / name for name in names]


def target(path, files):
    """Where the result goes when the user does not say."""
    if len(files) > 1 or files[0].name == "pytorch_model.bin":
        return files[0].parent / "model.safetensors"
    return files[0].with_suffix(".safetensors")


def read_tensors(file):
    """Name -> tensor. Nothing in the file is executed: PyTorch refuses whatever is not plain data and tensors."""
    import torch

    try:
        with warnings.catch_warnings(action="ignore"):
            content = torch.load(file, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ConvertError(
            f"{file}: expected nothing but tensors, got {unsafe_part(error)}; it was not read"
        ) from error
    except (OSError, EOFError, RuntimeError, ValueError, KeyError, AttributeError) as error:
        raise ConvertError(f"{file}: expected a PyTorch checkpoint, got {first_line(error)}") from error
    return checked(file, unwrapped(content))


def unsafe_part(error):
    """What PyTorch stumbled over. Its own message goes on to recommend a load that runs code; that is not passed on."""
    found = re.search(r"GLOBAL (\S+)", str(error))
    return f"a call of {found[1]}" if found else "another kind of pickle"


def first_line(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0] if lines else type(error).__name__


def unwrapped(content):
    if isinstance(content, dict) and len(content) == 1:
        (key,) = content
        if key in WRAPPERS:
            return content[key]
    return content


def checked(file, content):
    import torch

    if not isinstance(content, dict):
        raise ConvertError(f"{file}: expected a table of named tensors, got {type(content).__name__}")
    if not content:
        raise ConvertError(f"{file}: expected a table of named tensors, got an empty one")
    for name, value in content.items():
        if not isinstance(name, str):
            raise ConvertError(f"{file}: expected names that are text, got {name!r}")
        if not isinstance(value, torch.Tensor):
            raise ConvertError(f"{file}: {name}: expected a tensor, got {type(value).__name__}")
        if value.layout != torch.strided or value.is_quantized or value.is_complex():
            raise ConvertError(f"{file}: {name}: expected a plain dense tensor, got {value.layout} {value.dtype}")
    return content


def read_all(files):
    tensors = {}
    for file in files:
        for name, tensor in read_tensors(file).items():
            if name in tensors:
                raise ConvertError(f"{file}: {name}: expected each name in one file, got it twice")
            tensors[name] = tensor
    return tensors


def separate(tensors):
    """Each tensor with memory of its own: names that share memory (tied weights, views) are written out in full."""
    return {name: tensor.detach().clone().contiguous() for name, tensor in tensors.items()}


def write(tensors, out):
    from safetensors.torch import save_file

    with written_whole(out) as temporary:
        save_file(tensors, temporary, metadata={"format": "pt"})
        mask = os.umask(0)
        os.umask(mask)
        os.chmod(temporary, 0o666 & ~mask)  # safetensors makes files that only their owner may read


def convert(path, out=None, force=False):
    """Returns the file written and the number of tensors in it."""
    files = sources(path)
    out = out or target(path, files)
    if out.suffix != ".safetensors":
        raise ConvertError(f"{out}: expected a name that ends in .safetensors")
    if out.exists() and not force:
        raise ConvertError(f"{out}: exists already; --force replaces it")
    if not out.parent.is_dir():
        raise ConvertError(f"{out.parent}: no such directory")
    tensors = separate(read_all(files))
    try:
        write(tensors, out)
    except OSError as error:
        raise ConvertError(f"{out}: cannot write: {first_line(error)}") from error
    return out, len(tensors)


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("path", type=Path)
    parser.add_argument("--out", type=Path, help="the file to write")
    parser.add_argument("--force", action="store_true", help="replace a file that exists")
    options = parser.parse_args(arguments)
    try:
        out, count = convert(options.path, options.out, options.force)
    except ImportError as error:
        print(
            f"convert: {error.name} is missing; install it with: pip install -r train/requirements.txt", file=sys.stderr
        )
        return 1
    except ConvertError as error:
        print(f"convert: {error}", file=sys.stderr)
        return 1
    print(f"{out}: {count} tensors")
    return 0


if __name__ == "__main__":
    sys.exit(main())
