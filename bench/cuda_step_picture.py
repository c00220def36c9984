#!/usr/bin/env python3
"""Where the time of a step and of a round goes on a GPU, as a picture.

usage: bench/cuda_step_picture.py PLAIN.csv ROUND.csv > docs/cuda-step.svg

Both files are what Nsight Compute says of a run of the default model (docs/cuda.md has the commands): every kernel with
its time, warm caches, one after the other. In a recorded step kernels overlap, so the sums are larger than a step.
"""
import argparse
import csv
import re
import sys
from xml.sax.saxutils import escape

# Kernels by what they are for, in the order and the colours of the picture. The first name that a kernel begins with counts.
FAMILIES = {
    "linears": ("#4477aa", ["few_rows", "many_rows", "float_"]),
    "attention": ("#ee6677", ["attention"]),
    "norms, inputs quantised": ("#228833", ["norm_quantise", "rms_norm", "quantise"]),
    "swiglu": ("#ccbb44", ["swiglu"]),
    "rotation, keys and values written": ("#66ccee", ["rotate", "kv_"]),
    "gathers, embeddings": ("#bbbbbb", ["gather", "embed", "scatter"]),
    "choices, trees, paths": ("#aa3377", ["top_k", "argmax", "rank_", "grow_", "place_", "choose_", "walk_", "list_"]),
}
# A layer of the model: what each of its nine kernels computes.
LAYER = ["norm", "q, k, v", "rotate", "attention", "o", "norm", "gate, up", "swiglu", "down"]
DARK = {"#4477aa", "#228833", "#aa3377"}  # words on these are white
WIDTH, LEFT, BAR = 920, 20, 34


def kernels(path):
    """Name and microseconds of every kernel, in order."""
    with open(path, newline="") as file:
        rows = list(csv.reader(line for line in file if line.startswith('"')))
    if len(rows) < 3 or "Kernel Name" not in rows[0]:
        sys.exit(f"{path}: expected what ncu --csv --page raw prints, got {len(rows)} rows")
    name, time = rows[0].index("Kernel Name"), rows[0].index("gpu__time_duration.sum")
    scale = {"ns": 1e-3, "us": 1.0, "usecond": 1.0, "nsecond": 1e-3}[rows[1][time]]
    plain = lambda text: re.sub(r"[<(].*", "", text.removeprefix("void ")).split("::")[-1].strip()
    return [(plain(row[name]), float(row[time].replace(",", "")) * scale) for row in rows[2:]]


def between(found, last):
    """The kernels from behind one that ends a step or a round to the next one."""
    ends = [i for i, (name, _) in enumerate(found) if name.startswith(last)]
    if len(ends) < 2:
        sys.exit(f"expected two kernels {last}, got {len(ends)}: let ncu count more launches")
    return found[ends[0] + 1 : ends[1] + 1]


def family(name):
    return next((label for label, (_, names) in FAMILIES.items() if name.startswith(tuple(names))), None) or sys.exit(
        f"{name}: a kernel of no family")


def one_layer(step):
    """The mean times of a layer's nine kernels. Behind the embedding come the layers, then norm, head and choice."""
    first = next(i for i, (name, _) in enumerate(step) if name.startswith("norm"))
    layers = (len(step) - first) // len(LAYER)
    times = [[time for _, time in step[first + i : first + layers * len(LAYER) : len(LAYER)]] for i in range(len(LAYER))]
    names = [step[first + i][0] for i in range(len(LAYER))]
    return layers, [(label, family(name), sum(of) / len(of)) for label, name, of in zip(LAYER, names, times)]


def text(x, y, words, more=""):
    return f'<text x="{x:.1f}" y="{y:.1f}" {more}>{escape(words)}</text>'


def bar(y, parts, scale):
    """Parts are (words, family, microseconds); words are left out where they have no room."""
    drawn, x = [], float(LEFT)
    for words, of, time in parts:
        width = time * scale
        drawn.append(f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{FAMILIES[of][0]}" stroke="white">'
                     f"<title>{escape(words)}: {time:.1f} us</title></rect>")
        if width > 5.6 * len(words) + 4:
            colour = "white" if FAMILIES[of][0] in DARK else "black"
            drawn.append(text(x + width / 2, y + BAR / 2 + 4, words, f'text-anchor="middle" fill="{colour}" font-size="11"'))
        x += width
    return drawn


def by_family(found):
    sums = {label: sum(time for name, time in found if family(name) == label) for label in FAMILIES}
    return [(f"{time:.0f}", label, time) for label, time in sums.items() if time > 0]


def main():
    parser = argparse.ArgumentParser(description="Draw where the time of a step and of a round goes.")
    parser.add_argument("plain")
    parser.add_argument("round")
    files = parser.parse_args()
    step = between(kernels(files.plain), "top_k")
    whole_round = between(kernels(files.round), "list_moves")
    layers, layer = one_layer(step)
    total = lambda parts: sum(time for _, _, time in parts)
    bars = [(f"One of {layers} layers, one row: {total(layer):.1f} us in {len(layer)} kernels",
             [(f"{label} {time:.1f}", of, time) for label, of, time in layer]),
            (f"A plain step: {total(by_family(step)):,.0f} us in {len(step)} kernels", by_family(step)),
            (f"A round of 16 rows and six levels: {total(by_family(whole_round)):,.0f} us in {len(whole_round)} kernels",
             by_family(whole_round))]
    room = WIDTH - 2 * LEFT
    longest = max(total(parts) for _, parts in bars[1:])
    drawn, y = [], 20
    for i, (title, parts) in enumerate(bars):
        drawn.append(text(LEFT, y, title, 'font-weight="bold"'))
        drawn += bar(y + 8, parts, room / (total(parts) if i == 0 else longest))
        y += BAR + 34
    for i, (label, (colour, _)) in enumerate(FAMILIES.items()):
        x, line = LEFT + i % 3 * 300, y + i // 3 * 20
        drawn += [f'<rect x="{x}" y="{line - 10}" width="12" height="12" fill="{colour}"/>', text(x + 18, line, label)]
    print(f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{y + 56}" font-family="sans-serif" font-size="13">')
    print('<rect width="100%" height="100%" fill="white"/>')
    print("\n".join(drawn))
    print("</svg>")


if __name__ == "__main__":
    main()
