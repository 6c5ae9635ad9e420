"""What the values of a GGUF file say of a mixture of experts, as a config.json would say it. Knows no tensor.

Whether the weights of a token's experts are made to sum to one no file of these says: llama.cpp knows it by the
architecture, and so does this.
"""

from collections.abc import Callable
from typing import Any

from pagedchat.models.raw_config import NotNativeError

Value = Callable[[str], Any]
"""What a file has under a name, behind its architecture and a dot; None where it has nothing."""

MIXTRAL = "llama with experts"
"""What is called a Mixtral everywhere else, and whose files say that it is a Llama."""
_SOFTMAX, _SOFTMAX_OF_CHOSEN = 1, 3
"""What makes weights of the router's logits; the second is gpt-oss's, whose weights always sum to one."""


def with_experts(architecture: str, num_experts: object) -> str:
    """What an architecture is called here whose files have experts or not.

    Raises:
        NotNativeError: they have none, or should not have any.
    """
    if architecture == "llama" and num_experts:
        return MIXTRAL
    if num_experts and architecture not in MIXTURES:
        raise NotNativeError(f"it is a mixture of experts of the architecture {architecture}, which has none")
    if architecture in MIXTURES and not num_experts:
        raise NotNativeError("it has no expert_count")
    return architecture


def _experts(value: Value) -> dict[str, Any]:
    scale, used = value("expert_weights_scale"), value("expert_used_count")
    if scale not in (None, 0, 1):
        raise NotNativeError(f"it multiplies what its experts give by {scale!r:.60}")
    if value("expert_gating_func") not in (None, 0, _SOFTMAX, _SOFTMAX_OF_CHOSEN):
        raise NotNativeError("it gives experts other weights than those of a softmax")
    if value("expert_group_count") not in (None, 0, 1) or value("leading_dense_block_count") not in (None, 0):
        raise NotNativeError("its experts are in groups, or not in all of its layers")
    if used is None:
        raise NotNativeError("it has no expert_used_count")
    return {"num_experts": value("expert_count"), "num_experts_per_tok": used, "num_local_experts": None}


def _width(value: Value, found: dict[str, Any]) -> Any:
    """Of an expert's middle; old files have it by the middle of the layer."""
    width, whole, used = (
        value("expert_feed_forward_length"),
        found.get("intermediate_size"),
        value("expert_used_count"),
    )
    is_share = width is None and type(whole) is int and type(used) is int and used > 0
    return whole // used if is_share else width


def _of_qwen2moe(value: Value, found: dict[str, Any]) -> dict[str, Any]:
    shared = value("expert_shared_feed_forward_length")
    return _of_qwen3moe(value, found) | {
        "shared_expert_intermediate_size": found.get("intermediate_size") if shared is None else shared,
        "norm_topk_prob": False,
    }


def _of_qwen3moe(value: Value, found: dict[str, Any]) -> dict[str, Any]:
    return _experts(value) | {
        "moe_intermediate_size": _width(value, found),
        "norm_topk_prob": True,
        "use_sliding_window": False,
        "sliding_window": None,
    }


def _of_olmoe(value: Value, _found: dict[str, Any]) -> dict[str, Any]:
    return _experts(value) | {"norm_topk_prob": False, "clip_qkv": value("attention.clamp_kqv")}


def _of_mixtral(value: Value, found: dict[str, Any]) -> dict[str, Any]:
    theta = found.get("rope_theta", 10000.0)
    return _experts(value) | {"sliding_window": None, "rope_theta": theta}


def _of_gpt_oss(value: Value, found: dict[str, Any]) -> dict[str, Any]:
    """Every other layer has a window, the first one too. Bounds of a rotary embedding's ramp are not rounded."""
    if value("attention.sliding_window_pattern") not in (None, 2):
        raise NotNativeError("its windows are not those of every other layer")
    width, scaling = value("expert_feed_forward_length"), found.get("rope_scaling")
    return _experts(value) | {
        "intermediate_size": found.get("intermediate_size") if width is None else width,
        "rope_parameters": None,
        "rope_scaling": None if scaling is None else scaling | {"truncate": False},
    }


MIXTURES: dict[str, Callable[[Value, dict[str, Any]], dict[str, Any]]] = {
    "qwen2moe": _of_qwen2moe,
    "qwen3moe": _of_qwen3moe,
    "olmoe": _of_olmoe,
    MIXTRAL: _of_mixtral,
    "gpt-oss": _of_gpt_oss,
}
"""By architecture."""
