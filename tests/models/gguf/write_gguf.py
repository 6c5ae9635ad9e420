"""Tiny checkpoints of transformers as GGUF files, written by the `gguf` package as llama.cpp's converter does."""

import json
from pathlib import Path
from typing import Any
from zlib import crc32

import numpy as np
import torch
from safetensors.torch import load_file, save_file

from tests.models.gguf.gguf_tensors import Experts, Planned, apart, merged, order_of, planned

ARCHITECTURES = {
    "llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma": "gemma", "gemma2": "gemma2",
    "gemma3_text": "gemma3", "phi": "phi2", "phi3": "phi3", "mixtral": "llama", "qwen2_moe": "qwen2moe",
    "qwen3_moe": "qwen3moe", "olmoe": "olmoe", "gpt_oss": "gpt-oss",
}  # fmt: skip
"""By `model_type`."""
ROUTERS = ("mlp.gate.weight", "mlp.router.weight", "block_sparse_moe.gate.weight", "mlp.shared_expert_gate.weight")
"""They are floats whatever the rest is."""
_VALUES = {
    "hidden_size": "embedding_length", "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count", "num_key_value_heads": "attention.head_count_kv",
    "max_position_embeddings": "context_length", "head_dim": "attention.key_length",
    "sliding_window": "attention.sliding_window",
    "num_experts": "expert_count", "num_local_experts": "expert_count",
    "num_experts_per_tok": "expert_used_count", "moe_intermediate_size": "expert_feed_forward_length",
    "shared_expert_intermediate_size": "expert_shared_feed_forward_length",
}  # fmt: skip
_FLOAT_VALUES = {
    "rms_norm_eps": "attention.layer_norm_rms_epsilon", "layer_norm_eps": "attention.layer_norm_epsilon",
    "clip_qkv": "attention.clamp_kqv",
    "attn_logit_softcapping": "attn_logit_softcapping", "final_logit_softcapping": "final_logit_softcapping",
}  # fmt: skip


