"""The model's own ideas about sampling: generation_config.json -> `SamplingParams` fields. Knows no engine.

* `do_sample` true, or any sampling value: the values that are there, the rest neutral.
* `do_sample` false, said outright: greedy.
* Neither (a base model): values that keep small models from repeating themselves.
"""

import json
from pathlib import Path
from typing import Any

from pagedchat.models.description import as_token_ids

BASE_MODEL_SAMPLING: dict[str, Any] = {"temperature": 0.7, "top_p": 0.9, "repetition_penalty": 1.1}

_NAMES = ("temperature", "top_p", "top_k", "min_p", "repetition_penalty")


def read_generation_config(folder: Path) -> dict[str, Any]:
    """The file's contents; empty where it is missing or unreadable (it is optional)."""
    try:
        values = json.loads((folder / "generation_config.json").read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {}
    return values if isinstance(values, dict) else {}


def sampling_values(generation_config: dict[str, Any]) -> dict[str, Any]:
    """`SamplingParams` fields for a chat with this model; `max_tokens` only where the model names it."""
    values = {name: generation_config[name] for name in _NAMES if _is_number(generation_config.get(name))}
    if generation_config.get("do_sample") is False:
        penalty = {name: value for name, value in values.items() if name == "repetition_penalty"}
        values = {"temperature": 0.0, **penalty}
    elif not values and not generation_config.get("do_sample"):
        values = dict(BASE_MODEL_SAMPLING)
    max_tokens = generation_config.get("max_new_tokens")
    return values | ({"max_tokens": max_tokens} if isinstance(max_tokens, int) else {})


def eos_token_ids(generation_config: dict[str, Any]) -> frozenset[int]:
    """Tokens that end a text, as far as this file says."""
    return as_token_ids(generation_config.get("eos_token_id"))


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)
