"""What form a reply has to have, as its user asks for it: by a JSON schema, a regular expression, a list or a
grammar, named as vLLM's users know it. Knows no library that holds a reply to it, and no tokens.
"""

import json
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Literal, NamedTuple

import msgspec

from pagedchat.bounds import check_flag, check_text, check_texts, refused
from pagedchat.errors import InvalidValueError
from pagedchat.vllm_keywords import FORM_KEYWORDS, NoMeaning, TakesOthers

MAX_CHARACTERS = 1_048_576
"""Of a schema, an expression, or all choices together."""
MAX_CHOICES = 4096
MAX_GRAMMAR = 65_536
"""Characters."""

Kind = Literal["json", "regex", "choice", "grammar"]


class Form(NamedTuple):
    """The one thing that a reply is to be, ready to be compiled, and to be looked up if it was compiled before."""

    kind: Kind
    text: str
    """JSON of the schema, the expression, JSON of the list of choices, or the grammar."""


class StructuredOutputsParams(msgspec.Struct, frozen=True, kw_only=True, metaclass=TakesOthers):
    """The form of a reply: one of these, and no more than one.

    Raises:
        InvalidValueError: none or several of them, or one that cannot be.
    """

    _no_meaning: ClassVar[Mapping[str, NoMeaning]] = FORM_KEYWORDS

    json: str | dict[str, Any] | None = None
    """A JSON schema, as text or as Python has it: the reply is one JSON text that the schema allows."""
    regex: str | None = None
    """The whole reply matches it. Without looking around and back references."""
    choice: list[str] | None = None
    """The reply is one of these."""
    grammar: str | None = None
    """In Lark's notation, or in GBNF: the reply is a text of it. A terminal takes as much as it can."""
    json_object: bool = False
    """The reply is one JSON object, of any kind."""

    def __post_init__(self) -> None:
        asked = [name for name in _CHECKS if getattr(self, name) is not None]
        asked += ["json_object"] * check_flag("structured_outputs.json_object", self.json_object)
        if len(asked) != 1:
            names = ", ".join(["json_object", *_CHECKS])
            was = " and ".join(asked) or "nothing"
            raise InvalidValueError(f"structured_outputs asks for {was}.", f"It takes one of {names}.")
        for name in asked:
            if name in _CHECKS:
                full_name = f"structured_outputs.{name}"
                msgspec.structs.force_setattr(self, name, _CHECKS[name](full_name, getattr(self, name)))

    @property
    def form(self) -> Form:
        """What is asked for."""
        if self.json_object:
            return Form("json", '{"type": "object"}')
        if isinstance(self.json, str):
            return Form("json", self.json)
        if self.regex is not None:
            return Form("regex", self.regex)
        if self.grammar is not None:
            return Form("grammar", self.grammar)
        return Form("choice", json.dumps(self.choice))


def _check_schema(name: str, value: object) -> str:
    """The schema as one JSON text, whichever way it came."""
    try:
        schema = json.loads(value) if isinstance(value, str) else value
        text = json.dumps(schema, allow_nan=False)
    except (ValueError, TypeError, RecursionError):
        raise refused(name, value, "a JSON schema: an object, or a text of one") from None
    if not isinstance(schema, dict):
        raise refused(name, value, "a JSON schema: an object, or a text of one")
    return _check_size(name, text)


def _check_choices(name: str, values: object) -> list[str]:
    choices = list(dict.fromkeys(check_texts(name, values)))
    if not 0 < len(choices) <= MAX_CHOICES:
        raise InvalidValueError(f"{name} has {len(choices):,} texts.", f"It must have 1 to {MAX_CHOICES:,}.")
    _check_size(name, "".join(choices))
    return choices


def _check_source(name: str, value: object) -> str:
    return _check_size(name, check_text(name, value))


def _check_grammar(name: str, value: object) -> str:
    return _check_size(name, check_text(name, value), MAX_GRAMMAR)


def _check_size(name: str, text: str, most: int = MAX_CHARACTERS) -> str:
    if len(text) > most:
        raise InvalidValueError(f"{name} has {len(text):,} characters.", f"At most {most:,} can be.")
    return text


_CHECKS: dict[str, Callable[[str, object], Any]] = {
    "json": _check_schema,
    "regex": _check_source,
    "choice": _check_choices,
    "grammar": _check_grammar,
}
