"""The JSON files of a checkpoint as they were read: a config is asked for values of certain types, and the sizes in
it have bounds. Knows no model.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pagedchat.bounds import INT32_MAX, Whole, shown
from pagedchat.ops.sampling.kernels import MAX_VOCAB_SIZE

SIZES = {
    **dict.fromkeys(("num_hidden_layers", "num_layers", "n_layer", "n_layers"), 4096),
    **dict.fromkeys(("hidden_size", "n_embd", "n_embed", "d_model", "word_embed_proj_dim"), 2**20),
    **dict.fromkeys(
        ("intermediate_size", "moe_intermediate_size", "ffn_dim", "n_inner", "d_ff", "ffn_hidden_size"), 2**22
    ),
    "shared_expert_intermediate_size": 2**22,
    **dict.fromkeys(
        ("num_attention_heads", "num_key_value_heads", "num_heads", "n_head", "n_heads", "num_kv_heads"), 2**16
    ),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts"), 2**16),
    "head_dim": 2**14,
    "vocab_size": MAX_VOCAB_SIZE,
    **dict.fromkeys(
        ("max_position_embeddings", "n_positions", "max_sequence_length", "seq_length", "max_seq_len"), INT32_MAX
    ),
    **dict.fromkeys(("sliding_window", "original_max_position_embeddings"), INT32_MAX),
}
"""The most that a model can have of something: as many tokens as can be sampled from, of
the others more than any model has, and far fewer than would take hours to set up."""
_INSIDE = ("text_config", "rope_scaling", "rope_parameters", "attn_config")
"""Objects in the file that have some of these names too."""
_MOST = 1e30
"""Of a number that is no size, as the base of rotary frequencies."""


def read_json(path: Path) -> dict[str, Any]:
    """The file's object.

    Raises:
        OSError: it is missing or cannot be read.
        ValueError: it is no JSON, no object, or has text in it that is no valid Unicode.
    """
    text = path.read_text(encoding="utf-8")
    try:
        values = json.loads(text)
    except RecursionError:
        raise ValueError("its lists and objects lie too deep in each other") from None
    if not isinstance(values, dict):
        raise ValueError("it is no JSON object")
    if (
        "\\u" in text
    ):  # half of a character can only be written so; it could go neither to an engine nor to a tokenizer
        _check_unicode(values)
    return values


def _check_unicode(values: dict[str, Any]) -> None:
    try:
        json.dumps(values, ensure_ascii=False).encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"it has text in it that is no valid Unicode ({error.reason})") from None


class NotNativeError(Exception):
    """Our own modules do not run this model; the message says why, in words that follow "since"."""


class RawConfig:
    """Values by name, the family's default where the file has none.

    A value of another type is no error here: transformers may know what to do with it.

    Args:
        values: of the file.
        defaults: of the family, for every name that is asked for and may be left out.
    """

    def __init__(self, values: Mapping[str, Any], defaults: Mapping[str, Any]) -> None:
        self._values = {**defaults, **values}

    def get(self, name: str) -> Any:
        """The value as it is; None where there is none."""
        return self._values.get(name)

    def integer(self, name: str) -> int:
        """A positive whole number.

        Raises:
            NotNativeError: it is something else.
        """
        value = self.optional_integer(name)
        return _unusual(name, value) if value is None else value

    def optional_integer(self, name: str) -> int | None:
        """A positive whole number, or None where there is none.

        Raises:
            NotNativeError: it is something else.
        """
        value = self.get(name)
        if value is None:
            return None
        return value if type(value) is int and value > 0 else _unusual(name, value)

    def number(self, name: str) -> float:
        """A positive number, not infinite.

        Raises:
            NotNativeError: it is something else.
        """
        value = self.get(name)
        return float(value) if type(value) in (int, float) and 0 < value < _MOST else _unusual(name, value)

    def optional_number(self, name: str) -> float | None:
        """A positive number, not infinite, or None where there is none.

        Raises:
            NotNativeError: it is something else.
        """
        return None if self.get(name) is None else self.number(name)

    def flag(self, name: str) -> bool:
        """True or false.

        Raises:
            NotNativeError: it is something else.
        """
        value = self.get(name)
        return value if isinstance(value, bool) else _unusual(name, value)

    def one_of(self, name: str, allowed: Mapping[str, object]) -> str:
        """One of the keys of `allowed`.

        Raises:
            NotNativeError: it is something else.
        """
        value = self.get(name)
        return value if isinstance(value, str) and value in allowed else _unusual(name, value)

    def refuse(self, *names: str) -> None:
        """Do not run a model for which one of these is set.

        Raises:
            NotNativeError: one is.
        """
        for name in names:
            if self.get(name):
                raise NotNativeError(f"its config sets {name}")


def check_sizes(values: Mapping[str, Any]) -> None:
    """Refuse a config with a size that no model has, before anything is made of it.

    A value of another type is left to those who read it.

    Raises:
        InvalidValueError: there is one; the message names it.
    """
    for part in (values, *(values.get(name) for name in _INSIDE)):
        for name, value in part.items() if isinstance(part, Mapping) else ():
            if (
                name in SIZES
                and isinstance(value, int | float)
                and not isinstance(value, bool)
                and value > SIZES[name]
            ):
                Whole(1, SIZES[name]).check(name, value)


def _unusual(name: str, value: object) -> Any:
    raise NotNativeError(f"its {name} is {shown(value)}")
