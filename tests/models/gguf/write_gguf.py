"""Tiny checkpoints of transformers as GGUF files, written by the `gguf` package as llama.cpp's converter does."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file, save_file

ARCHITECTURES = {
    "llama": "llama", "mistral": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma": "gemma", "gemma2": "gemma2",
    "gemma3_text": "gemma3", "phi": "phi2", "phi3": "phi3",
}  # fmt: skip
"""By `model_type`."""
_NAMES = {
    "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k", "self_attn.v_proj": "attn_v",
    "self_attn.qkv_proj": "attn_qkv", "self_attn.o_proj": "attn_output", "self_attn.dense": "attn_output",
    "self_attn.q_norm": "attn_q_norm", "self_attn.k_norm": "attn_k_norm", "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up", "mlp.gate_up_proj": "ffn_up", "mlp.fc1": "ffn_up", "mlp.down_proj": "ffn_down",
    "mlp.fc2": "ffn_down", "input_layernorm": "attn_norm",
}  # fmt: skip
_OUTSIDE = {
    "model.embed_tokens": "token_embd", "model.norm": "output_norm", "model.final_layernorm": "output_norm",
    "lm_head": "output",
}  # fmt: skip
_AFTER_ATTENTION = "post_attention_layernorm"
_AROUND = {
    _AFTER_ATTENTION: "post_attention_norm", "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}  # fmt: skip
_VALUES = {
    "hidden_size": "embedding_length", "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count", "num_key_value_heads": "attention.head_count_kv",
    "max_position_embeddings": "context_length", "head_dim": "attention.key_length",
    "sliding_window": "attention.sliding_window",
}  # fmt: skip
_FLOAT_VALUES = {
    "rms_norm_eps": "attention.layer_norm_rms_epsilon", "layer_norm_eps": "attention.layer_norm_epsilon",
    "attn_logit_softcapping": "attn_logit_softcapping", "final_logit_softcapping": "final_logit_softcapping",
}  # fmt: skip


def write_gguf(path: Path, checkpoint: Path, kind: str = "F32", extra: dict[str, Any] | None = None) -> Path:
    """Write `path` from a folder.

    Args:
        path: of the file.
        checkpoint: as transformers saves it, one of `ARCHITECTURES`.
        kind: of matrices; norms and biases are F32.
        extra: values besides, by their whole names.
    """
    import gguf

    config = json.loads((checkpoint / "config.json").read_text())
    architecture = ARCHITECTURES[config["model_type"]]
    writer = gguf.GGUFWriter(path, architecture)
    for ours, theirs in _VALUES.items():
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
    writer.add_eos_token_id(config["eos_token_id"])
    for name, value in (extra or {}).items():
        if isinstance(value, np.ndarray):
            writer.add_tensor(name, value)
        else:
            _add_value(writer, name, value)
    kinds = gguf.GGMLQuantizationType
    for name, tensor in _tensors(config, checkpoint, architecture):
        floats = tensor.float().numpy()
        stored = kinds[kind] if floats.ndim == 2 else kinds.F32
        writer.add_tensor(name, quantised(floats, stored.name), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def quantised(floats: np.ndarray, kind: str) -> np.ndarray:
    """In blocks; of kinds that the package reads and does not write, blocks of such a size with any digits."""
    import gguf

    number = gguf.GGMLQuantizationType[kind]
    try:
        return gguf.quantize(floats, number)
    except NotImplementedError:
        size, num_bytes = gguf.GGML_QUANT_SIZES[number]
        random = np.random.default_rng(floats.size)
        rows = random.integers(0, 256, (*floats.shape[:-1], floats.shape[-1] // size, num_bytes), dtype=np.uint8)
        levels = {"Q4_K": (32, 8), "Q5_K": (32, 16), "Q6_K": (64, 16)}[kind]
        scale = np.float16(floats.std() / levels[0] / levels[1])
        for place in (208,) if kind == "Q6_K" else (0, 2):
            rows[..., place : place + 2] = np.frombuffer(scale.tobytes(), dtype=np.uint8)
        if kind != "Q6_K":  # as many above zero as below
            rows[..., 4:16] = 33
            half = np.float16(scale * (7.5 if kind == "Q4_K" else 15.5))
            rows[..., 2:4] = np.frombuffer(half.tobytes(), dtype=np.uint8)
        return rows.reshape(*floats.shape[:-1], -1)


def meant_by(folder: Path, checkpoint: Path, kind: str) -> Path:
    """The checkpoint with the weights that the blocks stand for, as the package has it; returns the folder."""
    import gguf

    config = json.loads((checkpoint / "config.json").read_text())
    tensors = {}
    for name, tensor in load_file(checkpoint / "model.safetensors").items():
        if tensor.dim() == 2:
            order = _order(config, name)
            rows = tensor.float() if order is None else tensor.float()[order]
            floats = gguf.dequantize(quantised(rows.numpy(), kind), gguf.GGMLQuantizationType[kind])
            back = torch.from_numpy(np.ascontiguousarray(floats)).view(tensor.shape)
            tensors[name] = torch.empty_like(back)
            tensors[name][slice(None) if order is None else order] = back
        else:
            tensors[name] = tensor
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def _tensors(config: dict[str, Any], checkpoint: Path, architecture: str) -> list[tuple[str, torch.Tensor]]:
    found, fused = [], {}
    for name, tensor in load_file(checkpoint / "model.safetensors").items():
        order = _order(config, name)
        given = tensor if order is None else tensor[order]
        if architecture.startswith("gemma") and "norm" in name:
            given = given + 1
        theirs = _name(name, architecture)
        if architecture == "phi2" and any(f".attn_{which}." in theirs for which in "qkv"):
            fused[theirs] = given
        else:
            found.append((theirs, given))
    for layer in range(config["num_hidden_layers"]) if fused else ():
        for part in ("weight", "bias"):
            parts = [fused[f"blk.{layer}.attn_{which}.{part}"] for which in "qkv"]
            found.append((f"blk.{layer}.attn_qkv.{part}", torch.cat(parts)))
    return found


def _order(config: dict[str, Any], name: str) -> torch.Tensor | None:
    """Rows of queries and keys as Llama's converter has them: pairs that turn together side by side."""
    which = {"q_proj": "num_attention_heads", "k_proj": "num_key_value_heads"}
    heads = next((config[field] for part, field in which.items() if part in name), None)
    if heads is None or config["model_type"] not in ("llama", "mistral"):
        return None
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return torch.arange(heads * head_dim).view(heads, 2, head_dim // 2).transpose(1, 2).flatten()


def _name(name: str, architecture: str) -> str:
    stem, _, end = name.rpartition(".")
    if stem in _OUTSIDE:
        return f"{_OUTSIDE[stem]}.{end}"
    _, _, layer, rest = stem.split(".", 3)
    around = architecture in ("gemma2", "gemma3")
    names = _NAMES | (_AROUND if around else {_AFTER_ATTENTION: "ffn_norm"})
    return f"blk.{layer}.{names[rest]}.{end}"


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
