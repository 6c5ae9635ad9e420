"""Decoders like a Llama whose feed-forwards are mixtures of experts: Mixtral (Jiang et al. 2024, arXiv 2401.04088),
Qwen2-MoE (arXiv 2407.10671), Qwen3-MoE (arXiv 2505.09388), OLMoE (Muennighoff et al. 2024, arXiv 2409.02060).

Mixtral is a Mistral, OLMoE norms queries and keys over their width, Qwen2-MoE has an expert that all tokens share.
Layers that are not sparse have the feed-forward of their family.
"""

from typing import Any

from pagedchat.layers.experts import MOST_EXPERTS, MixtureConfig
from pagedchat.models.checkpoint_layout import CheckpointLayout
from pagedchat.models.decoder_config import DecoderConfig, QkNorm
from pagedchat.models.families.common import BASE_DEFAULTS, every, no_windows, read_sizes, read_windows, rms_norm
from pagedchat.models.families.rotary import read_rotary
from pagedchat.models.raw_config import NotNativeError, RawConfig

MIXTRAL_DEFAULTS: dict[str, Any] = BASE_DEFAULTS | {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_theta": 1e6,
    "num_experts_per_tok": 2,
    "num_local_experts": 8,
}
"""What a config means that leaves them out."""
_QWEN_DEFAULTS: dict[str, Any] = BASE_DEFAULTS | {
    "vocab_size": 151936,
    "hidden_size": 2048,
    "num_hidden_layers": 24,
    "max_position_embeddings": 32768,
    "rms_norm_eps": 1e-6,
    "sliding_window": 4096,
    "use_sliding_window": False,
    "decoder_sparse_step": 1,
    "norm_topk_prob": False,
    "eos_token_id": None,
}
QWEN2_MOE_DEFAULTS = _QWEN_DEFAULTS | {
    "intermediate_size": 5632,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "max_window_layers": 28,
    "moe_intermediate_size": 1408,
    "shared_expert_intermediate_size": 5632,
    "num_experts_per_tok": 4,
    "num_experts": 60,
    "qkv_bias": True,
}
QWEN3_MOE_DEFAULTS = _QWEN_DEFAULTS | {
    "intermediate_size": 6144,
    "num_key_value_heads": 4,
    "moe_intermediate_size": 768,
    "num_experts_per_tok": 8,
    "num_experts": 128,
}
OLMOE_DEFAULTS: dict[str, Any] = BASE_DEFAULTS | {
    "vocab_size": 50304,
    "hidden_size": 2048,
    "intermediate_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 16,
    "max_position_embeddings": 4096,
    "rms_norm_eps": 1e-5,
    "num_experts_per_tok": 8,
    "num_experts": 64,
    "norm_topk_prob": False,
    "eos_token_id": 50279,
}
_MIXTRAL = CheckpointLayout(
    router="block_sparse_moe.gate",
    experts="block_sparse_moe.experts.{expert}.{product}",
    expert_up=("w1", "w3"),
    expert_down="w2",
)


def read_mixtral(raw: RawConfig) -> DecoderConfig:
    """Read a Mixtral's.

    Raises:
        NotNativeError: an unusual value; so for the others.
    """
    raw.refuse("layer_types")
    window = raw.optional_integer("sliding_window")
    mixture = read_mixture(raw, raw.integer("intermediate_size"), renormalised=True)
    return _read(raw, windows=read_windows(raw, window, lambda _: True), mixture=mixture, layout=_MIXTRAL)


def read_qwen2_moe(raw: RawConfig) -> DecoderConfig:
    """Read a Qwen2-MoE's: of the first layers every other one may have a window."""
    window = raw.integer("sliding_window") if raw.flag("use_sliding_window") else None
    first = raw.integer("max_window_layers")
    return _read(
        raw,
        windows=read_windows(raw, window, lambda layer: layer % 2 == 0 and layer < first),
        qkv_bias=raw.flag("qkv_bias"),
        mixture=read_mixture(
            raw,
            raw.integer("moe_intermediate_size"),
            renormalised=raw.flag("norm_topk_prob"),
            shared_width=raw.integer("shared_expert_intermediate_size"),
            gated_share=True,
        ),
        sparse=_sparse(raw),
    )


def read_qwen3_moe(raw: RawConfig) -> DecoderConfig:
    """Read a Qwen3-MoE's: all layers have a window if any has."""
    raw.refuse("layer_types")
    bias = raw.flag("attention_bias")
    window = raw.integer("sliding_window") if raw.flag("use_sliding_window") else None
    return _read(
        raw,
        windows=read_windows(raw, window, lambda _: True),
        qkv_bias=bias,
        out_bias=bias,
        qk_norm=QkNorm(rms_norm(raw)),
        mixture=read_mixture(raw, raw.integer("moe_intermediate_size"), renormalised=raw.flag("norm_topk_prob")),
        sparse=_sparse(raw),
    )


def read_olmoe(raw: RawConfig) -> DecoderConfig:
    """Read an OLMoE's."""
    raw.refuse("layer_types")
    bias = raw.flag("attention_bias")
    return _read(
        raw,
        windows=no_windows(raw),
        qkv_bias=bias,
        out_bias=bias,
        qk_norm=QkNorm(rms_norm(raw), "width"),
        qkv_clip=raw.optional_number("clip_qkv"),
        mixture=read_mixture(raw, raw.integer("intermediate_size"), renormalised=raw.flag("norm_topk_prob")),
    )


def _read(raw: RawConfig, **others: Any) -> DecoderConfig:
    """All layers are sparse where nothing else is said."""
    shared = read_sizes(raw) | {"norm": rms_norm(raw), "rotaries": every(raw, read_rotary(raw))}
    return DecoderConfig(**shared | {"sparse": (True,) * raw.integer("num_hidden_layers")} | others)


def read_mixture(raw: RawConfig, width: int, **others: Any) -> MixtureConfig:
    """Its number of experts has had two names."""
    name = "num_local_experts" if raw.get("num_local_experts") is not None else "num_experts"
    num_experts, per_token = raw.integer(name), raw.integer("num_experts_per_tok")
    if num_experts > MOST_EXPERTS or per_token > num_experts:
        raise NotNativeError(f"a token of it has {per_token} of {num_experts} experts")
    raw.one_of("hidden_act", {"silu": None})
    return MixtureConfig(num_experts=num_experts, per_token=per_token, width=width, **others)


def _sparse(raw: RawConfig) -> tuple[bool, ...]:
    """Every so many layers, but for those that are named."""
    step, plain = raw.integer("decoder_sparse_step"), raw.get("mlp_only_layers") or []
    if not isinstance(plain, list) or not all(type(layer) is int for layer in plain):
        raise NotNativeError(f"its mlp_only_layers are {plain!r}")
    layers = range(raw.integer("num_hidden_layers"))
    return tuple(layer not in plain and (layer + 1) % step == 0 for layer in layers)
