#!/usr/bin/env python3
"""Espalier's speculation against llama.cpp's, on the same model, head and prompts, in one run.

usage: bench/peer_speculation.py ESPALIER MODEL.gguf HEAD-FOLDER LLAMA-FOLDER... [--prompts N] [--tokens N]

Each LLAMA-FOLDER holds llama-speculative-simple, llama-bench and their libraries. For every prompt, one right after the
other: Espalier with `--draft auto` and `--draft none`, and each folder's program with our EAGLE-3 head as its chain and with
its n-gram modes; llama-bench says how fast it decodes plainly, without any prompt. Greedy, two threads. Prints tokens per second
of the decoding (prompts are not counted) and, for each prompt, ours over the best of theirs. A setting that fails is shown
as failed and left out.
"""
import argparse
import json
import os
import re
import statistics
import subprocess
from pathlib import Path

DATA = Path(__file__).resolve().parent.parent / "data" / "eval"
CHAT = (
    "<|im_start|>system\nYou are a helpful AI assistant named SmolLM, trained by Hugging Face<|im_end|>\n"
    "<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
)


def prompts(count):
    """As many of MT-bench's first turns as of HumanEval, evenly spread."""
    lines = [(DATA / name).read_text().splitlines() for name in ("mt_bench.jsonl", "humaneval.jsonl")]
    chosen = []
    for records in lines:
        step = max(1, len(records) * 2 // count)
        chosen += [json.loads(line) for line in records[::step][: count // 2]]
    return [record["turns"][0] if "turns" in record else record["prompt"] for record in chosen]


def llama_modes(head):
    chain = ["--spec-type", "draft-eagle3", "-md", str(head)]
    return {
        "eagle3, chain of 3": [*chain, "--spec-draft-n-max", "3"],
        "eagle3, chain of 5": [*chain, "--spec-draft-n-max", "5"],
        "ngram-simple": ["--spec-type", "ngram-simple", "--spec-ngram-simple-size-n", "3"],
        "ngram-cache": ["--spec-type", "ngram-cache"],
    }


def espalier_speed(options, prompt, draft):
    command = [options.espalier, "generate", "-m", options.model, "--draft", draft, "--threads", "2", "--json"]
    run = subprocess.run([*command, "--max-tokens", str(options.tokens), prompt], capture_output=True, text=True)
    if run.returncode != 0:
        raise SystemExit(run.stderr.strip())
    return json.loads(run.stdout)["tokens_per_second"]


def llama_speed(options, folder, prompt, arguments):
    """None where the program fails: some of its modes and builds do."""
    command = [folder / "llama-speculative-simple", "-m", options.model, "-t", "2", "-c", "4096", "--temp", "0"]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    command += ["-n", str(options.tokens), "-p", CHAT.format(prompt), *arguments]
    try:
        run = subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment, timeout=60)
    except subprocess.TimeoutExpired:
        return None
    found = re.findall(r"decoded\s+\d+ tokens in\s+[\d.]+ seconds, speed:\s+([\d.]+)", run.stdout + run.stderr)
    return float(found[-1]) if found else None


def llama_plain_speed(options, folder):
    command = [folder / "llama-bench", "-m", options.model, "-t", "2", "-p", "0", "-n", "64", "-r", "1", "-o", "json"]
    environment = {**os.environ, "LD_LIBRARY_PATH": str(folder)}
    run = subprocess.run(command, capture_output=True, text=True, errors="replace", env=environment)
    return json.loads(run.stdout)[0]["avg_ts"] if run.returncode == 0 else None


def measure(options, prompt):
    speeds = {f"espalier --draft {draft}": espalier_speed(options, prompt, draft) for draft in ("auto", "none")}
    for folder in options.llama:
        speeds[f"{folder}: plain, without a prompt"] = llama_plain_speed(options, folder)
        for name, arguments in llama_modes(options.head / "head-q8_0.gguf").items():
            speeds[f"{folder}: {name}"] = llama_speed(options, folder, prompt, arguments)
    return speeds


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("espalier")
    parser.add_argument("model")
    parser.add_argument("head", type=Path)
    parser.add_argument("llama", type=Path, nargs="+")
    parser.add_argument("--prompts", type=int, default=8)
    parser.add_argument("--tokens", type=int, default=192)
    options = parser.parse_args()
    rows = []
    for prompt in prompts(options.prompts):
        rows.append(measure(options, prompt))
        theirs = {name: speed for name, speed in rows[-1].items() if speed and not name.startswith("espalier")}
        best = max(theirs, key=theirs.get)
        rows[-1]["ours over their best"] = rows[-1]["espalier --draft auto"] / theirs[best]
        print(f"{len(rows)}: {rows[-1]['ours over their best']:.2f}x of {best}", flush=True)
    for name in rows[0]:
        known = [row[name] for row in rows if row[name]]
        text = f"median {statistics.median(known):7.2f}  mean {statistics.mean(known):7.2f}" if known else "failed"
        print(f"{name:60} {text}  ({len(known)} of {len(rows)} prompts)")


if __name__ == "__main__":
    main()
