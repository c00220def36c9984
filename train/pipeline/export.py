"""Trained heads as files that engines read.

EAGLE-3, in export.out_eagle3:
    config.json, vocab_order.json (the teacher's ids in the draft vocabulary: control tokens, then the others, most
    frequent first), and the weights in export.formats_eagle3:
    safetensors   model.safetensors in export.dtype, d2t offsets and t2d included: SpecForge's layout, which SafeAILab's
                  loader reads too
    gguf          head.gguf: architecture eagle3 as llama.cpp reads it, in export.dtype
    gguf-q8_0     head-q8_0.gguf: the same with matrices in Q8_0
    Files of the other formats are removed: they would hold another head than the one beside them.
EAGLE-2, in export.out_eagle2 (SafeAILab's layout: the output matrix is the teacher's, and the embedding too unless
export.embedding_eagle2 asks for a copy):
    config.json, vocab_order.json (all of the teacher's ids, in the same order), model.safetensors
Medusa, in export.out_medusa (layout B: blocks only, the output matrix is the teacher's):
    config.json, medusa_lm_head.safetensors; `trees` adds the choices files
All get a README.md (card.py). Every file appears whole or not at all, the weights last. What an earlier config.json
suggested for the same teacher (espalier.suggested) stays until `trees` replaces it.

Names, shapes and conventions: docs/drafters.md.
"""

