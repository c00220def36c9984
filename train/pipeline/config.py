"""The configuration of a run: a TOML file read into plain dataclasses.

Every key has a type, and most have a default that is said here. What is not known is refused, because a misspelt key that
is silently ignored costs a training. Attribute names are the TOML keys; paths are relative to the current folder.
"""

import dataclasses
import hashlib
import json
import tomllib
import types
import typing
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path


class InputError(Exception):
    """One line for the user: where, what, expected, got. run.py prints it and exits with 1."""


@dataclass
class TeacherConfig:
    path: str  # Hugging Face folder or GGUF file
    dtype: str = "auto"  # "bfloat16", "float32" or "auto": bfloat16 on a GPU, float32 on a CPU
    tokenizer: str = ""  # folder of the tokenizer where the teacher's folder has none; "" = beside the teacher


@dataclass
class PrepareConfig:
    prompts: list[str]  # .jsonl or .jsonl.zst files; one object with "turns" a line
    evaluation: list[str] = field(default_factory=list)  # .jsonl files no training prompt may overlap with
    system: str | None = None  # None: whatever the chat template does without a system message
    max_prompt_tokens: int = 512  # longer first turns are dropped, longer follow-ups cut off their conversation
    held_aside: int = 500  # prompts never trained on: simulate and trees use them


@dataclass
class DistilConfig:
    max_new_tokens: int = 384
    batch: int = 2048  # slots generating at the same time; does not change what a sequence says, up to rounding
    greedy_share: float = 1.0  # the rest is sampled
    temperature: float = 0.8
    top_p: float = 0.95
    followups: int = 1  # how many later turns of a prompt are answered
    limit: int = 0  # training prompts to answer, in the order of the files; 0 = all
    shard_prompts: int = 8192
    wait_seconds: float = 3600.0  # how long a rank waits for the next shard of another one; 0 = for ever


@dataclass
class VocabularyConfig:
    size: int = 16384


@dataclass
class DataConfig:
    """Which of the distilled sequences heads are trained on, and what of them: all of it, unless something is studied."""

    text: str = "answers"  # "answers" of the teacher, or the "prompts" themselves, as people wrote them
    control_tokens: str = "kept"  # or "stripped", as in text that was decoded and encoded again
    sequences: int = 0  # a random choice of so many; 0 = all


@dataclass(kw_only=True)
class TrainingConfig:
    """What all kinds of heads are trained with."""

    loss_decay: float = 0.8
    steps: int
    tokens_per_batch: int = 32768  # padded tokens a step, over all ranks
    max_tokens: int = 1024
    peak_rate: float
    final_rate: float = 0.0  # where the cosine ends
    warmup: int = 100
    clip: float = 0.5
    betas: list[float] = field(default_factory=lambda: [0.9, 0.95])
    weight_decay: float = 0.0
    checkpoint_every: int = 1000
    log_every: int = 25
    stop_after_seconds: float = 0.0  # 0 = off; else save a checkpoint and end cleanly, so that a later call goes on
    from_checkpoint: str = ""


@dataclass(kw_only=True)
class Eagle3Config(TrainingConfig):
    taps: list[int]  # ascending boundaries: the residual stream entering layer i
    hidden: int = 0  # 0 = the teacher's, here and below
    intermediate: int = 0
    heads: int = 0
    kv_heads: int = 0
    rope_theta: float = 10000.0
    unroll: int = 7
    steps: int = 4500
    peak_rate: float = 2e-3


@dataclass(kw_only=True)
class Eagle2Config(TrainingConfig):
    """As it is: HASS's recipe. unroll = 1 and best_tokens = 0 are that of EAGLE-1 and EAGLE-2 themselves."""

    intermediate: int = 0  # 0 = the teacher's, here and below
    heads: int = 0
    kv_heads: int = 0
    rope_theta: float = 10000.0
    unroll: int = 3
    noise: float = 0.2  # spread of the noise on features of texts of 512 tokens; 0 = none
    token_weight: float = 0.1  # of the tokens' cross-entropy, beside the distance of features
    best_tokens: int = 10  # how many of the teacher's tokens count again
    best_weight: float = 1.0  # and how much
    steps: int = 4500
    peak_rate: float = 1e-3


@dataclass(kw_only=True)
class MedusaConfig(TrainingConfig):
    heads: int = 4
    blocks: int = 1
    steps: int = 2000
    peak_rate: float = 1e-3


@dataclass
class ExportConfig:
    out_eagle3: str = ""  # "" = WORK/export/eagle3, and so on
    out_eagle2: str = ""
    out_medusa: str = ""
    dtype: str = "float16"  # "float16", "bfloat16" or "float32"
    formats_eagle3: list[str] = field(default_factory=lambda: ["safetensors", "gguf", "gguf-q8_0"])  # which of these
    figures_eagle3: str = ""  # Markdown for the model card: what was measured outside this pipeline; "" = nothing
    figures_eagle2: str = ""
    figures_medusa: str = ""
    embedding_eagle2: bool = False  # whether the file holds a copy of the teacher's, as SafeAILab's loader wants it
    licence: str = ""  # of the heads, for the model cards; "" = that of the teacher


