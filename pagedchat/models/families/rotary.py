"""The rotary embedding of a model, from its config.json: in old files a theta beside `rope_scaling`, in new ones
all of it in `rope_parameters`; for each kind of layer on its own where they differ.
"""

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from pagedchat.layers.rotary_frequencies import Llama3Scaling, PairScaling, RotaryConfig, YarnScaling
from pagedchat.models.raw_config import NotNativeError, RawConfig

SHARE = "partial_rotary_factor"


def read_rotary(
    raw: RawConfig, *, share: float | None = None, theta: str = "rope_theta", exact: bool = False
) -> RotaryConfig:
    """Read it, where all layers turn alike.

    Args:
        raw: of the file.
        share: of a head's elements that are turned, if nothing else is said; None: nothing else may be said.
        theta: the base's name in files that have it outside.
        exact: as in `RotaryConfig`.

    Raises:
        NotNativeError: a kind of scaling that is not done here.
    """
    given = raw.get("rope_scaling") or raw.get("rope_parameters") or {}
    if not isinstance(given, dict) or any(isinstance(value, dict) for value in given.values()):
        raise NotNativeError(f"its rotary parameters are {given!r}")
    return read_kind(raw, given, raw.get(theta), share=share, exact=exact)


def read_kind(
    raw: RawConfig, given: dict[str, Any], theta: Any, *, share: float | None = None, exact: bool = False
) -> RotaryConfig:
    """The same of one set of parameters, with the base where it has none."""
    rope = RawConfig(given, {"rope_theta": theta, "rope_type": given.get("type", "default")})
    if share is None:
        raw.refuse(SHARE)
        rope.refuse(SHARE)
        turned = 1.0
    else:
        turned = rope.optional_number(SHARE) or raw.optional_number(SHARE) or share
    if turned > 1:
        raise NotNativeError(f"its {SHARE} is {turned}")
    return replace(_KINDS[rope.one_of("rope_type", _KINDS)](rope, raw), share=turned, exact=exact)


def read_kinds(raw: RawConfig, bases: dict[str, str], *, exact: bool = False) -> dict[str, RotaryConfig]:
    """Of layers of different types, by type.

    Args:
        raw: of the file. `rope_scaling` in old ones is meant for layers that see everything.
        bases: for each type the base's name in old files.
        exact: as in `RotaryConfig`.

    Raises:
        NotNativeError: a kind of scaling that is not done here.
    """
    given, scaling = raw.get("rope_parameters") or {}, raw.get("rope_scaling") or {}
    if not isinstance(given, dict) or not set(given) <= set(bases):
        raise NotNativeError(f"its rotary parameters are {given!r}")
    kinds = {}
    for layer_type, base in bases.items():
        own, added = given.get(layer_type) or {}, scaling if layer_type == "full_attention" else {}
        if not isinstance(own, dict) or not isinstance(added, dict):
            raise NotNativeError(f"its rotary parameters are {own!r} and {added!r}")
        kinds[layer_type] = read_kind(raw, own | added, raw.get(base), exact=exact)
    return kinds


def _plain(rope: RawConfig, _raw: RawConfig) -> RotaryConfig:
    return RotaryConfig(rope.number("rope_theta"))


def _linear(rope: RawConfig, _raw: RawConfig) -> RotaryConfig:
    return RotaryConfig(rope.number("rope_theta"), factor=rope.number("factor"))


def _llama3(rope: RawConfig, raw: RawConfig) -> RotaryConfig:
    scaling = Llama3Scaling(
        factor=rope.number("factor"),
        low_freq_factor=rope.number("low_freq_factor"),
        high_freq_factor=rope.number("high_freq_factor"),
        original_len=original_len(rope, raw),
    )
    if scaling.low_freq_factor >= scaling.high_freq_factor:
        raise NotNativeError("its low_freq_factor is not below its high_freq_factor")
    return RotaryConfig(rope.number("rope_theta"), scaling=scaling)


def _yarn(rope: RawConfig, raw: RawConfig) -> RotaryConfig:
    rope.refuse("mscale", "mscale_all_dim")
    factor, theta = rope.number("factor"), rope.number("rope_theta")
    whole = rope.get("truncate") is not False
    fast, slow = rope.optional_number("beta_fast") or 32.0, rope.optional_number("beta_slow") or 1.0
    if theta == 1 or slow > fast:
        raise NotNativeError("its YaRN scaling has no ramp")
    scaling = YarnScaling(factor, fast, slow, original_len(rope, raw), whole)
    scale = rope.optional_number("attention_factor") or (1.0 if factor <= 1 else 0.1 * math.log(factor) + 1)
    return RotaryConfig(theta, scaling=scaling, scale=scale)


def _longrope(rope: RawConfig, raw: RawConfig) -> RotaryConfig:
    """Pairs as they turn within the context of the training; past it that would depend on the batch."""
    factors, trained = rope.get("short_factor"), original_len(rope, raw)
    if not isinstance(factors, list) or not all(type(each) in (int, float) and each > 0 for each in factors):
        raise NotNativeError("its short_factor is no list of numbers")
    stretch = rope.optional_number("factor") or raw.integer("max_position_embeddings") / trained
    usual = 1.0 if stretch <= 1 or trained == 1 else math.sqrt(1 + math.log(stretch) / math.log(trained))
    scale = rope.optional_number("attention_factor") or usual
    scaling = PairScaling(tuple(map(float, factors)), trained)
    return RotaryConfig(rope.number("rope_theta"), scaling=scaling, scale=scale)


def original_len(rope: RawConfig, raw: RawConfig) -> int:
    """Context of the training, which scaled kinds start from."""
    name = "original_max_position_embeddings"
    return raw.optional_integer(name) or rope.optional_integer(name) or raw.integer("max_position_embeddings")


_KINDS: dict[str, Callable[[RawConfig, RawConfig], RotaryConfig]] = {
    "default": _plain,
    "linear": _linear,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
