"""Curves of a training as an SVG, drawn by hand: no library has to be there, and any browser shows it."""

import json
import math
from pathlib import Path

from .files import written_whole

WIDTH, HEIGHT, MARGIN, GAP = 520, 320, 48, 40
COLOURS = ("#1b6ca8", "#d1495b", "#2e933c", "#8d5a97", "#c17817", "#3d8f8f", "#7a7a7a", "#a23b72")


def write_curves(folder: Path) -> None:
    """metrics.jsonl -> curves.svg: the loss and the accuracy of every depth over the steps."""
    path = folder / "metrics.jsonl"
    rows = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    if not rows:
        print(f"{path}: no metrics, no curves drawn", flush=True)
        return
    steps = [row["step"] for row in rows]
    loss = {"all": [row["loss"] for row in rows]}
    loss |= {f"depth {d + 1}": [row["losses"][d] for row in rows] for d in range(len(rows[0]["losses"]))}
    accuracy = {f"depth {d + 1}": [row["accuracies"][d] for row in rows] for d in range(len(rows[0]["accuracies"]))}
    panels = panel("loss", steps, loss, 0) + panel("accuracy of the best token", steps, accuracy, WIDTH + GAP)
    size = f'width="{2 * WIDTH + GAP}" height="{HEIGHT}"'
    style = 'font-family="sans-serif" font-size="11"'
    with written_whole(folder / "curves.svg") as temporary:
        temporary.write_text(
            f'<svg xmlns="http://www.w3.org/2000/svg" {size} {style}>\n{panels}</svg>\n', encoding="utf-8"
        )


def panel(title: str, steps: list[int], curves: dict[str, list[float]], left: int) -> str:
    values = [value for curve in curves.values() for value in curve if math.isfinite(value)] or [0.0]
    top = max(max(values), 1e-9)
    right, floor = left + WIDTH - 70, HEIGHT - MARGIN

    def x(step: int) -> float:
        return left + MARGIN + (right - left - MARGIN) * step / max(steps[-1], 1)

    def y(value: float) -> float:
        return floor - (floor - MARGIN / 2) * max(value, 0.0) / top

    lines = [f'<text x="{left + MARGIN}" y="14">{title}</text>']
    for tick in range(5):
        value, step = top * tick / 4, steps[-1] * tick // 4
        lines.append(f'<path d="M{x(0):.1f} {y(value):.1f}H{right}" stroke="#ddd"/>')
        lines.append(f'<text x="{left + MARGIN - 6}" y="{y(value) + 4:.1f}" text-anchor="end">{value:.2g}</text>')
        lines.append(f'<text x="{x(step):.1f}" y="{floor + 16}" text-anchor="middle">{step}</text>')
    for number, (name, curve) in enumerate(curves.items()):
        colour = COLOURS[number % len(COLOURS)]
        points = " ".join(f"{x(s):.1f},{y(v):.1f}" for s, v in zip(steps, curve) if math.isfinite(v))
        lines.append(f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="1.5"/>')
        lines.append(f'<text x="{right + 8}" y="{MARGIN + 14 * number}" fill="{colour}">{name}</text>')
    return "\n".join(lines) + "\n"
