#!/usr/bin/env python3
"""Runs steps of the training pipeline.

  python train/run.py CONFIG.toml [--variant NAME] [--set section.key=value ...] STEP [STEP ...]

STEP is one of prepare, distil, vocabulary, train-eagle3, train-eagle2, train-medusa, export, simulate, trees, or "all"
for all of them in this order but train-eagle2, whose head is there for comparison and has to be named as well. Every
step reads what the ones before it left in the work folder, and leaves finished work alone, so that a run that was
stopped is started again with the same command. distil and the trainings use several GPUs under torchrun; the others are
quick and run in one process.

--set changes what the configuration says; with --variant, heads trained so go to WORK/variants/NAME and what is in WORK
stays as it is.
"""

import argparse
import importlib
import os
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))

from pipeline.config import Config, InputError, read_config

STEPS = {  # name: (module, further arguments of main, whether torchrun may start several)
    "prepare": ("prepare", (), False),
    "distil": ("distil", (), True),
    "vocabulary": ("vocabulary", (), False),
    "train-eagle3": ("trainer", ("eagle3",), True),
    "train-eagle2": ("trainer", ("eagle2",), True),
    "train-medusa": ("trainer", ("medusa",), True),
    "export": ("export", (), False),
    "simulate": ("simulate", (), False),
    "trees": ("trees", (), False),
}
NOT_IN_ALL = ("train-eagle2",)


def wanted_steps(names: list[str]) -> list[str]:
    for name in names:
        if name not in STEPS and name != "all":
            raise InputError(f"step: expected one of {', '.join(STEPS)} or all, got {name!r}")
    return [step for step in STEPS if step in names or step not in NOT_IN_ALL] if "all" in names else names


def run_step(name: str, config: Config) -> bool:
    """Whether the step has come to its end: a training may have stopped by the clock."""
    module, arguments, parallel = STEPS[name]
    world = int(os.environ.get("WORLD_SIZE", "1"))
    if world > 1 and not parallel:
        raise InputError(f"{name}: expected one process, got {world}; run this step without torchrun")
    begin = time.monotonic()
    ended = importlib.import_module(f"pipeline.{module}").main(config, *arguments) is not False
    print(f"{name}: {'done' if ended else 'stopped'} in {time.monotonic() - begin:.0f} s", flush=True)
    return ended


def run_steps(names: list[str], config: Config) -> None:
    """One after the other; nothing is made of what is only half trained."""
    for i, name in enumerate(names, 1):
        if not run_step(name, config) and names[i:]:
            left = ", ".join(names[i:])
            raise InputError(f"{name}: stopped by its time limit; call again to go on: {left} did not run")


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("config", metavar="CONFIG.toml")
    parser.add_argument("steps", metavar="STEP", nargs="+")
    parser.add_argument("--variant", metavar="NAME", default="")
    parser.add_argument("--set", metavar="KEY=VALUE", action="append", default=[], dest="settings")
    options = parser.parse_intermixed_args(arguments)
    try:
        settings = [*options.settings, f'variant="{options.variant}"'] if options.variant else options.settings
        config = read_config(Path(options.config), settings)
        run_steps(wanted_steps(options.steps), config)
    except InputError as error:
        print(f"run.py: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
