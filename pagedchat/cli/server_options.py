"""The options of servers beside an engine of this machine or in its place, and which of them a run has.

Connects to nothing.
"""

import argparse
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from msgspec import structs

from pagedchat.errors import InvalidValueError
from pagedchat.history.records import SERVER, LayoutRecord
from pagedchat.remote.openai.address import ServerAddress, server_address

if TYPE_CHECKING:
    from pagedchat.service.commands import EngineLink

NO_SERVERS_WITH = ("--trace", "--metrics-port")
"""Of an engine of this machine alone."""


def add_server_options(parser: argparse.ArgumentParser) -> None:
    """Which servers, and where their keys are."""
    group = parser.add_argument_group(
        "servers (OpenAI-compatible: vLLM, SGLang, llama.cpp, Ollama, pagedchat serve)"
    )
    group.add_argument(
        "--server",
        action="append",
        metavar="NAME|URL[#MODEL]",
        help="chats on this server, in place of an engine here, or with --model beside it; may be repeated",
    )
    group.add_argument(
        "--api-key-env",
        metavar="NAME",
        help="the variable with the key of servers given by URL; keys are taken from variables only",
    )


class ChosenServers(NamedTuple):
    """What a run begins with."""

    servers: tuple[ServerAddress, ...]
    has_engine: bool
    """Whether there is an engine of this machine, too."""


def chosen_servers(args: argparse.Namespace, before: Sequence[str]) -> ChosenServers:
    """Those that were asked for, or those of the chats that are gone on with.

    Args:
        args: what holds for this run.
        before: what was asked for then.

    Raises:
        InvalidValueError: no such server, no URL, or an option that needs an engine here.
    """
    asked = [args.server] if isinstance(args.server, str) else list(args.server or ())
    has_engine = not asked or bool({"model", "beside"} & args.given)
    if not asked and before:
        asked = [text.removeprefix(SERVER) for text in before if text.startswith(SERVER)]
        has_engine = len(asked) < len(before) or "model" in args.given
    servers = tuple(server_address(text, args.servers, args.api_key_env or "") for text in asked)
    if not has_engine:
        _refuse_options_of_engines(args)
    return ChosenServers(servers, has_engine)


def _refuse_options_of_engines(args: argparse.Namespace) -> None:
    for option in NO_SERVERS_WITH:
        if option.lstrip("-").replace("-", "_") in args.given:
            raise InvalidValueError(
                f"{option} is of an engine on this machine; a server tells neither steps nor blocks.",
                f"Leave out {option}, or give --model as well.",
            )


def local_models(before: Sequence[str]) -> tuple[str, ...]:
    """The models of engines of this machine among what was asked for."""
    return tuple(text for text in before if not text.startswith(SERVER))


def engines_first(layout: LayoutRecord) -> LayoutRecord:
    """The same chats where engines of this machine stand on the left and servers on the right, as runs begin."""
    order = sorted(range(len(layout.models)), key=lambda place: layout.models[place].startswith(SERVER))
    places = {old: new for new, old in enumerate(order)}
    panes = tuple(structs.replace(pane, beside=places.get(pane.beside, pane.beside)) for pane in layout.panes)
    return structs.replace(layout, panes=panes, models=tuple(layout.models[place] for place in order))


def server_opener(args: argparse.Namespace) -> "Callable[[ServerAddress], EngineLink]":
    """Makes links of addresses; with the seed of this command, if it has one."""
    seed = args.seed if "seed" in args.given else None

    def opened(address: ServerAddress) -> "EngineLink":
        from pagedchat.remote.openai.link import OpenAILink  # noqa: PLC0415 - only who has a server

        return OpenAILink(address, seed)

    return opened
