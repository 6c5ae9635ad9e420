"""`vllm.engine.arg_utils`: the keywords of `LLM` as a dataclass, and as options of a script's command line."""

import argparse
import json
from dataclasses import asdict, fields, make_dataclass
from types import UnionType
from typing import Any, Literal, Self, Union, get_args, get_origin, get_type_hints

from pagedchat.api.keywords import EngineKeywords, engine_config
from pagedchat.config import DEFAULT_MODEL, EngineConfig
from pagedchat.vllm_keywords import LLM_KEYWORDS

_KINDS = get_type_hints(EngineKeywords)
_OTHERS = [name for name in LLM_KEYWORDS if name not in _KINDS]
_Fields: Any = make_dataclass(
    "_Fields",
    [("model", str, DEFAULT_MODEL), *((name, Any, None) for name in [*_KINDS, *_OTHERS])],
    kw_only=False,
)


class EngineArgs(_Fields):  # type: ignore[misc]  # its fields are the keywords, whatever those are
    """What `LLM()` may be given, by the same names; None is what it does without.

    `LLM(**dataclasses.asdict(args))` is `LLM` with what was given. Keywords of vLLM's that mean nothing here are
    taken too, and refused where they ask for something, as `LLM` does it.
    """

    @classmethod
    def add_cli_args(cls, parser: argparse.ArgumentParser) -> argparse.ArgumentParser:
        """An option for each field."""
        parser.add_argument("--model", default=DEFAULT_MODEL)
        for name in _KINDS:
            parser.add_argument(_option(name), **_reader(_KINDS[name]))
        for name in _OTHERS:
            is_flag = any(isinstance(value, bool) for value in LLM_KEYWORDS[name].neutral)
            parser.add_argument(_option(name), **_reader(bool if is_flag else Any))
        return parser

    @classmethod
    def from_cli_args(cls, args: argparse.Namespace) -> Self:
        """Those fields that a command line has; it may have options of its own."""
        return cls(**{field.name: getattr(args, field.name) for field in fields(cls) if hasattr(args, field.name)})

    def create_engine_config(self) -> EngineConfig:
        """The engine that is asked for.

        Raises:
            InvalidValueError: as for `LLM()`.
        """
        keywords = asdict(self)
        return engine_config("EngineArgs()", keywords.pop("model"), keywords)


AsyncEngineArgs = EngineArgs


def _option(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def _reader(kind: Any) -> dict[str, Any]:
    """How argparse is to read a value of this type."""
    kinds = [each for each in _parts(kind) if each is not type(None)]
    if bool in kinds:
        return {"action": argparse.BooleanOptionalAction, "default": None}
    if kinds in ([int], [float]):
        return {"type": kinds[0]}
    return {"type": _value} if str not in kinds else {}


def _parts(kind: Any) -> list[Any]:
    """The types of a union, `Literal`s of texts among them as texts."""
    if get_origin(kind) in (Union, UnionType):
        return [part for each in get_args(kind) for part in _parts(each)]
    return [str] if get_origin(kind) is Literal else [kind]


def _value(text: str) -> Any:
    """JSON, where it is that."""
    try:
        return json.loads(text)
    except ValueError:
        return text