from pathlib import Path

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from . import eagle2, eagle3
from .card import write_card
from .config import Config, InputError
from .draft_layer import LayerShape
from .eagle2 import Eagle2
from .eagle3 import Eagle3, Shape
from .files import read_json, write_json
from .head_files import FILES, out_folder, weights_file
from .medusa import Medusa
from .teacher import Teacher, source_bytes, teacher_of
from .trainer import read_checkpoint
from .vocabulary import load_vocabulary, whole_order
from .whole_files import written_whole

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32}
SMALLEST_CONTEXT = 8192
GGUF_KINDS = {
    "float16": ("F16", "MOSTLY_F16"),
    "bfloat16": ("BF16", "MOSTLY_BF16"),
    "float32": ("F32", "ALL_F32"),
    "q8_0": ("Q8_0", "MOSTLY_Q8_0"),
}
GGUF_NAMES = {
    "fc.weight": "fc.weight",
    "midlayer.input_layernorm.weight": "blk.0.attn_norm.weight",
    "midlayer.hidden_norm.weight": "blk.0.attn_norm_2.weight",
    "midlayer.self_attn.q_proj.weight": "blk.0.attn_q.weight",
    "midlayer.self_attn.k_proj.weight": "blk.0.attn_k.weight",
    "midlayer.self_attn.v_proj.weight": "blk.0.attn_v.weight",
    "midlayer.self_attn.o_proj.weight": "blk.0.attn_output.weight",
    "midlayer.post_attention_layernorm.weight": "blk.0.ffn_norm.weight",
    "midlayer.mlp.gate_proj.weight": "blk.0.ffn_gate.weight",
    "midlayer.mlp.up_proj.weight": "blk.0.ffn_up.weight",
    "midlayer.mlp.down_proj.weight": "blk.0.ffn_down.weight",
    "norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}


def main(config: Config) -> None:
    """Exports whatever has been trained."""
    teacher = teacher_of(config)
    kinds = [kind for kind in FILES if (config.heads_folder / kind / "checkpoint.pt").exists()]
    if not kinds:
        expected = " or ".join(f"{kind}/checkpoint.pt" for kind in FILES)
        raise InputError(f"{config.heads_folder}: expected {expected}, got none; train first")
    exports = {"eagle3": export_eagle3, "eagle2": export_eagle2, "medusa": export_medusa}
    for kind in kinds:
        exports[kind](config, teacher, read_checkpoint(config.heads_folder / kind / "checkpoint.pt"))
        write_card(config, kind, teacher)


def espalier_fields(config: Config, kind: str, teacher: Teacher) -> dict:
    """How an engine finds the heads of a teacher: by the hash, which it takes only of files of this size."""
    fields = {
        "teacher": teacher.name,
        "teacher_sha256": teacher.source_sha256,
        "teacher_bytes": source_bytes(Path(config.teacher.path)),
    }
    return fields | kept_suggestion(out_folder(config, kind) / "config.json", teacher)


def kept_suggestion(path: Path, teacher: Teacher) -> dict:
    """What the file that is about to be replaced suggests, unless that was for another teacher."""
    before = read_json(path).get("espalier", {}) if path.exists() else {}
    if "suggested" not in before:
        return {}
    if before.get("teacher_sha256") != teacher.source_sha256:
        print(f"export: {path}: espalier.suggested was for another teacher and is left out; run the step trees")
        return {}
    return {"suggested": before["suggested"]}


def save_readable(tensors: dict[str, torch.Tensor], path: Path) -> None:
    """safetensors creates files that only their owner reads; heads are there to be shared."""
    save_file(tensors, path, metadata={"format": "pt"})
    path.chmod(0o644)


# The layer of EAGLE heads


def layer_tensors(shape: LayerShape, state: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    wide, narrow = shape.heads * shape.head_dim, shape.kv_heads * shape.head_dim
    q, k, v = state["qkv"].split((wide, narrow, narrow))
    gate, up = state["gate_up"].chunk(2)
    tensors = {
        "self_attn.q_proj": q,
        "self_attn.k_proj": k,
        "self_attn.v_proj": v,
        "self_attn.o_proj": state["o"],
        "post_attention_layernorm": state["post_attention_layernorm"],
        "mlp.gate_proj": gate,
        "mlp.up_proj": up,
        "mlp.down_proj": state["down"],
    }
    return {f"{prefix}{name}.weight": tensor for name, tensor in tensors.items()}


def layer_state(tensors: dict[str, torch.Tensor], prefix: str) -> dict[str, torch.Tensor]:
    """The way back, float32."""
    layer = {name.removeprefix(prefix).removesuffix(".weight"): tensor.float() for name, tensor in tensors.items()}
    return {
        "qkv": torch.cat([layer[f"self_attn.{part}_proj"] for part in "qkv"]),
        "o": layer["self_attn.o_proj"],
        "post_attention_layernorm": layer["post_attention_layernorm"],
        "gate_up": torch.cat((layer["mlp.gate_proj"], layer["mlp.up_proj"])),
        "down": layer["mlp.down_proj"],
    }


def layer_config(config: Config, kind: str, teacher: Teacher, shape: LayerShape) -> dict:
    ends = list(teacher.eos_ids)
    return {
        "model_type": "llama",
        "hidden_act": "silu",
        "hidden_size": shape.hidden,
        "intermediate_size": shape.intermediate,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "num_hidden_layers": 1,
        "rms_norm_eps": shape.eps,
        "rope_theta": shape.rope_theta,
        "max_position_embeddings": context_of(config, kind),
        "tie_word_embeddings": False,
        "vocab_size": teacher.vocab,
        "eos_token_id": ends[0] if len(ends) == 1 else ends,
        "torch_dtype": config.export.dtype,
        "espalier": espalier_fields(config, kind, teacher),
    }


def layer_sizes(fields: dict) -> dict:
    """Of config.json, under the names of LayerShape."""
    return {
        "hidden": fields["hidden_size"],
        "intermediate": fields["intermediate_size"],
        "heads": fields["num_attention_heads"],
        "kv_heads": fields["num_key_value_heads"],
        "head_dim": fields["head_dim"],
        "rope_theta": fields["rope_theta"],
        "eps": fields["rms_norm_eps"],
    }


def context_of(config: Config, kind: str) -> int:
    """What files promise: readers that stop there should not stop at the length of training texts, which heads outlive
    with some loss."""
    return max(getattr(config, kind).max_tokens, SMALLEST_CONTEXT)


# EAGLE-3


def export_eagle3(config: Config, teacher: Teacher, checkpoint: dict) -> None:
    vocabulary = load_vocabulary(config)
    shape = eagle3.shape_of(config, teacher)
    out = out_folder(config, "eagle3")
    ids = torch.as_tensor(vocabulary.ids, dtype=torch.int64)
    tensors = eagle3_tensors(shape, checkpoint["model"])
    if len(tensors["lm_head.weight"]) != len(ids):
        raise InputError(
            f"{config.heads_folder}/eagle3/checkpoint.pt: expected a head for the {len(ids)} tokens of the vocabulary, "
            f"got one for {len(tensors['lm_head.weight'])}; give the settings it was trained with"
        )
    write_json(out / "config.json", eagle3_config(config, teacher, shape, len(ids)))
    write_json(out / "vocab_order.json", [int(token) for token in vocabulary.order])
    for form, name in FILES["eagle3"].items():
        if form not in config.export.formats_eagle3:
            (out / name).unlink(missing_ok=True)
        elif form == "safetensors":
            write_safetensors(out / name, config.export.dtype, shape, tensors, ids)
        else:
            dtype = "q8_0" if form == "gguf-q8_0" else config.export.dtype
            write_gguf(out / name, config, teacher, shape, tensors, ids, dtype)
    size = sum(tensor.numel() for tensor in tensors.values())
    print(f"export: {out}: EAGLE-3 head, {size:,} parameters, step {checkpoint['step']}", flush=True)


def eagle3_tensors(shape: Shape, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """float32 under the names of the SafeAILab layout; the scale of the features is folded into fc."""
    before = {
        "fc.weight": state["fc"] * state["feature_scale"],
        "midlayer.input_layernorm.weight": state["input_layernorm"],
        "midlayer.hidden_norm.weight": state["hidden_norm"],
    }
    behind = {"norm.weight": state["norm"], "lm_head.weight": state["lm_head"]}
    return before | layer_tensors(shape, state, "midlayer.") | behind


def tap_ids(taps: tuple[int, ...], layers: int) -> list[int]:
    """The ids a file gives for boundaries. No file says which of two conventions it follows (docs/drafters.md, Taps),
    so they should be read back as what they are: outputs of layers, one less, where the first is 1; boundaries
    otherwise."""
    outputs = [tap - 1 for tap in taps]
    if outputs[0] == 1 and outputs[-1] != layers:
        return outputs
    if taps[0] == 1 and taps[-1] != layers:
        option = ",".join(map(str, taps))
        print(f"export: no list of ids says these taps; to the safetensors add --head-option taps={option}", flush=True)
    return list(taps)


def eagle3_config(config: Config, teacher: Teacher, shape: Shape, draft_vocabulary: int) -> dict:
    own = {
        "architectures": ["LlamaForCausalLMEagle3"],
        "attention_bias": False,
        "draft_vocab_size": draft_vocabulary,
        "target_hidden_size": shape.teacher_hidden,
        "eagle_config": {
            "eagle_aux_hidden_state_layer_ids": tap_ids(shape.taps, shape.teacher_layers),
            "use_aux_hidden_state": True,
        },
    }
    return own | layer_config(config, "eagle3", teacher, shape)


def write_safetensors(path: Path, dtype: str, shape: Shape, tensors: dict, ids: torch.Tensor) -> None:
    stored = {name: tensor.to(DTYPES[dtype]).contiguous() for name, tensor in tensors.items()}
    member = torch.zeros(shape.teacher_vocabulary, dtype=torch.bool).index_fill(0, ids, True)
    with written_whole(path) as temporary:
        save_readable(stored | {"d2t": ids - torch.arange(len(ids)), "t2d": member}, temporary)


def write_gguf(
    path: Path, config: Config, teacher: Teacher, shape: Shape, tensors: dict, ids: torch.Tensor, dtype: str
) -> None:
    import gguf

    kind, file_type = GGUF_KINDS[dtype]
    kind = gguf.GGMLQuantizationType[kind]
    with written_whole(path) as temporary:
        writer = gguf.GGUFWriter(temporary, "eagle3")
        writer.add_type("model")
        writer.add_name(f"{teacher.name} EAGLE-3")
        add_eagle3_fields(writer, shape, context_of(config, "eagle3"))
        writer.add_file_type(gguf.LlamaFileType[file_type])
        writer.add_quantization_version(gguf.GGML_QUANT_VERSION)
        copy_tokenizer(writer, Path(config.teacher.path))
        for name, tensor in tensors.items():
            values = np.ascontiguousarray(gguf_rows(name, tensor.float(), shape).numpy())
            this = gguf.GGMLQuantizationType.F32 if values.ndim == 1 else kind
            if this == gguf.GGMLQuantizationType.Q8_0 and values.shape[1] % 32:
                this = gguf.GGMLQuantizationType.F16  # rows that are not whole blocks
            writer.add_tensor(GGUF_NAMES[name], gguf.quants.quantize(values, this), raw_dtype=this)
        writer.add_tensor("d2t", ids.numpy(), raw_dtype=gguf.GGMLQuantizationType.I64)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()


def add_eagle3_fields(writer, shape: Shape, context: int) -> None:
    writer.add_block_count(1)
    writer.add_context_length(context)
    writer.add_embedding_length(shape.hidden)
    writer.add_feed_forward_length(shape.intermediate)
    writer.add_head_count(shape.heads)
    writer.add_head_count_kv(shape.kv_heads)
    writer.add_layer_norm_rms_eps(shape.eps)
    writer.add_key_length(shape.head_dim)
    writer.add_value_length(shape.head_dim)
    writer.add_vocab_size(shape.teacher_vocabulary)
    writer.add_rope_dimension_count(shape.head_dim)
    writer.add_rope_freq_base(shape.rope_theta)
    writer.add_array("eagle3.target_layers", list(shape.taps))
    writer.add_uint32("eagle3.target_hidden_size", shape.teacher_hidden)
    writer.add_bool("eagle3.norm_before_residual", False)
    writer.add_bool("eagle3.norm_before_fc", False)


def rotated_heads(name: str, shape: Shape) -> int:
    """How many heads a matrix makes that are rotated; 0 for all but q and k."""
    return shape.heads if ".q_proj." in name else shape.kv_heads if ".k_proj." in name else 0


def gguf_rows(name: str, values: torch.Tensor, shape: Shape) -> torch.Tensor:
    """GGUF holds rows of q and k in rotated pairs (0, 1), (2, 3), ...: row h * half + j of a head becomes 2j + h."""
    heads = rotated_heads(name, shape)
    return values.reshape(heads, 2, -1, values.shape[1]).transpose(1, 2).reshape(values.shape) if heads else values


def rows_from_gguf(name: str, values: torch.Tensor, shape: Shape) -> torch.Tensor:
    heads = rotated_heads(name, shape)
    return values.reshape(heads, -1, 2, values.shape[1]).transpose(1, 2).reshape(values.shape) if heads else values


def copy_tokenizer(writer, teacher: Path) -> None:
    """llama.cpp wants the target's tokenizer in the head's file. A GGUF teacher has it; a folder has other forms of it,
    and llama.cpp's own converter is the one to read those."""
    import gguf

    if teacher.is_dir():
        print(f"export: {teacher} is a folder: no tokenizer in the GGUF files, which llama.cpp would want", flush=True)
        return
    for key, entry in gguf.GGUFReader(teacher).fields.items():
        if key.startswith("tokenizer."):
            kinds = entry.types
            writer.add_key_value(
                key, entry.contents(), kinds[0], sub_type=kinds[-1] if kinds[0] == gguf.GGUFValueType.ARRAY else None
            )


def load_exported_eagle3(folder: Path, taps: tuple[int, ...], teacher: Teacher) -> Eagle3:
    """The head as its files say it, rounding included, for simulation."""
    shape = Shape(
        **layer_sizes(read_json(folder / "config.json")),
        taps=tuple(taps),
        teacher_hidden=teacher.hidden,
        teacher_layers=teacher.layers,
        teacher_vocabulary=teacher.vocab,
    )
    path = weights_file(folder, "eagle3")
    tensors, ids = read_safetensors(path) if path.suffix == ".safetensors" else read_gguf(path, shape)
    device = teacher.embedding.device
    model = Eagle3(shape, teacher.embedding.detach(), ids.to(device)).to(device)
    own = {
        "feature_scale": torch.ones_like(model.feature_scale),
        "fc": tensors["fc.weight"],
        "input_layernorm": tensors["midlayer.input_layernorm.weight"],
        "hidden_norm": tensors["midlayer.hidden_norm.weight"],
        "norm": tensors["norm.weight"],
        "lm_head": tensors["lm_head.weight"],
    }
    model.load_state_dict(own | layer_state(tensors, "midlayer."))
    return model.requires_grad_(False).eval()


def read_safetensors(path: Path) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """Tensors, and the teacher's ids of the draft vocabulary."""
    tensors = load_file(path)
    return tensors, tensors["d2t"] + torch.arange(len(tensors["d2t"]))


def read_gguf(path: Path, shape: Shape) -> tuple[dict[str, torch.Tensor], torch.Tensor]:
    """The same from a GGUF: what an engine that was given only this file computes with."""
    import gguf

    stored = {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    tensors = {
        name: torch.tensor(gguf.quants.dequantize(stored[theirs].data, stored[theirs].tensor_type))
        for name, theirs in GGUF_NAMES.items()
    }
    ids = torch.tensor(stored["d2t"].data, dtype=torch.int64)
    return {name: rows_from_gguf(name, tensor, shape) for name, tensor in tensors.items()}, ids


# EAGLE-2


def export_eagle2(config: Config, teacher: Teacher, checkpoint: dict) -> None:
    out, shape, dtype = out_folder(config, "eagle2"), eagle2.shape_of(config, teacher), DTYPES[config.export.dtype]
    own = {"architectures": ["LlamaForCausalLM"], "bias": True, "qkv_bias": False}
    write_json(out / "config.json", own | layer_config(config, "eagle2", teacher, shape))
    write_json(out / "vocab_order.json", whole_order(config, teacher.vocab).tolist())
    tensors = eagle2_tensors(shape, checkpoint["model"])
    copies = {"embed_tokens.weight": teacher.embedding.detach().cpu()} if config.export.embedding_eagle2 else {}
    with written_whole(out / FILES["eagle2"]["safetensors"]) as temporary:
        save_readable({name: tensor.to(dtype).contiguous() for name, tensor in (tensors | copies).items()}, temporary)
    size = sum(tensor.numel() for tensor in tensors.values())
    print(f"export: {out}: EAGLE-2 head, {size:,} parameters, step {checkpoint['step']}", flush=True)


def eagle2_tensors(shape: LayerShape, state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """float32 under the names of the SafeAILab layout; the scale of the inputs is folded into fc."""
    fc = {"fc.weight": state["fc"] * state["input_scale"], "fc.bias": state["fc_bias"]}
    return fc | layer_tensors(shape, state, "layers.0.")


def load_exported_eagle2(folder: Path, teacher: Teacher) -> Eagle2:
    """The head as its files say it, rounding included, for simulation."""
    shape = LayerShape(**layer_sizes(read_json(folder / "config.json")))
    tensors = load_file(weights_file(folder, "eagle2"))
    device = teacher.embedding.device
    model = Eagle2(shape, teacher.embedding.detach(), teacher.lm_head_weight.detach().float()).to(device)
    fc = {"fc": tensors["fc.weight"], "fc_bias": tensors["fc.bias"], "input_scale": torch.ones_like(model.input_scale)}
    model.load_state_dict(fc | layer_state(tensors, "layers.0."))
    return model.requires_grad_(False).eval()


# Medusa


def export_medusa(config: Config, teacher: Teacher, checkpoint: dict) -> None:
    out = out_folder(config, "medusa")
    weight, bias = checkpoint["model"]["weight"], checkpoint["model"]["bias"]
    heads, blocks = weight.shape[:2]
    fields = {
        "medusa_num_heads": heads,
        "medusa_num_layers": blocks,
        "hidden_size": teacher.hidden,
        "vocab_size": teacher.vocab,
        "base_model_name_or_path": teacher.name,
        "torch_dtype": config.export.dtype,
        "espalier": espalier_fields(config, "medusa", teacher),
    }
    write_json(out / "config.json", fields)
    stored = {}
    for k in range(heads):
        for r in range(blocks):
            stored[f"{k}.{r}.linear.weight"] = weight[k, r].to(DTYPES[config.export.dtype]).contiguous()
            stored[f"{k}.{r}.linear.bias"] = bias[k, r].to(DTYPES[config.export.dtype]).contiguous()
    with written_whole(out / FILES["medusa"]["safetensors"]) as temporary:
        save_readable(stored, temporary)
    size = weight.numel() + bias.numel()
    print(f"export: {out}: {heads} Medusa heads of {blocks} blocks, {size:,} parameters, step {checkpoint['step']}")


def load_exported_medusa(folder: Path, teacher: Teacher) -> Medusa:
    config = read_json(folder / "config.json")
    tensors = load_file(weights_file(folder, "medusa"))
    heads, blocks = config["medusa_num_heads"], config["medusa_num_layers"]
    output = teacher.lm_head_weight.detach()
    model = Medusa(heads, blocks, output)
    for part, target in (("weight", model.weight), ("bias", model.bias)):
        values = [[tensors[f"{k}.{r}.linear.{part}"].float() for r in range(blocks)] for k in range(heads)]
        target.data.copy_(torch.stack([torch.stack(row) for row in values]))
    return model.to(output.device).requires_grad_(False).eval()
