"""`speculative_config` of `LLM`, named as vLLM's users know it, as our own config. Knows words, no engine."""

from collections.abc import Mapping
from typing import Any

from pagedchat.bounds import shown
from pagedchat.config import SpeculationConfig
from pagedchat.errors import InvalidValueError

_METHODS = ("ngram", "lookup")
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
    unknown = [key for key in given if key not in ("method", *_NUMBERS)]
    if unknown:
        raise InvalidValueError(
            f"speculative_config has {shown(unknown[0])}.", f"There are method, {', '.join(_NUMBERS)}."
        )
    method = given.get("method")
    if method not in _METHODS:
        raise InvalidValueError(
            f"speculative_config has the method {shown(method)}.",
            'There is "ngram", by what came before in prompt and reply; draft models there are none yet.',
        )
    numbers = {name: given[name] for name in _NUMBERS if given.get(name) is not None}
    if "prompt_lookup_max" in numbers and "prompt_lookup_min" not in numbers and numbers["prompt_lookup_max"] == 1:
        numbers["prompt_lookup_min"] = 1
    return SpeculationConfig(method="lookup", **numbers)
