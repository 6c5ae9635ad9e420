"""Llama (Touvron et al. 2023, arXiv 2302.13971) and those built like it: rotary positions, RMS norms before
attention and feed-forward, a gated feed-forward.

SmolLM and many others are Llamas by name. Mistral and Ministral have windows, Qwen2 biases on queries, keys and
values, Qwen3 norms of queries and keys, SmolLM3 layers that do not turn, Granite four factors.
"""

from typing import Any

from pagedchat.models.decoder_config import DecoderConfig, QkNorm
from pagedchat.models.families.common import BASE_DEFAULTS, every, no_windows, read_sizes, read_windows, rms_norm
from pagedchat.models.families.rotary import read_rotary
from pagedchat.models.raw_config import NotNativeError, RawConfig

LLAMA_DEFAULTS: dict[str, Any] = BASE_DEFAULTS | {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "rms_norm_eps": 1e-6,
    "mlp_bias": False,
}
"""What a config means that leaves them out."""
MISTRAL_DEFAULTS = LLAMA_DEFAULTS | {
    "intermediate_size": 14336,
    "num_key_value_heads": 8,
    "max_position_embeddings": 131072,
    "sliding_window": 4096,
}
QWEN2_DEFAULTS = LLAMA_DEFAULTS | {
    "vocab_size": 151936,
    "intermediate_size": 22016,
    "num_key_value_heads": 32,
    "max_position_embeddings": 32768,
    "sliding_window": 4096,
    "use_sliding_window": False,
    "max_window_layers": 28,
    "eos_token_id": None,
}
QWEN3_DEFAULTS = QWEN2_DEFAULTS | {"head_dim": 128}
SMOLLM3_DEFAULTS = LLAMA_DEFAULTS | {
    "vocab_size": 128256,
    "hidden_size": 2048,
    "num_hidden_layers": 36,
    "num_attention_heads": 16,
    "num_key_value_heads": 4,
    "max_position_embeddings": 32768,
    "rope_theta": 2000000.0,
    "use_sliding_window": False,
    "no_rope_layer_interval": 4,
    "tie_word_embeddings": True,
    "eos_token_id": 128001,
}
_GRANITE_FACTORS = ("embedding_multiplier", "logits_scaling", "residual_multiplier", "attention_multiplier")
GRANITE_DEFAULTS = LLAMA_DEFAULTS | dict.fromkeys(_GRANITE_FACTORS, 1.0)


def read_llama(raw: RawConfig) -> DecoderConfig:
    """Read a Llama's.

    Raises:
        NotNativeError: an unusual value; so for the others.
    """
    raw.refuse("layer_types")
    bias = raw.flag("attention_bias")
    return _read(raw, qkv_bias=bias, out_bias=bias, mlp_bias=raw.flag("mlp_bias"))


def read_mistral(raw: RawConfig) -> DecoderConfig:
    """Read a Mistral's: no biases."""
    raw.refuse("layer_types")
    return read_ministral(raw)


def read_ministral(raw: RawConfig) -> DecoderConfig:
    """Read a Ministral's: a Mistral whose layers may differ."""
    return _read(raw, windows=read_windows(raw, raw.optional_integer("sliding_window"), lambda _: True))


def read_qwen2(raw: RawConfig) -> DecoderConfig:
    """Read a Qwen2's: biases on the way into attention, none on the way out."""
    return _read(raw, windows=_qwen_windows(raw), qkv_bias=True)


def read_qwen3(raw: RawConfig) -> DecoderConfig:
    """Read a Qwen3's."""
    bias, qk_norm = raw.flag("attention_bias"), QkNorm(rms_norm(raw))
    return _read(raw, windows=_qwen_windows(raw), qkv_bias=bias, out_bias=bias, qk_norm=qk_norm)


def read_smollm3(raw: RawConfig) -> DecoderConfig:
    """Read a SmolLM3's: every fourth layer knows no positions, and has a window if any has."""
    bias, turns = raw.flag("attention_bias"), _turning(raw)
    window = raw.optional_integer("sliding_window") if raw.flag("use_sliding_window") else None
    rotary = read_rotary(raw)
    return _read(
        raw,
        rotaries=tuple(rotary if turned else None for turned in turns),
        windows=read_windows(raw, window, lambda layer: not turns[layer]),
        qkv_bias=bias,
        out_bias=bias,
        mlp_bias=raw.flag("mlp_bias"),
    )


def read_granite(raw: RawConfig) -> DecoderConfig:
    """Read a Granite's."""
    raw.refuse("layer_types")
    bias = raw.flag("attention_bias")
    embedding, logits, residual, scores = (raw.number(name) for name in _GRANITE_FACTORS)
    return _read(
        raw,
        qkv_bias=bias,
        out_bias=bias,
        mlp_bias=raw.flag("mlp_bias"),
        embedding_scale=embedding,
        logits_scale=1 / logits,
        residual_scale=residual,
        score_scale=scores,
    )


def _read(raw: RawConfig, **others: Any) -> DecoderConfig:
    shared = read_sizes(raw) | {"norm": rms_norm(raw), "windows": no_windows(raw)}
    if "rotaries" not in others:
        shared["rotaries"] = every(raw, read_rotary(raw))
    return DecoderConfig(**shared | others)


def _qwen_windows(raw: RawConfig) -> tuple[int | None, ...]:
    """The first layers see everything."""
    first = raw.optional_integer("max_window_layers") or 0
    window = raw.optional_integer("sliding_window") if raw.flag("use_sliding_window") else None
    return read_windows(raw, window, lambda layer: layer >= first)


def _turning(raw: RawConfig) -> tuple[bool, ...]:
    """For each layer whether it turns queries and keys."""
    num_layers, listed = raw.integer("num_hidden_layers"), raw.get("no_rope_layers")
    if listed is None:
        interval = raw.integer("no_rope_layer_interval")
        return tuple((layer + 1) % interval != 0 for layer in range(num_layers))
    if not isinstance(listed, list) or len(listed) != num_layers or not all(each in (0, 1) for each in listed):
        raise NotNativeError(f"its no_rope_layers are {listed!r}")
    return tuple(map(bool, listed))
