#!/usr/bin/env python3
"""How many instructions a step takes on Arm, Espalier's and llama.cpp's, counted in emulation on any machine.

usage: bench/arm_instructions.py ESPALIER LLAMA-BENCH... -m MODEL.gguf [--cpu NAME] [--isa NAME] [--rows 8,16,32] [--prompt 128]

ESPALIER is build-arm/bin/espalier (`scripts/arm-sysroot build-arm/sysroot`, `cmake --preset arm`, `cmake --build --preset arm
--target espalier`), each LLAMA-BENCH a statically linked llama-bench for Arm with its symbols. Both run on one thread under
qemu-aarch64 with bench/instruction_count.c, which reports what was executed between calls of the function that computes a
step. Printed for each program: a prompt of so many tokens, steps of so many rows behind it, and one token of plain
decoding there; instructions in millions, by kind, bytes loaded, and the others' instructions over ours.
"""
import argparse
import json
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

SOURCE = Path(__file__).resolve().parent / "instruction_count.c"
KINDS = ("dot", "matrix", "vector", "load", "store", "prefetch", "branch", "other", "sve")
PREFILL_ROWS = 64  # of one step of Espalier's prefill
TOKENS = 4  # of an answer; the first comes with the prompt


def fail(message):
    sys.exit(f"arm_instructions: {message}")


class Emulator:
    """qemu with the plugin, which it compiles."""

    def __init__(self, options, folder):
        for program in ("qemu-aarch64", "cc", "nm"):
            if shutil.which(program) is None:
                fail(f"{program}: not found, expected qemu-user and a compiler to be installed")
        self.options, self.folder = options, Path(folder)
        self.plugin = self.folder / "instruction_count.so"
        subprocess.run(["cc", "-O2", "-shared", "-fPIC", "-o", self.plugin, SOURCE], check=True)

    def run(self, program, marks, arguments):
        """The stretches between calls of the marked functions, and what the program printed."""
        counts = self.folder / "counts.jsonl"
        plugin = ",".join([str(self.plugin), f"out={counts}", *(f"mark={mark}" for mark in marks)])
        command = ["qemu-aarch64", "-cpu", self.options.cpu, "-L", self.options.sysroot, "-d", "plugin"]
        command += ["-D", self.folder / "qemu.log", "-plugin", plugin, program, *arguments]
        run = subprocess.run(command, capture_output=True, text=True, errors="replace")
        if run.returncode != 0:
            fail(f"{program}: exit code {run.returncode}: {(run.stderr.strip().splitlines() or ['no message'])[-1]}")
        return [json.loads(line) for line in counts.read_text().splitlines()], run.stdout


def symbol(program, prefix):
    """The one function of the program whose mangled name begins like this."""
    lines = subprocess.run(["nm", program], capture_output=True, text=True).stdout.splitlines()
    found = [name for _, kind, name in (line.rsplit(" ", 2) for line in lines) if kind == "T" and name.startswith(prefix)]
    if len(found) != 1:
        fail(f"{program}: expected one function {prefix}*, found {len(found)} (stripped?)")
    return found[0]


def total(stretches):
    return {kind: sum(stretch[kind] for stretch in stretches) for kind in (*KINDS, "loaded_bytes")}


def mean(stretches):
    return {kind: value / len(stretches) for kind, value in total(stretches).items()}


def expect_count(program, stretches, expected):
    if len(stretches) != expected:
        fail(f"{program}: expected {expected} steps, counted {len(stretches)}")


