"""The shape of a Llama-like model, from its config.json.

Four families, one build: Llama (SmolLM and many others are Llamas by name), Mistral with a window in every layer,
Qwen2 with biases on queries, keys and values, Qwen3 with norms of queries and keys.
"""

from dataclasses import dataclass
from typing import Any

from pagedchat.layers.activation import ACTIVATIONS
from pagedchat.layers.attention import Heads
from pagedchat.layers.rotary_frequencies import RotaryConfig
from pagedchat.models.raw_config import NotNativeError, RawConfig
from pagedchat.models.rotary_config import ROTARY_DEFAULTS, read_rotary_config

LLAMA_DEFAULTS: dict[str, Any] = {
    **ROTARY_DEFAULTS,
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "rms_norm_eps": 1e-6,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
    "attention_bias": False,
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

_FULL, _SLIDING = "full_attention", "sliding_attention"


@dataclass(frozen=True, slots=True, kw_only=True)
class LlamaConfig:
    """What a Llama-like model is built from."""

    vocab_size: int
    hidden_size: int
    ffn_size: int
    num_layers: int
    heads: Heads
    max_len: int
    activation: str
    norm_eps: float
    rotary: RotaryConfig
    windows: tuple[int | None, ...]
    """For each layer the tokens that a token sees, itself included; None sees all."""
    qkv_bias: bool
    out_bias: bool
    mlp_bias: bool
    qk_norm: bool
    """Queries and keys are normed, head by head."""
    tied: bool
    """The head is the token embedding."""


def read_llama_config(raw: RawConfig) -> LlamaConfig:
    """Read a Llama's.

    Raises:
        NotNativeError: an unusual value; so for the others.
    """
    raw.refuse("layer_types")
    bias = raw.flag("attention_bias")
    return _read(raw, window=None, qkv_bias=bias, out_bias=bias, mlp_bias=raw.flag("mlp_bias"))


def read_mistral_config(raw: RawConfig) -> LlamaConfig:
    """Read a Mistral's: no biases."""
    raw.refuse("layer_types")
    return _read(raw, window=raw.optional_integer("sliding_window"))


def read_qwen2_config(raw: RawConfig) -> LlamaConfig:
    """Read a Qwen2's: biases on the way into attention, none on the way out."""
    return _read(raw, window=_qwen_window(raw), qkv_bias=True)


def read_qwen3_config(raw: RawConfig) -> LlamaConfig:
    """Read a Qwen3's."""
    bias = raw.flag("attention_bias")
    return _read(raw, window=_qwen_window(raw), qkv_bias=bias, out_bias=bias, qk_norm=True)


def _read(
    raw: RawConfig,
    *,
    window: int | None,
    qkv_bias: bool = False,
    out_bias: bool = False,
    mlp_bias: bool = False,
    qk_norm: bool = False,
) -> LlamaConfig:
    return LlamaConfig(
        vocab_size=raw.integer("vocab_size"),
        hidden_size=raw.integer("hidden_size"),
        ffn_size=raw.integer("intermediate_size"),
        num_layers=raw.integer("num_hidden_layers"),
        heads=_heads(raw),
        max_len=raw.integer("max_position_embeddings"),
        activation=raw.one_of("hidden_act", ACTIVATIONS),
        norm_eps=raw.number("rms_norm_eps"),
        rotary=read_rotary_config(raw),
        windows=_windows(raw, window),
        qkv_bias=qkv_bias,
        out_bias=out_bias,
        mlp_bias=mlp_bias,
        qk_norm=qk_norm,
        tied=raw.flag("tie_word_embeddings"),
    )


def _heads(raw: RawConfig) -> Heads:
    num_heads = raw.integer("num_attention_heads")
    heads = Heads(
        num_heads,
        raw.optional_integer("num_key_value_heads") or num_heads,
        raw.optional_integer("head_dim") or raw.integer("hidden_size") // num_heads,
    )
    if heads.num_heads % heads.num_kv_heads or heads.head_dim % 2:
        raise NotNativeError(f"its heads are {heads.num_heads} over {heads.num_kv_heads} of {heads.head_dim}")
    return heads


def _qwen_window(raw: RawConfig) -> int | None:
    """The window of those layers that have one."""
    return raw.optional_integer("sliding_window") if raw.flag("use_sliding_window") else None


def _windows(raw: RawConfig, window: int | None) -> tuple[int | None, ...]:
    """Layer by layer; Qwen's first ones see everything, or `layer_types` says it of each."""
    num_layers, layer_types = raw.integer("num_hidden_layers"), raw.get("layer_types")
    if not layer_types:
        first = 0 if window is None else raw.optional_integer("max_window_layers") or 0
        return tuple(window if layer >= first else None for layer in range(num_layers))
    known = {_FULL, _SLIDING} if window else {_FULL}
    if not isinstance(layer_types, list) or len(layer_types) != num_layers or not set(layer_types) <= known:
        raise NotNativeError(f"its layer_types are {layer_types!r}")
    return tuple(window if layer_type == _SLIDING else None for layer_type in layer_types)
