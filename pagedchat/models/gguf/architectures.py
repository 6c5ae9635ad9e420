"""What GGUF files call architectures, their tensors and their values, and what a config.json calls them. Knows no
file.

What is a mixture of experts is in `mixtures`.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pagedchat.models.checkpoint_layout import CheckpointLayout
from pagedchat.models.gguf.mixtures import MIXTRAL, MIXTURES, Value

_LAYOUT = CheckpointLayout(
    prefixes=("",),
    embedding="token_embd",
    layer="blk",
    attention_norm="attn_norm",
    qkv=("attn_q", "attn_k", "attn_v"),
    q_norm="attn_q_norm",
    k_norm="attn_k_norm",
    out="attn_output",
    mlp_norm="ffn_norm",
    up=("ffn_gate", "ffn_up"),
    down="ffn_down",
    norm="output_norm",
    head="output",
)
_AROUND = replace(_LAYOUT, attention_end_norm="post_attention_norm", mlp_end_norm="post_ffw_norm")
_MIXTURE = replace(
    _LAYOUT,
    router="ffn_gate_inp",
    experts="{product}.{expert}",
    expert_up=("ffn_gate", "ffn_up"),
    expert_down="ffn_down",
    stacked="{product}_exps",
    stacked_up="ffn_gate_up",
    shared="{product}_shexp",
    shared_gate="ffn_gate_inp_shexp",
)
"""Experts have tensors of their own in Mixtral's old files alone."""
LAYOUTS = {
    "llama": replace(_LAYOUT, interleaved=True),
    "qwen2": _LAYOUT,
    "qwen3": _LAYOUT,
    "gemma": _LAYOUT,
    "gemma2": _AROUND,
    "gemma3": _AROUND,
    "phi2": replace(_LAYOUT, qkv=("attn_qkv",), up=("ffn_up",)),
    "phi3": replace(_LAYOUT, qkv=("attn_qkv",), up=("ffn_up",)),
    "qwen2moe": _MIXTURE,
    "qwen3moe": _MIXTURE,
    "olmoe": _MIXTURE,
    MIXTRAL: replace(_MIXTURE, interleaved=True),
    "gpt-oss": replace(_MIXTURE, mlp_norm="post_attention_norm", sinks="attn_sinks.weight"),
}
"""By architecture."""
ARCHITECTURES = tuple(name for name in LAYOUTS if name != MIXTRAL)
"""As files have them."""
MODEL_TYPES = {
    "gemma3": "gemma3_text",
    "phi2": "phi",
    "qwen2moe": "qwen2_moe",
    "qwen3moe": "qwen3_moe",
    MIXTRAL: "mixtral",
    "gpt-oss": "gpt_oss",
}
"""Of those that config.json calls otherwise."""
NAMES = {
    "hidden_size": "embedding_length",
    "intermediate_size": "feed_forward_length",
    "num_hidden_layers": "block_count",
    "num_attention_heads": "attention.head_count",
    "num_key_value_heads": "attention.head_count_kv",
    "max_position_embeddings": "context_length",
    "rms_norm_eps": "attention.layer_norm_rms_epsilon",
    "layer_norm_eps": "attention.layer_norm_epsilon",
    "rope_theta": "rope.freq_base",
    "head_dim": "attention.key_length",
    "sliding_window": "attention.sliding_window",
    "attn_logit_softcapping": "attn_logit_softcapping",
    "final_logit_softcapping": "final_logit_softcapping",
}
"""As config.json has it -> behind the architecture and a dot."""


def _of_qwen(value: Value, _found: dict[str, Any]) -> dict[str, Any]:
    return {"use_sliding_window": False, "sliding_window": None}


def _of_gemma2(value: Value, found: dict[str, Any]) -> dict[str, Any]:
    """The largest model divides scores by the share of a head, all others by the head."""
    largest = found.get("num_hidden_layers") == 46
    return {"query_pre_attn_scalar": _share(found) if largest else found.get("head_dim")}


def _of_gemma3(value: Value, found: dict[str, Any]) -> dict[str, Any]:
    largest = found.get("num_hidden_layers") == 62
    local = value("rope.freq_base_swa") or 10000.0
    pattern = value("attention.sliding_window_pattern")
    pattern = pattern.index(False) + 1 if isinstance(pattern, list) and False in pattern else pattern or 6
    return {
        "query_pre_attn_scalar": _share(found) if largest else found.get("head_dim"),
        "rope_local_base_freq": local,
        "sliding_window_pattern": pattern,
    }


def _share(found: dict[str, Any]) -> int:
    return int(found["hidden_size"] // found["num_attention_heads"])


def _of_phi(value: Value, found: dict[str, Any]) -> dict[str, Any]:
    turned = value("rope.dimension_count")
    head_dim = found.get("head_dim") or _share(found)
    share = turned / head_dim if turned else 1.0
    return {"partial_rotary_factor": share, "hidden_act": "gelu_new"}


def _of_phi3(value: Value, found: dict[str, Any]) -> dict[str, Any]:
    turned = value("rope.dimension_count")
    head_dim = found.get("head_dim") or _share(found)
    trained = value("rope.scaling.original_context_length")
    return {"partial_rotary_factor": turned / head_dim if turned else 1.0} | (
        {"original_max_position_embeddings": trained} if trained else {}
    )


EXTRA: Mapping[str, Callable[[Value, dict[str, Any]], dict[str, Any]]] = {
    "qwen2": _of_qwen,
    "qwen3": _of_qwen,
    "gemma2": _of_gemma2,
    "gemma3": _of_gemma3,
    "phi2": _of_phi,
    "phi3": _of_phi3,
    **MIXTURES,
}
"""What only some have besides: from the values and what is known so far."""
