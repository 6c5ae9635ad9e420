"""`speculative_config` of `LLM`, named as vLLM's users know it, as our own config. Knows words, no engine."""

from collections.abc import Mapping
from typing import Any

from pagedchat.bounds import shown
from pagedchat.config import SpeculationConfig
from pagedchat.errors import InvalidValueError

_LOOKUP, _MODEL = ("ngram", "lookup"), ("draft_model", "model")
_NUMBERS = ("num_speculative_tokens", "prompt_lookup_max", "prompt_lookup_min")


def speculation_of(given: Mapping[str, Any] | None) -> SpeculationConfig:
    """What was asked for; none is asked for by `None`.

    Raises:
        InvalidValueError: a key that there is none of, or a value outside what it may be.
    """
    if given is None:
        return SpeculationConfig()
    if not isinstance(given, Mapping):
        raise InvalidValueError(f"speculative_config is {shown(given)}.", 'Write: {"method": "ngram"}.')
    unknown = [key for key in given if key not in ("method", "model", *_NUMBERS)]
    if unknown:
        raise InvalidValueError(
            f"speculative_config has {shown(unknown[0])}.", f"There are method, model, {', '.join(_NUMBERS)}."
        )
    model = given.get("model")
    method = given.get("method") or (None if model is None else "draft_model")
    if method not in (*_LOOKUP, *_MODEL):
        raise InvalidValueError(
            f"speculative_config has the method {shown(method)}.",
            'There are "ngram", by what came before in prompt and reply, and "draft_model", by a small model.',
        )
    if (method in _MODEL) != (model is not None):
        raise InvalidValueError(
            f"speculative_config has the method {shown(method)} and the model {shown(model)}.",
            'Write {"method": "ngram"}, or {"model": "NAME"} for a draft model.',
        )
    numbers = {name: given[name] for name in _NUMBERS if given.get(name) is not None}
    if "prompt_lookup_max" in numbers and "prompt_lookup_min" not in numbers and numbers["prompt_lookup_max"] == 1:
        numbers["prompt_lookup_min"] = 1
    if method in _MODEL:
        return SpeculationConfig(method="model", model=model, **numbers)
    return SpeculationConfig(method="lookup", **numbers)
