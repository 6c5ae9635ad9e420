"""The rotary embedding of a model, from its config.json: in old files a theta beside `rope_scaling`, in new ones
all of it in `rope_parameters`.
"""

from collections.abc import Callable
from typing import Any

from pagedchat.layers.rotary_frequencies import Llama3Scaling, RotaryConfig
from pagedchat.models.raw_config import NotNativeError, RawConfig

ROTARY_DEFAULTS: dict[str, Any] = {"rope_theta": 10000.0}


def read_rotary_config(raw: RawConfig) -> RotaryConfig:
    """Read it.

    Raises:
        NotNativeError: a kind of scaling that is not done here.
    """
    raw.refuse("partial_rotary_factor")
    given = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    if not isinstance(given, dict) or any(isinstance(value, dict) for value in given.values()):
        raise NotNativeError(f"its rotary parameters are {given!r}")
    rope = RawConfig(given, {"rope_theta": raw.get("rope_theta"), "rope_type": given.get("type", "default")})
    rope.refuse("partial_rotary_factor")
    return _KINDS[rope.one_of("rope_type", _KINDS)](rope, raw)


def _plain(rope: RawConfig, _raw: RawConfig) -> RotaryConfig:
    return RotaryConfig(rope.number("rope_theta"))


def _linear(rope: RawConfig, _raw: RawConfig) -> RotaryConfig:
    return RotaryConfig(rope.number("rope_theta"), factor=rope.number("factor"))


def _llama3(rope: RawConfig, raw: RawConfig) -> RotaryConfig:
    name = "original_max_position_embeddings"
    scaling = Llama3Scaling(
        factor=rope.number("factor"),
        low_freq_factor=rope.number("low_freq_factor"),
        high_freq_factor=rope.number("high_freq_factor"),
        original_len=raw.optional_integer(name)
        or rope.optional_integer(name)
        or raw.integer("max_position_embeddings"),
    )
    if scaling.low_freq_factor >= scaling.high_freq_factor:
        raise NotNativeError("its low_freq_factor is not below its high_freq_factor")
    return RotaryConfig(rope.number("rope_theta"), llama3=scaling)


_KINDS: dict[str, Callable[[RawConfig, RawConfig], RotaryConfig]] = {
    "default": _plain,
    "linear": _linear,
    "llama3": _llama3,
}