def espalier_steps(emulator, prompt):
    """What each step of an answer to so many tokens executed, up to the next one."""
    options = emulator.options
    forward = symbol(options.espalier, "_ZNK8espalier11Transformer7forward")
    arguments = ["generate", "-m", options.model, "--draft", "none", "--threads", "1", "--raw", "--json", "--context", "1024"]
    arguments += ["--isa", options.isa] if options.isa else []
    arguments += ["--max-tokens", str(TOKENS), "the" + " the" * (prompt - 1)]
    stretches, output = emulator.run(options.espalier, [forward], arguments)
    counted = json.loads(output)["prompt_tokens"]
    if counted != prompt:
        fail(f"{options.model}: expected a prompt of {prompt} tokens, got {counted}")
    expect_count(options.espalier, stretches[1:], -(-prompt // PREFILL_ROWS) + TOKENS - 1)
    return stretches[1:]


def espalier_figures(emulator, rows, prompt):
    """One run for each number of rows; the prompt and the plain tokens are those of the first."""
    parts = prompt // PREFILL_ROWS
    runs = {count: espalier_steps(emulator, prompt + count) for count in rows}
    first = runs[rows[0]]
    figures = {f"prompt of {prompt}": total(first[:parts])}
    figures |= {f"{count} rows": steps[parts] for count, steps in runs.items()}
    return figures | {"one token": mean(first[parts + 1 : -1])}  # the last stretch holds the end of the program


def llama_figures(emulator, program, rows, prompt):
    """Every step lies between llama_decode and llama_synchronize; the prompt that others stand behind is computed once."""
    arguments = ["-m", emulator.options.model, "-t", "1", "-r", "1", "--no-warmup", "-o", "json"]
    arguments += ["-p", ",".join(map(str, rows)), "-n", str(TOKENS), "-d", str(prompt)]
    stretches, _ = emulator.run(program, ["llama_decode", "llama_synchronize"], arguments)
    steps = [
        after
        for before, after in zip(stretches, stretches[1:])
        if (before["until"], after["until"]) == ("llama_decode", "llama_synchronize")
    ]
    expect_count(program, steps, 1 + len(rows) + TOKENS)
    figures = {f"prompt of {prompt}": steps[0]}
    figures |= {f"{count} rows": step for count, step in zip(rows, steps[1:])}
    return figures | {"one token": mean(steps[-TOKENS + 1 :])}


def instructions(figure):
    return sum(figure[kind] for kind in KINDS)


def print_table(programs):
    print("| step | program | instructions, 10^6 | dot | matrix | other vector | load | store | rest | loaded, MB | theirs : ours |")
    print("|---|---|---|---|---|---|---|---|---|---|---|")
    ours = next(iter(programs.values()))
    for step in ours:
        for program, figures in programs.items():
            figure = figures[step]
            rest = sum(figure[kind] for kind in ("prefetch", "branch", "other", "sve"))
            kinds = [figure[kind] for kind in ("dot", "matrix", "vector", "load", "store")] + [rest]
            cells = [f"{value / 1e6:.1f}" for value in (instructions(figure), *kinds, figure["loaded_bytes"])]
            ratio = "" if figures is ours else f"{instructions(figure) / instructions(ours[step]):.2f}"
            print(f"| {step} | {program} | {' | '.join(cells)} | {ratio} |")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("espalier")
    parser.add_argument("llama", nargs="*")
    parser.add_argument("-m", "--model", required=True)
    parser.add_argument("--sysroot", default="build-arm/sysroot")
    parser.add_argument("--cpu", default="cortex-a76", help="as qemu names it; max,sve=off,sme=off has i8mm")
    parser.add_argument("--isa", help="Espalier's instruction set; without it the best that the processor has")
    parser.add_argument("--rows", default="8,16,32")
    parser.add_argument("--prompt", type=int, default=128, help=f"a multiple of {PREFILL_ROWS}")
    options = parser.parse_args()
    for path in (options.espalier, *options.llama, options.model, options.sysroot):
        if not Path(path).exists():
            fail(f"{path}: not found")
    if options.prompt % PREFILL_ROWS:
        fail(f"--prompt: expected a multiple of {PREFILL_ROWS}, got {options.prompt}")
    rows = [int(count) for count in options.rows.split(",")]
    with tempfile.TemporaryDirectory() as folder:
        emulator = Emulator(options, folder)
        programs = {"espalier": espalier_figures(emulator, rows, options.prompt)}
        for program in options.llama:
            programs[program] = llama_figures(emulator, program, rows, options.prompt)
    print_table(programs)


if __name__ == "__main__":
    main()
