"""Every option of the chats as a setting of files and variables: its name, its type, and within what it may be.

Made from the parser, so that none can be missing; starts nothing.
"""

import argparse
from collections.abc import Callable
from dataclasses import fields
from typing import Any

from pagedchat.bounds import check_text, shown
from pagedchat.cli.themes import check_theme
from pagedchat.config import CacheConfig, EngineConfig, KVEventsConfig, ModelConfig, SchedulerConfig
from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.errors import InvalidValueError
from pagedchat.settings.sources import Kind, Setting

OF_ONE_RUN = frozenset({"help", "version", "prompt", "config", "print_config", "go_on", "resume", "attach"})
"""What is asked for once and holds for no other run."""
_CONFIGS = (ModelConfig, CacheConfig, SchedulerConfig, KVEventsConfig, EngineConfig)
_WHOLE = frozenset({"sessions", "metrics_port"})
"""Read by functions of their own; all other types say what they are."""


def known_settings(parser: argparse.ArgumentParser) -> list[Setting]:
    """In the order of the help."""
    return [
        _setting(action)
        for action in parser._actions
        if action.dest not in OF_ONE_RUN and action.help is not argparse.SUPPRESS
    ]


def _setting(action: argparse.Action) -> Setting:
    option = action.option_strings[-1]
    return Setting(
        name=option.lstrip("-"),
        dest=action.dest,
        kind=_kind(action),
        default=_default(action),
        check=_check(action, option),
        flag_value=action.const is not False,
    )


def _kind(action: argparse.Action) -> Kind:
    if action.nargs == 0:
        return "flag"
    if isinstance(action, argparse._AppendAction):
        return "texts"
    if action.type is int or action.dest in _WHOLE:
        return "whole"
    if action.type is float:
        return "number"
    return "size" if action.metavar == "SIZE" else "text"


def _default(action: argparse.Action) -> Any:
    """That of the option, or else of the config field that it sets."""
    if action.default is not None:
        return action.default
    found = [field.default for config in _CONFIGS for field in fields(config) if field.name == action.dest]
    return found[0] if found else None


def _check(action: argparse.Action, option: str) -> Callable[[Any], Any]:
    bound = _bound(action.dest)

    def check(value: Any) -> Any:
        if callable(action.type) and action.type not in (int, float):
            value = _as_typed(action.type, option, value)
        if action.choices is not None and value not in action.choices:
            raise InvalidValueError(f"{option} is {shown(value)}.", f"Choose one of {', '.join(action.choices)}.")
        return bound(option, value)

    return check


def _as_typed(read: Callable[[str], Any], option: str, value: Any) -> Any:
    """As the command line reads it."""
    try:
        return read(str(value))
    except argparse.ArgumentTypeError as error:
        raise InvalidValueError(f"{option}: {error}.") from None


def _bound(dest: str) -> Callable[[str, Any], Any]:
    """Whatever checks it where it is used."""
    for config in _CONFIGS:
        if dest in config._checks:
            option, check = config._checks[dest]
            return lambda _, value: check(option, value)
    if dest == "speculate":
        return check_text
    if dest in SamplingOverrides.__struct_fields__:
        return lambda _, value: getattr(SamplingOverrides(**{dest: value}), dest)
    return check_theme if dest == "theme" else lambda _, value: value
