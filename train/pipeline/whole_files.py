"""Files that are there whole or not at all, even after a power cut: written under a name that nobody can guess and renamed.

Nothing but the standard library: train/convert.py uses it too. The names and the locks are those of the engine
(src/base/temporary_file.h), so that each removes what the other's killed processes have left.
"""

import contextlib
import fcntl
import os
import re
import secrets
import shutil
from pathlib import Path

LEFTOVER = re.compile(r".+\.[0-9a-f]{16}\.espalier-tmp", re.DOTALL)
LONGEST_STEM = 200  # so that the name is none too long where the target's is not


@contextlib.contextmanager
def written_whole(path: Path):
    """Yields a path of the target's name in a folder of its own; the target appears when the block ends without an error.

    A folder, because some writers replace the file that they are given instead of filling it.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    remove_leftovers(path.parent)
    folder, lock = make_locked_folder(path)
    try:
        temporary = folder / path.name
        yield temporary
        with open(temporary, "rb") as file:
            os.fsync(file.fileno())  # the content before the name: some file systems keep no order of their own
        os.replace(temporary, path)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def make_locked_folder(path: Path) -> tuple[Path, int]:
    """A new folder beside the path that is locked as long as its descriptor is open, so as long as this process lives."""
    stem = os.fsdecode(os.fsencode(path.name)[:LONGEST_STEM])
    while True:
        folder = path.with_name(f"{stem}.{secrets.token_hex(8)}.espalier-tmp")
        try:
            folder.mkdir(mode=0o700)
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW)
        except (FileExistsError, FileNotFoundError):
            if not path.parent.is_dir():
                raise
            continue  # the name was taken, or somebody who looked for leftovers took it for one
        with contextlib.suppress(OSError):  # a file system without locks has no leftovers removed either
            fcntl.flock(lock, fcntl.LOCK_EX)
        if os.fstat(lock).st_nlink > 0 and folder.exists():
            return folder, lock
        os.close(lock)


def remove_leftovers(folder: Path) -> None:
    """Removes what processes that are gone have left in this folder."""
    for entry in folder.iterdir():
        if LEFTOVER.fullmatch(entry.name):
            with contextlib.suppress(OSError):  # its process lives, or somebody else was faster
                remove_unlocked(entry)


def remove_unlocked(path: Path) -> None:
    lock = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
    finally:
        os.close(lock)
