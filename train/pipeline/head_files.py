"""The files of an exported head: their names, which of them readers take, and what `simulate` said about them."""

from pathlib import Path

from .config import Config, InputError
from .files import read_json, sha256_of

FILES = {  # by kind and format, in the order in which readers, the engine too, prefer them
    "eagle3": {"safetensors": "model.safetensors", "gguf-q8_0": "head-q8_0.gguf", "gguf": "head.gguf"},
    "eagle2": {"safetensors": "model.safetensors"},
    "medusa": {"safetensors": "medusa_lm_head.safetensors"},
}


def out_folder(config: Config, kind: str) -> Path:
    """Variants are studied, not shipped: they never go where the configuration has its heads exported to."""
    named = "" if config.variant else getattr(config.export, f"out_{kind}")
    return Path(named or config.heads_folder / "export" / kind)


def exported_kinds(config: Config) -> list[str]:
    return [kind for kind in FILES if (out_folder(config, kind) / "config.json").exists()]


def weights_file(folder: Path, kind: str) -> Path:
    names = FILES[kind].values()
    found = next((folder / name for name in names if (folder / name).exists()), None)
    if found is None:
        raise InputError(f"{folder}: expected {' or '.join(names)}, got none; run the step export")
    return found


def simulation_file(config: Config, kind: str) -> Path:
    return config.heads_folder / "simulate" / f"{kind}.json"


def simulation_of(config: Config, kind: str) -> dict | None:
    """What `simulate` found out about the weights that are exported now; nothing about others."""
    path = simulation_file(config, kind)
    if not path.exists():
        return None
    found = read_json(path)
    return found if found.get("weights") == sha256_of(weights_file(out_folder(config, kind), kind)) else None