@dataclass
class SimulateConfig:
    turns: list[str] = field(default_factory=list)  # turns.json files of the engine; none = the held-aside sequences
    max_sequences: int = 500
    depths: int = 8  # how deep acceptance is followed
    grid: bool = True  # many sizes of trees, which `trees` needs and which take most of the time
    grid_sequences: int = 0  # with the grid an EAGLE head gets only the first so many; 0 = all


@dataclass
class TreesConfig:
    sizes: list[int] = field(default_factory=lambda: [8, 16, 32, 60])  # nodes, the root included
    step_costs: list[str] = field(default_factory=list)  # JSON of `espalier bench`, one file for each instruction set
    draft_levels: int = 6  # --draft-depth and
    draft_expand: int = 4  # --draft-expand of these measurements
    suggest_nodes: str = "auto"  # "auto": the engine chooses M round by round; "best": as many as found here
    spare_levels: int = 2  # with "auto", levels beyond the best: they only bound what an easy text can get
    suggest_ngram: bool = False  # n-gram matches in the same tree as the guesses of an EAGLE head


@dataclass
class Config:
    work: str  # the folder of all artefacts
    teacher: TeacherConfig
    prepare: PrepareConfig
    eagle3: Eagle3Config
    distil: DistilConfig = field(default_factory=DistilConfig)
    vocabulary: VocabularyConfig = field(default_factory=VocabularyConfig)
    data: DataConfig = field(default_factory=DataConfig)
    eagle2: Eagle2Config = field(default_factory=Eagle2Config)
    medusa: MedusaConfig = field(default_factory=MedusaConfig)
    export: ExportConfig = field(default_factory=ExportConfig)
    simulate: SimulateConfig = field(default_factory=SimulateConfig)
    trees: TreesConfig = field(default_factory=TreesConfig)
    seed: int = 1
    device: str = "auto"  # "auto" = the GPU of this rank if there is one, else "cpu"
    variant: str = ""  # a name: heads and all that follows from them go to WORK/variants/NAME, the data stay shared
    source: str = field(default="", init=False)  # the file all this is from, and what was set above it: model cards
    settings: list[str] = field(default_factory=list, init=False)  # name the command that made their head

    @property
    def folder(self) -> Path:
        """Of the data: prepared, distilled, vocabulary."""
        return Path(self.work)

    @property
    def heads_folder(self) -> Path:
        """Of what is made from the data: checkpoints, exports, simulations, trees."""
        return self.folder / "variants" / self.variant if self.variant else self.folder


def read_config(path: Path, settings: Sequence[str] = ()) -> Config:
    """Reads and checks a file. settings: `section.key=value` with a value as TOML has it, each above what the file
    says. Raises InputError with one line that names the file and the key."""
    try:
        table = tomllib.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: expected TOML, got {error}") from error
    for setting in settings:
        apply_setting(table, setting)
    try:
        config = build(Config, table, "")
        check_values(config)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    config.source, config.settings = str(path), list(settings)
    return config


def apply_setting(table: dict, setting: str) -> None:
    """One `section.key=value` into the table of a file."""
    name, sign, text = setting.partition("=")
    *sections, key = name.strip().split(".")
    try:
        value = tomllib.loads(f"value = {text}")["value"] if sign else None
    except tomllib.TOMLDecodeError:
        value = None
    if value is None or not key:
        raise InputError(f"--set: expected section.key=value with a value as TOML has it, got {setting!r}")
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise InputError(f"--set {setting}: expected {section} to be a section, got {table!r}")
    table[key] = value


def build(kind, table: dict, where: str):
    """A dataclass from a TOML table: every key known, every value of its type, nothing needed left out."""
    known = {item.name: item for item in dataclasses.fields(kind) if item.init}
    for key in table:
        if key not in known:
            raise InputError(f"{where}{key}: unknown key, expected one of {', '.join(known)}")
    hints = typing.get_type_hints(kind)
    values = {key: convert(hints[key], value, where + key) for key, value in table.items()}
    for name, item in known.items():
        needed = item.default is dataclasses.MISSING and item.default_factory is dataclasses.MISSING
        if needed and name not in values:
            raise InputError(f"{where}{name}: missing")
    return kind(**values)


