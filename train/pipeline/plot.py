"""Curves of a training as an SVG, drawn by hand: no library has to be there, and any browser shows it."""

import json
import math
from collections.abc import Sequence
from pathlib import Path

from .whole_files import written_whole

WIDTH, HEIGHT, MARGIN, GAP = 520, 320, 48, 40
COLOURS = ("#1b6ca8", "#d1495b", "#2e933c", "#8d5a97", "#c17817", "#3d8f8f", "#7a7a7a", "#a23b72")
PARTS = 40  # running means go over the 40th part of a curve: batches differ more than a hundred steps bring
TICKS = 4  # at least so many above zero


def write_curves(folder: Path) -> None:
    """metrics.jsonl -> curves.svg: the loss and the accuracy of every depth over the steps."""
    path = folder / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    if not rows:
        print(f"{path}: no metrics, no curves drawn", flush=True)
        return
    steps = [row["step"] for row in rows]
    window = max(1, len(rows) // PARTS)
    note = f", mean of {window} batches" if window > 1 else ""

    def by_depth(key: str) -> list[list[float]]:
        return [smoothed(curve, window) for curve in zip(*(row[key] for row in rows))]

    panels = panel(f"loss{note}", steps, by_depth("losses"), 0)
    panels += panel(f"accuracy of the best token{note}", steps, by_depth("accuracies"), WIDTH + GAP)
    size = f'width="{2 * WIDTH + GAP}" height="{HEIGHT}"'
    style = 'font-family="sans-serif" font-size="11"'
    with written_whole(folder / "curves.svg") as temporary:
        temporary.write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n{panels}</svg>\n', encoding="utf-8"
        )


def smoothed(values: Sequence[float], window: int) -> list[float]:
    """Means of the last `window` values at every place, of those that are finite; NaN where none is."""
    parts = ([v for v in values[max(end - window, 0) : end] if math.isfinite(v)] for end in range(1, len(values) + 1))
    return [sum(part) / len(part) if part else math.nan for part in parts]


def panel(title: str, steps: list[int], curves: list[list[float]], left: int) -> str:
    """One curve for each depth, in the same colours in every panel."""
    values = [value for curve in curves for value in curve if math.isfinite(value)] or [0.0]
    top, last = max(max(values), 1e-9), max(steps[-1], 1)
    right, floor = left + WIDTH - 70, HEIGHT - MARGIN

    def x(step: float) -> float:
        return left + MARGIN + (right - left - MARGIN) * step / last

    def y(value: float) -> float:
        return floor - (floor - MARGIN / 2) * max(value, 0.0) / top

    lines = [f'<text x="{left + MARGIN}" y="14">{title}</text>']
    for value in ticks(top):
        lines.append(f'<path d="M{x(0):.1f} {y(value):.1f}H{right}" stroke="#ddd"/>')
        lines.append(f'<text x="{left + MARGIN - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:g}</text>')
    lines += [f'<text x="{x(step):.1f}" y="{floor + 16}" text-anchor="middle">{step:g}</text>' for step in ticks(last)]
    lines.append(f'<text x="{(x(0) + right) / 2:.1f}" y="{floor + 34}" text-anchor="middle">steps</text>')
    for number, curve in enumerate(curves):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(f"{x(s):.1f},{y(v):.1f}" for s, v in zip(steps, curve) if math.isfinite(v))
        lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        lines.append(f'<text x="{right + 8}" y="{MARGIN + 14 * number}" fill="{colour}">depth {number + 1}</text>')
    return "\n".join(lines) + "\n"


def ticks(top: float) -> list[float]:
    """Multiples of 1, 2 or 5 times a power of ten, from zero to top."""
    power = 10.0 ** math.floor(math.log10(top / TICKS))
    step = max(factor * power for factor in (1, 2, 5) if factor * power * TICKS <= top * (1 + 1e-9))
    return [round(step * number, 12) for number in range(int(top / step * (1 + 1e-9)) + 1)]
