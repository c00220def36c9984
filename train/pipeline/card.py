"""The model card beside exported weights: teacher, data, recipe, command, figures and licence."""

import dataclasses
import json
import re
import shlex
from pathlib import Path

from .config import Config, InputError, TrainingConfig
from .data import load_training_sequences
from .files import read_json
from .head_files import out_folder, simulation_of
from .teacher import Teacher, source_bytes
from .whole_files import written_whole

STEPS = ("prepare", "distil", "vocabulary", "train-{}", "export", "simulate", "trees")
TITLES = {"eagle3": "EAGLE-3 head", "eagle2": "EAGLE-2 head", "medusa": "Medusa heads"}
QUANTISATION = re.compile(r"[.-](I?Q\d\w*|TQ\d\w*|MXFP4\w*|BF16|F16|F32)$", re.IGNORECASE)
NOT_IN_THE_RECIPE = ("from_checkpoint", "stop_after_seconds", "checkpoint_every", "log_every")
SIZES_OF_THE_TEACHER = ("hidden", "intermediate", "heads", "kv_heads")  # 0 stands for them


def write_card(config: Config, kind: str, teacher: Teacher) -> None:
    """README.md. Written by `export`, and again by `simulate`, when there are figures."""
    parts = [
        f"# {TITLES[kind]} for {model_name(config)}\n",
        "Drafts tokens for speculative decoding with Espalier. The text stays the teacher's, whatever it guesses.\n",
        table(teacher_facts(config, teacher) | data_facts(config) | training_facts(config, kind)),
        figures(config, kind),
        f"## Recipe\n\n{table(recipe(config, kind))}",
        f"## Command\n\n```\n{command(config, kind)}\n```\n",
        f"## Licence\n\n{licence(config, teacher)}\n",
    ]
    with written_whole(out_folder(config, kind) / "README.md") as temporary:
        temporary.write_text("\n".join(part for part in parts if part), encoding="utf-8")


def table(facts: dict) -> str:
    return "| | |\n|---|---|\n" + "".join(f"| {name} | {value} |\n" for name, value in facts.items())


# Teacher


def model_name(config: Config) -> str:
    """By the file, without its quantisation: the name inside a GGUF is often that of some folder of a converter."""
    path = Path(config.teacher.path)
    return path.resolve().name if path.is_dir() else QUANTISATION.sub("", path.stem)


def teacher_facts(config: Config, teacher: Teacher) -> dict:
    path = Path(config.teacher.path)
    facts = {"teacher": f"{model_name(config)}, `{path.name}`, {source_bytes(path):,} bytes"}
    if teacher.name != model_name(config):
        facts["its name in that file"] = ", ".join(filter(None, (teacher.name, teacher.shape.organisation)))
    return facts | {"SHA-256 of the teacher": f"`{teacher.source_sha256}`"}


def licence(config: Config, teacher: Teacher) -> str:
    return config.export.licence or f"That of the teacher: {teacher.shape.licence or 'its files do not name one'}."


# Data and training


def data_facts(config: Config) -> dict:
    """What heads are trained on, and of how many answers that was chosen."""
    manifest = config.folder / "distilled" / "manifest.json"
    if not manifest.exists():
        return {}
    files = ", ".join(f"`{path}`" for path in config.prepare.prompts)
    told = {"answers": f"the teacher's own answers to {files}", "prompts": f"the prompts themselves, {files}"}
    sequences = load_training_sequences(config)
    answers = sum(shard.get("sequences", 0) for shard in read_json(manifest)["shards"].values())
    distilled = f"; distilled: {answers:,} answers, later turns and prompts held aside included" if answers else ""
    written = int(sequences.answer.sum())
    return {
        "data": told[config.data.text],
        "sequences": f"{len(sequences):,}, one for each prompt with all its turns{distilled}",
        "tokens": f"{len(sequences.tokens):,}, {written:,} of them to be learned",
    }


def training_facts(config: Config, kind: str) -> dict:
    """Batches differ more than a thousand steps bring, so the loss is a mean; accuracy is told by `simulate`."""
    metrics = config.heads_folder / kind / "metrics.jsonl"
    lines = [json.loads(line) for line in metrics.read_text().splitlines()] if metrics.exists() else []
    if not lines:
        return {}
    steps = lines[-1]["step"]
    last = [line["loss"] for line in lines if line["step"] > 0.9 * steps]
    return {"steps": f"{steps:,}", "training loss, mean of the last tenth": f"{sum(last) / len(last):.3f}"}


def recipe(config: Config, kind: str) -> dict:
    section = dataclasses.asdict(getattr(config, kind))
    own = section.keys() - {item.name for item in dataclasses.fields(TrainingConfig)}
    order = sorted(section, key=lambda name: name not in own)  # what is particular to this kind of heads comes first
    facts = {name: section[name] for name in order if name not in NOT_IN_THE_RECIPE}
    for name in SIZES_OF_THE_TEACHER:
        if facts.get(name) == 0:
            facts[name] = "the teacher's"
    facts |= {"seed": config.seed, "greedy share of the data": config.distil.greedy_share}
    return facts | ({"draft vocabulary": config.vocabulary.size} if kind == "eagle3" else {})


def command(config: Config, kind: str) -> str:
    """What made this head, to be called in the folder that the paths of the configuration start from."""
    source, here = Path(config.source).resolve(), Path.cwd()
    shown = str(source.relative_to(here)) if source.is_relative_to(here) else config.source
    settings = [part for setting in config.settings for part in ("--set", setting)]
    steps = [step.format(kind) for step in STEPS]
    return shlex.join(["python", "train/run.py", shown, *settings, *steps])


# Figures


def figures(config: Config, kind: str) -> str:
    """What `simulate` found out about these weights, if it has run, and what the configuration adds from elsewhere: of
    its heads, not of a variant."""
    measured = "" if config.variant else getattr(config.export, f"figures_{kind}")
    parts = [simulated(config, kind), added(measured)]
    return "\n".join(["## Figures\n", *filter(None, parts)]) if any(parts) else ""


def simulated(config: Config, kind: str) -> str:
    found = simulation_of(config, kind)
    if found is None:
        return ""
    depths = [f"{100 * row[0]:.1f} %" for row in found["top"]]
    taus = "".join(f"| {row['name']} | {row['tau']:.3f} |\n" for row in found["settings"])
    sizes = ", ".join(map(str, config.trees.sizes))
    trees = f"\nThe trees in `choices-SIZE.json` ({sizes} rows, the root included) were chosen on the same answers.\n"
    letters = " (M: rows with the root, K: nodes expanded in a level, and guesses below each)"
    return (
        "First guesses that are right, simulated at every place of the teacher's answers to "
        f"{found['sequences']} prompts held aside from training:\n\n"
        f"| depth | {' | '.join(str(depth + 1) for depth in range(len(depths)))} |\n|---|{'---|' * len(depths)}\n"
        f"| right | {' | '.join(depths)} |\n\n"
        f"Tokens per verify step there{letters if kind != 'medusa' else ''}:\n\n| tree | tau |\n|---|---|\n{taus}"
        f"{trees if kind == 'medusa' else ''}"
    )


def added(path: str) -> str:
    try:
        return Path(path).read_text(encoding="utf-8").strip() + "\n" if path else ""
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}, expected figures for a model card") from error
