#!/usr/bin/env python3
"""How many cycles the innermost loops of a function take, as llvm-mca models Arm processors; memory is a cache that always hits.

usage: bench/arm_loops.py OBJECT-OR-PROGRAM FUNCTION [--cpu neoverse-n1,...] [--shortest 20] [--mca llvm-mca-19]

FUNCTION is a regular expression over demangled names. Printed for each loop: its address, its instructions, and cycles per pass
for each processor. Branches inside a loop are taken to fall through and calls are left out, so only straight loops are told
rightly. LLVM models the Neoverse cores themselves from release 19 on; older ones use the figures of Cortex-A57 for them.
"""
import argparse
import re
import shutil
import subprocess
import sys

PASSES = 200
BRANCH = re.compile(r"^(b|b\..*|bl|cbn?z|tbn?z|ret|br|blr)$")


def fail(message):
    sys.exit(f"arm_loops: {message}")


def functions(path):
    """Name and [(address, mnemonic, operands)] of each function."""
    run = subprocess.run(["aarch64-linux-gnu-objdump", "-d", "-C", "--no-show-raw-insn", path], capture_output=True, text=True)
    if run.returncode != 0:
        fail(run.stderr.strip())
    for text in re.split(r"\n(?=[0-9a-f]+ <)", run.stdout):
        head = re.match(r"[0-9a-f]+ <(.*)>:\n", text)
        if head:
            code = re.findall(r"^ +([0-9a-f]+):\t(\S+)[ \t]*(.*)$", text, re.M)
            yield head.group(1), [(int(address, 16), name, operands) for address, name, operands in code]


def loops(code):
    """Stretches that a branch closes and that hold no other loop."""
    index = {address: i for i, (address, _, _) in enumerate(code)}
    found = []
    for end, (_, name, operands) in enumerate(code):
        target = re.search(r"\b([0-9a-f]+) <", operands)
        if BRANCH.match(name) and name != "bl" and target and index.get(int(target.group(1), 16), end + 1) <= end:
            found.append((index[int(target.group(1), 16)], end))
    inner = [(b, e) for b, e in found if not any((c, f) != (b, e) and b <= c and f <= e for c, f in found)]
    return [code[begin : end + 1] for begin, end in inner]


def cycles(options, cpu, loop):
    lines = [f"{name} {operands.split('//')[0]}" for _, name, operands in loop if not BRANCH.match(name)]
    command = [options.mca, "-mtriple=aarch64", f"-mcpu={cpu}", "-mattr=+dotprod,+i8mm,+fullfp16", f"-iterations={PASSES}"]
    lines = [re.sub(r" <.*>", "", line) for line in lines]
    run = subprocess.run(command, input="\n".join(lines), capture_output=True, text=True)
    total = re.search(r"Total Cycles:\s+(\d+)", run.stdout)
    if total is None:
        fail(f"{options.mca}: {run.stderr.strip().splitlines()[0]}")
    return int(total.group(1)) / PASSES


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("object")
    parser.add_argument("function")
    parser.add_argument("--cpu", default="neoverse-n1,neoverse-n2,neoverse-v1,neoverse-v2")
    parser.add_argument("--shortest", type=int, default=20, help="loops of fewer instructions are left out")
    parser.add_argument("--mca", default="llvm-mca-19")
    options = parser.parse_args()
    for program in ("aarch64-linux-gnu-objdump", options.mca):
        if shutil.which(program) is None:
            fail(f"{program}: not found")
    for name, code in functions(options.object):
        if not re.search(options.function, name):
            continue
        for loop in loops(code):
            if len(loop) >= options.shortest:
                figures = "  ".join(f"{cpu} {cycles(options, cpu, loop):.1f}" for cpu in options.cpu.split(","))
                print(f"{name[:100]}\n  {loop[0][0]:#x}: {len(loop)} instructions, {figures} cycles")


if __name__ == "__main__":
    main()
