"""The model card beside exported weights: what was trained, from what, how, how well, and under which licence."""

import dataclasses
import json
from pathlib import Path

from .config import Config
from .files import read_json, written_whole

STEPS = ("prepare", "distil", "vocabulary", "train-{}", "export", "simulate", "trees")
TITLES = {"eagle3": "EAGLE-3 head", "medusa": "Medusa heads"}
LICENCE = "Apache-2.0, as the teacher and the code that trained them; the training prompts keep their own terms."


def write_card(config: Config, kind: str, out: Path, teacher_name: str, teacher_sha256: str) -> None:
    """README.md. Written by `export`, and again by `simulate`, when there are figures."""
    parts = [
        f"# {TITLES[kind]} for {teacher_name}\n",
        "Drafts tokens for speculative decoding with Espalier. The text stays the teacher's, whatever it guesses.\n",
        table(
            {"teacher": teacher_name, "SHA-256 of the teacher": f"`{teacher_sha256}`"}
            | data_facts(config)
            | training_facts(config, kind)
        ),
        f"## Recipe\n\n{table(recipe(config, kind))}",
        f"## Command\n\n```\npython train/run.py CONFIG.toml {' '.join(STEPS).format(kind)}\n```\n",
        figures(config, kind),
        f"## Licence\n\n{LICENCE}\n",
    ]
    with written_whole(out / "README.md") as temporary:
        temporary.write_text("\n".join(part for part in parts if part), encoding="utf-8")


def table(facts: dict) -> str:
    return "| | |\n|---|---|\n" + "".join(f"| {name} | {value} |\n" for name, value in facts.items())


def data_facts(config: Config) -> dict:
    manifest = config.folder / "distilled" / "manifest.json"
    if not manifest.exists():
        return {}
    shards = read_json(manifest).get("shards", {})
    counts = list(shards.values()) if isinstance(shards, dict) else shards
    facts = {"data": "the teacher's own answers to " + ", ".join(Path(path).name for path in config.prepare.prompts)}
    for key, name in (("sequences", "sequences"), ("tokens", "tokens"), ("answer_tokens", "tokens the teacher wrote")):
        total = sum(shard[key] for shard in counts if isinstance(shard, dict) and key in shard)
        facts |= {name: f"{total:,}"} if total else {}
    return facts


def training_facts(config: Config, kind: str) -> dict:
    metrics = config.heads_folder / kind / "metrics.jsonl"
    lines = metrics.read_text().splitlines() if metrics.exists() else []
    if not lines:
        return {}
    last = json.loads(lines[-1])
    accuracies = " ".join(f"{value:.3f}" for value in last["accuracies"])
    return {"steps": last["step"], "loss at the end": f"{last['loss']:.3f}", "accuracy by depth at the end": accuracies}


def recipe(config: Config, kind: str) -> dict:
    section = dataclasses.asdict(getattr(config, kind))
    skipped = ("from_checkpoint", "stop_after_seconds", "checkpoint_every", "log_every")
    facts = {name: value for name, value in section.items() if name not in skipped}
    facts |= {"seed": config.seed, "greedy share of the data": config.distil.greedy_share}
    return facts | ({"draft vocabulary": config.vocabulary.size} if kind == "eagle3" else {})


def figures(config: Config, kind: str) -> str:
    """Simulated acceptance, if `simulate` has run."""
    path = config.heads_folder / "simulate" / f"{kind}.json"
    if not path.exists():
        return ""
    found = read_json(path)
    rows = "".join(f"| {row['name']} | {row['tau']:.3f} |\n" for row in found["settings"])
    return (
        f"## Figures\n\nSimulated on {found['sequences']} sequences ({found['source']}), tokens a verify step:\n\n"
        f"| tree | tau |\n|---|---|\n{rows}"
    )
