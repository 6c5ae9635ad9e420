"""The model's own ideas about sampling: generation_config.json -> `SamplingParams` fields. Knows no engine.

* `do_sample` true, or any sampling value: the values that are there, the rest neutral.
* `do_sample` false, said outright: greedy.
* Neither (a base model): values that keep small models from repeating themselves.
"""

from pathlib import Path
from typing import Any

from pagedchat.models.description import as_token_ids
from pagedchat.models.raw_config import read_json

FILE = "generation_config.json"
BASE_MODEL_SAMPLING: dict[str, Any] = {"temperature": 0.7, "top_p": 0.9, "repetition_penalty": 1.1}

NAMES = {
    "temperature": "temperature",
    "top_p": "top_p",
    "top_k": "top_k",
    "min_p": "min_p",
    "repetition_penalty": "repetition_penalty",
    "max_new_tokens": "max_tokens",
}
"""What counts in the file -> field of `SamplingParams`."""


def read_generation_config(folder: Path) -> dict[str, Any]:
    """The file's contents; empty where it is missing (it is optional).

    Raises:
        OSError, ValueError: it is there and cannot be read.
    """
    try:
        return read_json(folder / FILE)
    except FileNotFoundError:
        return {}


def sampling_values(generation_config: dict[str, Any]) -> dict[str, Any]:
    """`SamplingParams` fields for a chat with this model; `max_tokens` only where the model names it.

    Args:
        generation_config: the file's contents, without values that no `SamplingParams` can have.
    """
    values = {
        field: generation_config[name] for name, field in NAMES.items() if generation_config.get(name) is not None
    }
    max_tokens = {"max_tokens": values.pop("max_tokens")} if "max_tokens" in values else {}
    if generation_config.get("do_sample") is False:
        penalty = {name: value for name, value in values.items() if name == "repetition_penalty"}
        values = {"temperature": 0.0, **penalty}
    elif not values and not generation_config.get("do_sample"):
        values = dict(BASE_MODEL_SAMPLING)
    return values | max_tokens


def eos_token_ids(generation_config: dict[str, Any]) -> frozenset[int]:
    """Tokens that end a text, as far as this file says.

    Raises:
        InvalidValueError: they are no token ids.
    """
    return as_token_ids("eos_token_id", generation_config.get("eos_token_id"))
