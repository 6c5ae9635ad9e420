"""What the descriptions of families share: sizes and heads under their usual names, and windows by layer."""

from collections.abc import Callable
from typing import Any

from pagedchat.layers.activation import ACTIVATIONS
from pagedchat.layers.attention import Heads
from pagedchat.layers.norms import NormConfig
from pagedchat.layers.rotary_frequencies import RotaryConfig
from pagedchat.models.raw_config import NotNativeError, RawConfig

Windows = tuple[int | None, ...]

BASE_DEFAULTS: dict[str, Any] = {
    "rope_theta": 10000.0,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "eos_token_id": 2,
    "tie_word_embeddings": False,
    "attention_bias": False,
}
"""What most configs mean that leave these out."""
_FULL, _SLIDING = "full_attention", "sliding_attention"


def read_sizes(raw: RawConfig, *, activation: str = "hidden_act") -> dict[str, Any]:
    """Those parts of a `DecoderConfig` that nearly every family names alike.

    Raises:
        NotNativeError: an unusual value; so for the others.
    """
    return {
        "vocab_size": raw.integer("vocab_size"),
        "hidden_size": raw.integer("hidden_size"),
        "ffn_size": raw.integer("intermediate_size"),
        "num_layers": raw.integer("num_hidden_layers"),
        "heads": read_heads(raw),
        "max_len": raw.integer("max_position_embeddings"),
        "activation": raw.one_of(activation, ACTIVATIONS),
        "tied": raw.flag("tie_word_embeddings"),
    }


def read_heads(raw: RawConfig) -> Heads:
    """Heads, grouped or not; of the width that is said, or of their share of the layers'."""
    num_heads = raw.integer("num_attention_heads")
    heads = Heads(
        num_heads,
        raw.optional_integer("num_key_value_heads") or num_heads,
        raw.optional_integer("head_dim") or raw.integer("hidden_size") // num_heads,
    )
    if heads.num_heads % heads.num_kv_heads or heads.head_dim % 2:
        raise NotNativeError(f"its heads are {heads.num_heads} over {heads.num_kv_heads} of {heads.head_dim}")
    return heads


def divided_heads(width: int, num_heads: int, num_kv_heads: int | None = None) -> Heads:
    """Heads that share a width out among them."""
    heads = Heads(num_heads, num_kv_heads or num_heads, width // num_heads)
    if width % num_heads:
        raise NotNativeError(f"{num_heads} heads do not divide a width of {width}")
    if num_heads % heads.num_kv_heads:
        raise NotNativeError(f"its heads are {num_heads} over {num_kv_heads}")
    return heads


def rms_norm(raw: RawConfig, *, offset: float = 0.0, exact: bool = False) -> NormConfig:
    """RMS norms, with the epsilon that the file gives."""
    return NormConfig(kind="rms", eps=raw.number("rms_norm_eps"), offset=offset, exact=exact)


def layer_norm(raw: RawConfig, eps: str, *, bias: bool = True) -> NormConfig:
    """Layer norms; the file gives their epsilon as `eps`."""
    return NormConfig(kind="layer", eps=raw.number(eps), bias=bias)


def read_windows(raw: RawConfig, window: int | None, is_windowed: Callable[[int], bool]) -> Windows:
    """The windows of all layers.

    Args:
        raw: where it has `layer_types`, they decide.
        window: of those layers that have one; None: none has.
        is_windowed: whether a layer has one, where nothing is said.
    """
    num_layers, layer_types = raw.integer("num_hidden_layers"), raw.get("layer_types")
    if not layer_types:
        return tuple(window if is_windowed(layer) else None for layer in range(num_layers))
    known = {_FULL, _SLIDING} if window else {_FULL}
    if not isinstance(layer_types, list) or len(layer_types) != num_layers or not set(layer_types) <= known:
        raise NotNativeError(f"its layer_types are {layer_types!r}")
    return tuple(window if layer_type == _SLIDING else None for layer_type in layer_types)


def every(raw: RawConfig, value: RotaryConfig | None) -> tuple[RotaryConfig | None, ...]:
    """The same for all layers."""
    return (value,) * raw.integer("num_hidden_layers")


def no_windows(raw: RawConfig) -> Windows:
    """All layers see everything."""
    return (None,) * raw.integer("num_hidden_layers")
