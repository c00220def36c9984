"""The teacher: a frozen llama-like network whose hidden states can be read at every layer boundary.

One network with switches covers llama, SmolLM2, Mistral, Qwen2, Qwen3 and openPangu: grouped queries, rotary positions,
RMS norm, SwiGLU, optional biases, optional norms on q and k, tied or untied output. Files are read as users have them: a
Hugging Face folder (safetensors) or a GGUF, whose blocks are dequantised.

Precision: matrices in the chosen dtype; residual stream, norms and logits always in float32. The residual stream is what
the heads are trained on, and bfloat16 logits tie too often to take an argmax from.
"""

import functools
import hashlib
import math
import os
import re
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

from .config import Config, InputError
from .files import read_json, sha256_of

FAMILIES = {"llama", "mistral", "qwen2", "qwen3", "PanguEmbedded", "pangu-embedded"}


@dataclass
class Shape:
    """What the configuration of a teacher says, from either format."""

    name: str
    hidden: int
    layers: int
    heads: int
    kv_heads: int
    head_dim: int
    intermediate: int
    vocab: int
    eps: float
    rope_theta: float
    frequencies: torch.Tensor  # float32 [head_dim / 2], scaling included
    eos_ids: tuple[int, ...]
    window: int = 0  # 0 = every earlier token is seen
    organisation: str = ""  # who made it and its licence, where the files say so
    licence: str = ""


class Norm(nn.Module):
    """y = w * x / sqrt(mean(x^2) + eps), in float32 whatever comes in."""

    def __init__(self, weight: torch.Tensor, eps: float):
        super().__init__()
        self.weight = nn.Parameter(weight.float(), requires_grad=False)
        self.eps = eps

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return F.rms_norm(x.float(), self.weight.shape, self.weight, self.eps)


class Layer(nn.Module):
    """One transformer block, in two halves around the attention, so that a generator can put its own cache between."""

    def __init__(self, shape: Shape, weights: dict[str, torch.Tensor], dtype: torch.dtype):
        super().__init__()
        self.shape = shape
        self.input_norm = Norm(weights["input_layernorm.weight"], shape.eps)
        self.mlp_norm = Norm(weights["post_attention_layernorm.weight"], shape.eps)
        names = [f"self_attn.{part}_proj" for part in "qkv"]
        self.qkv = frozen(torch.cat([weights[f"{name}.weight"] for name in names]), dtype)
        has_bias = "self_attn.q_proj.bias" in weights
        self.qkv_bias = frozen(torch.cat([weights[f"{name}.bias"] for name in names]), dtype) if has_bias else None
        self.out = frozen(weights["self_attn.o_proj.weight"], dtype)
        self.out_bias = frozen(weights["self_attn.o_proj.bias"], dtype) if "self_attn.o_proj.bias" in weights else None
        self.gate_up = frozen(torch.cat([weights["mlp.gate_proj.weight"], weights["mlp.up_proj.weight"]]), dtype)
        self.down = frozen(weights["mlp.down_proj.weight"], dtype)
        self.has_head_norms = "self_attn.q_norm.weight" in weights
        if self.has_head_norms:
            self.q_norm = Norm(weights["self_attn.q_norm.weight"], shape.eps)
            self.k_norm = Norm(weights["self_attn.k_norm.weight"], shape.eps)

    def project(self, x: torch.Tensor, cos: torch.Tensor, sin: torch.Tensor):
        """x [.., H] -> q [.., heads, D], k and v [.., kv_heads, D], rotated; cos and sin [.., 1, D]."""
        shape = self.shape
        row = F.linear(self.input_norm(x).to(self.qkv.dtype), self.qkv, self.qkv_bias)
        row = row.unflatten(-1, (shape.heads + 2 * shape.kv_heads, shape.head_dim))
        if self.has_head_norms:
            q, k, v = row.split((shape.heads, shape.kv_heads, shape.kv_heads), dim=-2)
            both = torch.cat((self.q_norm(q), self.k_norm(k)), dim=-2)
        else:
            both, v = row.split((shape.heads + shape.kv_heads, shape.kv_heads), dim=-2)
        first, second = both.chunk(2, dim=-1)
        both = both * cos + torch.cat((second, first), dim=-1) * sin
        return *both.to(self.qkv.dtype).split((shape.heads, shape.kv_heads), dim=-2), v

    def finish(self, x: torch.Tensor, attended: torch.Tensor) -> torch.Tensor:
        """The rest of the block: attended [.., heads * D] joins the residual stream x, then the MLP."""
        x = x + F.linear(attended, self.out, self.out_bias)
        gate, up = F.linear(self.mlp_norm(x).to(self.down.dtype), self.gate_up).chunk(2, dim=-1)
        return x + F.linear(F.silu(gate) * up, self.down)