def write_gguf(
    path: Path,
    checkpoint: Path,
    kind: str = "F32",
    extra: dict[str, Any] | None = None,
    experts: Experts = "stacked",
    per_part: int = 0,
    *,
    empty_first: bool = False,
) -> Path:
    """Write `path` from a folder, tensor by tensor, so that a large one is nowhere as a whole.

    Args:
        path: of the file.
        checkpoint: as transformers saves it, one of `ARCHITECTURES`.
        kind: of matrices; norms, biases and routers are F32. In MXFP4 are experts alone, all else in Q8_0.
        extra: values besides, by their whole names, and arrays.
        experts: how they are laid out.
        per_part: tensors in each file, if the model is to be split over several.
        empty_first: whether the first of them has none.

    Returns:
        The file, or the first one of several.
    """
    import gguf

    config = json.loads((checkpoint / "config.json").read_text())
    architecture = ARCHITECTURES[config["model_type"]]
    writer = gguf.GGUFWriter(path, architecture, split_max_tensors=per_part, small_first_shard=empty_first)
    if architecture == "gpt-oss":
        config["moe_intermediate_size"] = config["intermediate_size"]
    for ours, theirs in (*_VALUES.items(), ("head_dim", "attention.value_length")):
        if config.get(ours) is not None:
            writer.add_uint32(f"{architecture}.{theirs}", config[ours])
    for ours, theirs in _FLOAT_VALUES.items():
        if config.get(ours) is not None:
            writer.add_float32(f"{architecture}.{theirs}", config[ours])
    rope = config.get("rope_parameters") or {}
    rope = rope.get("full_attention", rope)
    writer.add_float32(f"{architecture}.rope.freq_base", rope.get("rope_theta", 10000.0))
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    writer.add_rope_dimension_count(int(head_dim * rope.get("partial_rotary_factor", 1.0)))
    if rope.get("rope_type") == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])
    writer.add_eos_token_id(config["eos_token_id"])
    arrays = {name: value for name, value in (extra or {}).items() if isinstance(value, np.ndarray)}
    for name, value in (extra or {}).items():
        if name not in arrays:
            _add_value(writer, name, value)
    kinds, tensors = gguf.GGMLQuantizationType, planned(config, checkpoint, architecture, experts)
    for name, value in arrays.items():
        writer.add_tensor_info(name, value.shape, value.dtype, value.nbytes)
    for tensor in tensors:
        stored = kinds[_kind_of(tensor, kind)]
        writer.add_tensor_info(tensor.name, tensor.shape, np.dtype("f4"), _num_bytes(tensor, stored), stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    for value in arrays.values():
        writer.write_tensor_data(value)
    for tensor in tensors:
        writer.write_tensor_data(_content(tensor, _kind_of(tensor, kind)))
    files = writer.format_shard_names(path)
    writer.close()
    return files[0]


def _kind_of(tensor: Planned, kind: str) -> str:
    if not tensor.in_blocks:
        return "F32"
    return "Q8_0" if kind == "MXFP4" and "_exps" not in tensor.name else kind


def _num_bytes(tensor: Planned, kind: Any) -> int:
    import gguf

    size, num_bytes = gguf.GGML_QUANT_SIZES[kind]
    return int(np.prod(tensor.shape)) // size * num_bytes


def _content(tensor: Planned, kind: str) -> np.ndarray:
    """Matrix by matrix."""
    import gguf

    content, at = np.empty(_num_bytes(tensor, gguf.GGMLQuantizationType[kind]), np.uint8), 0
    for part in tensor.parts():
        found = quantised(part.float().numpy(), kind).reshape(-1).view(np.uint8)
        content[at : at + len(found)] = found
        at += len(found)
    assert at == len(content)
    return content


def quantised(floats: np.ndarray, kind: str) -> np.ndarray:
    """In blocks; of kinds that the package reads and does not write, blocks of such a size with any digits."""
    import gguf

    number = gguf.GGMLQuantizationType[kind]
    try:
        return gguf.quantize(floats, number)
    except NotImplementedError:
        size, num_bytes = gguf.GGML_QUANT_SIZES[number]
        random = np.random.default_rng(crc32(floats.tobytes()))
        rows = random.integers(0, 256, (*floats.shape[:-1], floats.shape[-1] // size, num_bytes), dtype=np.uint8)
        levels = {"Q4_K": (32, 8), "Q5_K": (32, 16), "Q6_K": (64, 48)}[kind]
        scale = np.float16(floats.std() / levels[0] / levels[1])
        for place in (208,) if kind == "Q6_K" else (0, 2):
            rows[..., place : place + 2] = np.frombuffer(scale.tobytes(), dtype=np.uint8)
        if kind == "Q6_K":  # groups that are much alike
            groups = rows[..., 192:208].view(np.int8)
            groups[...] = random.choice([-1, 1], groups.shape) * random.integers(64, 128, groups.shape)
        else:  # as many above zero as below
            rows[..., 4:16] = 33
            half = np.float16(scale * (7.5 if kind == "Q4_K" else 15.5))
            rows[..., 2:4] = np.frombuffer(half.tobytes(), dtype=np.uint8)
        return rows.reshape(*floats.shape[:-1], -1)


def _meant(rows: torch.Tensor, kind: str) -> torch.Tensor:
    import gguf

    floats = gguf.dequantize(quantised(rows.float().numpy(), kind), gguf.GGMLQuantizationType[kind])
    return torch.from_numpy(np.ascontiguousarray(floats)).view(rows.shape)


def meant_by(folder: Path, checkpoint: Path, kind: str) -> Path:
    """The checkpoint with the weights that the blocks stand for, as the package has it; returns the folder."""
    config = json.loads((checkpoint / "config.json").read_text())
    tensors = {}
    for name, tensor in load_file(checkpoint / "model.safetensors").items():
        if tensor.dim() == 3:
            parts = [torch.stack([_meant(each, kind) for each in part]) for part in apart(name, tensor).values()]
            tensors[name] = merged(parts)
        elif tensor.dim() == 2 and not name.endswith((*ROUTERS, "_bias")):
            order = order_of(config, name)
            its_kind = "Q8_0" if kind == "MXFP4" and ".experts." not in name else kind
            back = _meant(tensor if order is None else tensor[order], its_kind)
            tensors[name] = torch.empty_like(back)
            tensors[name][slice(None) if order is None else order] = back
        else:
            tensors[name] = tensor
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def _add_value(writer: Any, name: str, value: Any) -> None:
    if isinstance(value, bool):
        writer.add_bool(name, value)
    elif isinstance(value, int):
        writer.add_uint32(name, value)
    elif isinstance(value, float):
        writer.add_float32(name, value)
    elif isinstance(value, str):
        writer.add_string(name, value)
    else:
        writer.add_array(name, value)