def convert(kind, value, where: str):
    if dataclasses.is_dataclass(kind):
        if not isinstance(value, dict):
            raise InputError(f"{where}: expected a table, got {value!r}")
        return build(kind, value, where + ".")
    if isinstance(kind, types.UnionType):  # only "str | None" occurs: TOML has no null, so a given value is the other
        kind = typing.get_args(kind)[0]
    if typing.get_origin(kind) is list:
        if not isinstance(value, list):
            raise InputError(f"{where}: expected a list, got {value!r}")
        return [convert(typing.get_args(kind)[0], item, f"{where}[{i}]") for i, item in enumerate(value)]
    if kind is float and type(value) is int:
        return float(value)
    if type(value) is not kind:
        raise InputError(f"{where}: expected {kind.__name__}, got {value!r}")
    return value


def one_of(*names):
    return lambda value: value in names


def some_of(*names):
    return lambda values: 0 < len(values) == len(set(values)) and set(values) <= set(names)


POSITIVE = (lambda value: value > 0, "more than 0")
NOT_NEGATIVE = (lambda value: value >= 0, "zero or more")

RULES = {  # what types cannot say: (whether a value is fine, what was expected)
    "teacher.dtype": (one_of("auto", "bfloat16", "float32"), "auto, bfloat16 or float32"),
    "prepare.prompts": (bool, "at least one file"),
    "prepare.max_prompt_tokens": POSITIVE,
    "prepare.held_aside": NOT_NEGATIVE,
    "distil.max_new_tokens": POSITIVE,
    "distil.batch": POSITIVE,
    "distil.greedy_share": (lambda share: 0 <= share <= 1, "0 to 1"),
    "distil.temperature": POSITIVE,
    "distil.top_p": (lambda share: 0 < share <= 1, "more than 0, at most 1"),
    "distil.followups": NOT_NEGATIVE,
    "distil.limit": NOT_NEGATIVE,
    "distil.shard_prompts": POSITIVE,
    "distil.wait_seconds": NOT_NEGATIVE,
    "vocabulary.size": POSITIVE,
    "data.text": (one_of("answers", "prompts"), "answers or prompts"),
    "data.control_tokens": (one_of("kept", "stripped"), "kept or stripped"),
    "data.sequences": NOT_NEGATIVE,
    "eagle3.taps": (lambda taps: taps == sorted(set(taps)) and taps[:1] >= [0], "ascending boundaries"),
    "eagle3.unroll": POSITIVE,
    "eagle2.unroll": POSITIVE,
    "eagle2.noise": NOT_NEGATIVE,
    "eagle2.token_weight": POSITIVE,
    "eagle2.best_tokens": NOT_NEGATIVE,
    "eagle2.best_weight": NOT_NEGATIVE,
    "medusa.heads": POSITIVE,
    "medusa.blocks": POSITIVE,
    "simulate.max_sequences": POSITIVE,
    "simulate.grid_sequences": NOT_NEGATIVE,
    "trees.sizes": (lambda sizes: len(sizes) > 0 and min(sizes) > 1, "numbers of 2 and more"),
    "trees.spare_levels": NOT_NEGATIVE,
    "trees.draft_levels": POSITIVE,
    "trees.draft_expand": POSITIVE,
    "trees.suggest_nodes": (one_of("auto", "best"), "auto or best"),
    "export.dtype": (one_of("float16", "bfloat16", "float32"), "float16, bfloat16 or float32"),
    "export.formats_eagle3": (
        some_of("safetensors", "gguf", "gguf-q8_0"),
        "some of safetensors, gguf and gguf-q8_0, each once",
    ),
}
KINDS = ("eagle3", "eagle2", "medusa")  # of heads, and the names of their sections
TRAINING_RULES = {  # the same for all of them
    "steps": POSITIVE,
    "peak_rate": POSITIVE,
    "max_tokens": (lambda count: count > 0 and count % 64 == 0, "a multiple of 64"),
    "betas": (lambda betas: len(betas) == 2, "two numbers"),
    "checkpoint_every": POSITIVE,
    "log_every": POSITIVE,
}


def check_values(config: Config) -> None:
    of_trainings = {f"{kind}.{key}": rule for kind in KINDS for key, rule in TRAINING_RULES.items()}
    for name, (fine, expected) in (RULES | of_trainings).items():
        section, key = name.split(".")
        value = getattr(getattr(config, section), key)
        if not fine(value):
            raise InputError(f"{name}: expected {expected}, got {value!r}")
    for name in KINDS:
        training = getattr(config, name)
        if training.tokens_per_batch < training.max_tokens:
            got = training.tokens_per_batch
            raise InputError(f"{name}.tokens_per_batch: expected at least max_tokens, {training.max_tokens}, got {got}")


def digest(*parts) -> str:
    """A short name for a combination of dataclasses, strings and numbers: artefacts are found again by what made them."""
    plain = [dataclasses.asdict(part) if dataclasses.is_dataclass(part) else part for part in parts]
    return hashlib.sha256(json.dumps(plain, sort_keys=True).encode()).hexdigest()[:16]