class Teacher(nn.Module):
    """Frozen, and without state between calls. Read the sizes as attributes: hidden, layers, heads, ..."""

    def __init__(self, shape: Shape, weights: dict[str, torch.Tensor], dtype: torch.dtype, source_sha256: str):
        super().__init__()
        self.shape = shape
        self.name, self.vocab, self.eos_ids, self.window = shape.name, shape.vocab, shape.eos_ids, shape.window
        self.hidden, self.layers, self.intermediate = shape.hidden, shape.layers, shape.intermediate
        self.heads, self.kv_heads, self.head_dim = shape.heads, shape.kv_heads, shape.head_dim
        self.eps, self.rope_theta = shape.eps, shape.rope_theta
        self.source_sha256 = source_sha256
        self.embedding = frozen(weights["model.embed_tokens.weight"], dtype)
        tied = "lm_head.weight" not in weights
        self.lm_head_weight = self.embedding if tied else frozen(weights["lm_head.weight"], dtype)
        self.final_norm = Norm(weights["model.norm.weight"], shape.eps)
        self.blocks = nn.ModuleList(Layer(shape, of_layer(weights, i), dtype) for i in range(shape.layers))
        self.register_buffer("frequencies", shape.frequencies.float())

    def rotation(self, positions: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """cos and sin, float32 [.., 1, D], for integer positions [..]. The first half of sin is negative: it multiplies the
        second half of a row."""
        angles = (positions.unsqueeze(-1).float() * self.frequencies).unsqueeze(-2)
        cos, sin = angles.cos(), angles.sin()
        return torch.cat((cos, cos), dim=-1), torch.cat((-sin, sin), dim=-1)

    def embed(self, tokens: torch.Tensor) -> torch.Tensor:
        return F.embedding(tokens, self.embedding).float()

    @torch.no_grad()
    def features(self, tokens: torch.Tensor, taps) -> tuple[torch.Tensor, torch.Tensor]:
        """tokens int64 [B, T] -> (last [B, T, H], taps [B, T, len(taps) * H]), float32.

        last is the residual stream after the last layer, before the final norm. Tap i is the raw residual stream
        entering layer i. Attention is causal: what stands behind a sequence as padding is never seen by it.
        """
        check_taps(taps, self.layers)
        cos, sin = self.rotation(torch.arange(tokens.shape[1], device=tokens.device))
        mask = window_mask(tokens.shape[1], self.window, tokens.device)
        x, kept = self.embed(tokens), []
        for i, block in enumerate(self.blocks):
            if i in taps:
                kept.append(x)
            q, k, v = block.project(x, cos, sin)
            x = block.finish(x, causal_attention(q, k, v, mask))
        if self.layers in taps:
            kept.append(x)
        return x, torch.cat(kept, dim=-1) if kept else x[..., :0]

    @torch.no_grad()
    def logits(self, last: torch.Tensor) -> torch.Tensor:
        """float32 [.., V] from the residual stream after the last layer. On a GPU the product runs in TF32, whose
        mantissa holds every bfloat16 weight exactly."""
        return F.linear(self.final_norm(last), self.lm_head_weight.float())


def frozen(tensor: torch.Tensor, dtype: torch.dtype) -> nn.Parameter:
    return nn.Parameter(tensor.to(dtype).contiguous(), requires_grad=False)


def of_layer(weights: dict[str, torch.Tensor], layer: int) -> dict[str, torch.Tensor]:
    prefix = f"model.layers.{layer}."
    return {name.removeprefix(prefix): tensor for name, tensor in weights.items() if name.startswith(prefix)}


def check_taps(taps, layers: int) -> None:
    if list(taps) != sorted(set(taps)) or any(not 0 <= tap <= layers for tap in taps):
        raise InputError(f"taps: expected ascending boundaries from 0 to {layers}, got {list(taps)}")


def window_mask(length: int, window: int, device) -> torch.Tensor | None:
    """[T, T] bool, true where row i sees key j: the last `window` tokens, itself included. None = plain causal."""
    if not window or length <= window:
        return None
    distance = torch.arange(length, device=device)[:, None] - torch.arange(length, device=device)[None]
    return (distance >= 0) & (distance < window)


def causal_attention(q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, mask: torch.Tensor | None) -> torch.Tensor:
    """q [B, T, heads, D], k and v [B, T, kv_heads, D] -> [B, T, heads * D]."""
    q, k, v = (part.transpose(1, 2) for part in (q, k, v))
    grouped = q.shape[1] != k.shape[1]
    attended = F.scaled_dot_product_attention(q, k, v, attn_mask=mask, is_causal=mask is None, enable_gqa=grouped)
    return attended.transpose(1, 2).flatten(-2)


def choose_device(name: str) -> torch.device:
    """ "auto" is the GPU of this rank if there is one. TF32 is switched on here, because logits() relies on it."""
    torch.set_float32_matmul_precision("high")
    if name != "auto":
        return torch.device(name)
    if not torch.cuda.is_available():
        return torch.device("cpu")
    device = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
    torch.cuda.set_device(device)
    return device


def choose_dtype(name: str, device: torch.device) -> torch.dtype:
    if name == "auto":
        return torch.bfloat16 if device.type == "cuda" else torch.float32
    return {"bfloat16": torch.bfloat16, "float32": torch.float32}[name]


def teacher_of(config: Config) -> Teacher:
    """The teacher of a run, on its device."""
    device = choose_device(config.device)
    return load_teacher(config.teacher.path, device, choose_dtype(config.teacher.dtype, device))


@functools.lru_cache(maxsize=1)
def load_teacher(path, device, dtype: torch.dtype) -> Teacher:
    """The last one is kept: reading a GGUF takes seconds, and steps run one after the other in a process."""
    path = Path(path)
    if not path.exists():
        raise InputError(f"{path}: no such file or folder, expected a Hugging Face folder or a GGUF file")
    shape, weights = read_folder(path) if path.is_dir() else read_gguf(path)
    check_weights(path, shape, weights)
    return Teacher(shape, weights, dtype, source_hash(path)).to(device).eval()


def source_hash(path: Path) -> str:
    """SHA-256 of the weights as users have them: of the one file, or of the list of the shards' hashes."""
    if path.is_file():
        return sha256_of(path)
    hashes = [sha256_of(file) for file in weight_files(path)]
    if len(hashes) == 1:
        return hashes[0]
    return hashlib.sha256("\n".join(hashes).encode()).hexdigest()


def weight_files(path: Path) -> list[Path]:
    return [path] if path.is_file() else sorted(path.glob("model*.safetensors"))


def source_bytes(path: Path) -> int:
    return sum(file.stat().st_size for file in weight_files(path))


# Hugging Face folders


def read_folder(path: Path) -> tuple[Shape, dict[str, torch.Tensor]]:
    from safetensors import safe_open

    config = read_json(path / "config.json")
    family = config.get("model_type")
    if family not in FAMILIES:
        raise InputError(
            f"{path}/config.json: model_type: expected one of {', '.join(sorted(FAMILIES))}, got {family!r}"
        )
    weights = {}
    for file in sorted(path.glob("model*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            weights.update(
                {name: tensors.get_tensor(name).float() for name in tensors.keys() if not name.endswith("inv_freq")}
            )
    if config.get("tie_word_embeddings", False):
        weights.pop("lm_head.weight", None)  # some tied files carry one that nobody reads
    return folder_shape(path, config), weights


def folder_shape(path: Path, config: dict) -> Shape:
    try:
        heads = config["num_attention_heads"]
        head_dim = config.get("head_dim") or config["hidden_size"] // heads
        rope = config.get("rope_parameters") or config.get("rope_scaling") or {}
        theta = float(rope.get("rope_theta") or config.get("rope_theta") or 10000.0)
        windowed = config.get("use_sliding_window", config["model_type"] == "mistral")
        return Shape(
            name=path.resolve().name,
            hidden=config["hidden_size"],
            layers=config["num_hidden_layers"],
            heads=heads,
            kv_heads=config.get("num_key_value_heads") or heads,
            head_dim=head_dim,
            intermediate=config["intermediate_size"],
            vocab=config["vocab_size"],
            eps=config["rms_norm_eps"],
            rope_theta=theta,
            frequencies=scaled_frequencies(path, theta, head_dim, rope),
            eos_ids=folder_eos(path, config),
            window=(config.get("sliding_window") or 0) if windowed else 0,
        )
    except KeyError as error:
        raise InputError(f"{path}/config.json: {error.args[0]}: missing") from error


def folder_eos(path: Path, config: dict) -> tuple[int, ...]:
    """Chat models list their end tokens in generation_config.json; the plain configuration often has only one."""
    generation = read_json(path / "generation_config.json") if (path / "generation_config.json").exists() else {}
    ids = generation.get("eos_token_id", config.get("eos_token_id"))
    return tuple(ids) if isinstance(ids, list) else () if ids is None else (ids,)


def plain_frequencies(theta: float, head_dim: int) -> torch.Tensor:
    return 1.0 / theta ** (torch.arange(0, head_dim, 2, dtype=torch.float32) / head_dim)


def scaled_frequencies(path: Path, theta: float, head_dim: int, rope: dict) -> torch.Tensor:
    frequencies = plain_frequencies(theta, head_dim)
    kind = rope.get("rope_type", rope.get("type", "default"))
    if kind == "default":
        return frequencies
    if kind != "llama3":
        raise InputError(f"{path}/config.json: rope_type: expected default or llama3, got {kind!r}")
    # Llama 3.1: short wavelengths are kept, long ones slowed by `factor`, those between blended.
    wavelength = 2 * math.pi / frequencies
    low, high = rope["low_freq_factor"], rope["high_freq_factor"]
    turns = rope["original_max_position_embeddings"] / wavelength
    kept = ((turns - low) / (high - low)).clamp(0, 1)
    return frequencies * (kept + (1 - kept) / rope["factor"])


# GGUF files

GGUF_NAMES = {
    "token_embd": "model.embed_tokens",
    "output_norm": "model.norm",
    "output": "lm_head",
    "attn_norm": "input_layernorm",
    "ffn_norm": "post_attention_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}


def read_gguf(path: Path) -> tuple[Shape, dict[str, torch.Tensor]]:
    import gguf

    try:
        reader = gguf.GGUFReader(path)
    except (ValueError, IndexError, OSError) as error:
        raise InputError(f"{path}: expected a GGUF file, got {error}") from error
    fields = reader.fields
    raw = {
        t.name: torch.from_numpy(np.array(gguf.quants.dequantize(t.data, t.tensor_type), dtype=np.float32))
        for t in reader.tensors
    }
    factors = raw.pop("rope_freqs.weight", None)
    shape = gguf_shape(path, fields, factors, raw)
    weights = {folder_name(path, name): tensor for name, tensor in raw.items()}
    if fields["general.architecture"].contents() == "llama":
        restore_halves(weights, shape)
    return shape, weights


def gguf_shape(path: Path, fields: dict, factors: torch.Tensor | None, raw: dict[str, torch.Tensor]) -> Shape:
    def value(key: str, default=None):
        if key in fields:
            return fields[key].contents()
        if default is None:
            raise InputError(f"{path}: {key}: missing")
        return default

    arch = value("general.architecture")
    if arch not in FAMILIES:
        raise InputError(f"{path}: general.architecture: expected one of {', '.join(sorted(FAMILIES))}, got {arch!r}")
    scaling = value(f"{arch}.rope.scaling.type", "none")
    if scaling != "none":
        raise InputError(f"{path}: {arch}.rope.scaling.type: expected none, got {scaling!r}")
    heads, hidden = value(f"{arch}.attention.head_count"), value(f"{arch}.embedding_length")
    head_dim = value(f"{arch}.attention.key_length", hidden // heads)
    theta = float(value(f"{arch}.rope.freq_base", 10000.0))
    ends = [value(f"tokenizer.ggml.{kind}_token_id", -1) for kind in ("eos", "eot")]
    return Shape(
        name=value("general.name", path.stem),
        hidden=hidden,
        layers=value(f"{arch}.block_count"),
        heads=heads,
        kv_heads=value(f"{arch}.attention.head_count_kv", heads),
        head_dim=head_dim,
        intermediate=value(f"{arch}.feed_forward_length"),
        vocab=raw["token_embd.weight"].shape[0],
        eps=value(f"{arch}.attention.layer_norm_rms_epsilon"),
        rope_theta=theta,
        frequencies=plain_frequencies(theta, head_dim) / (1.0 if factors is None else factors),
        eos_ids=tuple(dict.fromkeys(end for end in ends if end >= 0)),
        window=value(f"{arch}.attention.sliding_window", 0) if arch == "llama" else 0,
        organisation=value("general.organization", ""),
        licence=value("general.license", ""),
    )


def folder_name(path: Path, name: str) -> str:
    """The Hugging Face name of a GGUF tensor: blk.3.attn_q.weight -> model.layers.3.self_attn.q_proj.weight."""
    match = re.fullmatch(r"(blk\.(\d+)\.)?(\w+)\.(weight|bias)", name)
    if not match or match[3] not in GGUF_NAMES:
        raise InputError(f"{path}: {name}: unknown tensor")
    return (f"model.layers.{match[2]}." if match[1] else "") + f"{GGUF_NAMES[match[3]]}.{match[4]}"


def restore_halves(weights: dict[str, torch.Tensor], shape: Shape) -> None:
    """GGUF files of the architecture llama hold the rows of q and k in rotated pairs (0, 1), (2, 3), ...; everyone else, and
    Layer.project, pairs row i with row i + D/2. Puts the halves back."""
    for name, tensor in weights.items():
        if ".q_proj." in name or ".k_proj." in name:
            heads = shape.heads if ".q_proj." in name else shape.kv_heads
            weights[name] = tensor.reshape(heads, shape.head_dim // 2, 2, -1).transpose(1, 2).reshape(tensor.shape)


def check_weights(path: Path, shape: Shape, weights: dict[str, torch.Tensor]) -> None:
    """Every matrix there, with the shape the configuration promises: a wrong file is named here, not deep in a matmul."""
    wide, narrow = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    expected = {"model.embed_tokens.weight": (shape.vocab, shape.hidden), "model.norm.weight": (shape.hidden,)}
    for i in range(shape.layers):
        prefix = f"model.layers.{i}."
        expected |= {
            prefix + "input_layernorm.weight": (shape.hidden,),
            prefix + "post_attention_layernorm.weight": (shape.hidden,),
            prefix + "self_attn.q_proj.weight": (wide, shape.hidden),
            prefix + "self_attn.k_proj.weight": (narrow, shape.hidden),
            prefix + "self_attn.v_proj.weight": (narrow, shape.hidden),
            prefix + "self_attn.o_proj.weight": (shape.hidden, wide),
            prefix + "mlp.gate_proj.weight": (shape.intermediate, shape.hidden),
            prefix + "mlp.up_proj.weight": (shape.intermediate, shape.hidden),
            prefix + "mlp.down_proj.weight": (shape.hidden, shape.intermediate),
        }
    for name, size in expected.items():
        got = tuple(weights[name].shape) if name in weights else "nothing"
        if got != size:
            raise InputError(f"{path}: {name}: expected {size}, got {got}")
