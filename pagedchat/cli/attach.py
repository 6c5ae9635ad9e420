"""`pagedchat --attach [URL]` and `pagedchat inspect URL`: the screens over the engine of a server that runs.

Connects to nothing itself; nothing heavy is imported before it is wanted.
"""

import argparse
import os
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING

from msgspec import structs

from pagedchat.cli.engine_options import add_engine_options
from pagedchat.cli.standard_streams import check_terminal_type
from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.errors import InvalidValueError, PagedChatError
from pagedchat.remote.address import DEFAULT_URL, Address, address_of
from pagedchat.settings.places import client_key_path

if TYPE_CHECKING:
    from pagedchat.history.run import RunHistory
    from pagedchat.remote.attached import AttachedLink
    from pagedchat.view.options import UiOptions

KEY_VARIABLE = "PAGEDCHAT_API_KEY"


def add_attach_options(parser: argparse.ArgumentParser) -> None:
    """Whose engine it is."""
    group = parser.add_argument_group("a server's engine")
    group.add_argument(
        "--attach",
        nargs="?",
        const=DEFAULT_URL,
        metavar="URL",
        help=f"open the panes on a pagedchat serve that runs ({DEFAULT_URL}), with what was left there; its key is "
        f"taken from {KEY_VARIABLE}",
    )


def attach_address(args: argparse.Namespace) -> Address | None:
    """The server whose engine is wanted; None: one's own is.

    Raises:
        InvalidValueError: no URL, or an option that is the server's to have.
    """
    if args.attach is None:
        return None
    address = address_of("--attach", args.attach)
    if args.prompt is not None:
        raise InvalidValueError(
            "--attach goes with the chats on the screen, not with one reply.", "Leave out --attach or -p."
        )
    for name in sorted(_of_the_engine() & args.given):
        option = f"--{name.replace('_', '-')}"
        raise InvalidValueError(
            f"{option} is for an engine that is started here; --attach takes the server's as it is.",
            f"Leave out {option}, or give it to pagedchat serve.",
        )
    _check_library()
    return address


def attached_link(args: argparse.Namespace, address: Address, history: "RunHistory | None") -> "AttachedLink":
    """The link to a server, not yet connected."""
    from pagedchat.remote.attached import AttachedLink  # noqa: PLC0415 - only what is wanted
    from pagedchat.remote.client_key import client_key  # noqa: PLC0415 - as above

    panes = history.reopened.layout.panes if history is not None else ()
    chats = [(pane.number, pane.chat_id or 0) for pane in panes] or [(n, 0) for n in range(1, args.sessions + 1)]
    key = "" if args.ephemeral else client_key(client_key_path())
    return AttachedLink(address, api_key=os.environ.get(KEY_VARIABLE, ""), key=key, chats=chats)


def _of_the_engine() -> set[str]:
    """Options of engines, by what they set; sampling is a chat's own."""
    parser = argparse.ArgumentParser(add_help=False)
    add_engine_options(parser)
    of_chats = set(SamplingOverrides.__struct_fields__)
    return {action.dest for action in parser._actions} - of_chats | {"metrics_port", "server"}


def _check_library() -> None:
    if find_spec("websockets") is None:
        raise PagedChatError(
            "Attaching to a server takes a library that is not installed.", "pip install 'pagedchat[remote]'"
        )


# --- the inspector alone ----------------------------------------------------------------------------


def add_inspect_options(parser: argparse.ArgumentParser) -> None:
    """Which server."""
    parser.add_argument(
        "url", nargs="?", default=DEFAULT_URL, metavar="URL", help=f"of a pagedchat serve ({DEFAULT_URL})"
    )
    parser.add_argument("--ascii", action="store_true", help="draw with ASCII characters only")


def run_inspect(args: argparse.Namespace, settings: "Callable[[], UiOptions]") -> int:
    """Show the inspector of a server until the user quits; returns the exit code.

    Raises:
        PagedChatError: nothing can be shown, or not of that server.
    """
    address = address_of("URL", args.url)
    if not sys.stdout.isatty():
        raise InvalidValueError(
            "Standard output is not a terminal, so the inspector cannot be shown.", "For figures ask its /metrics."
        )
    check_terminal_type()
    _check_library()
    from pagedchat.remote.attached import AttachedLink  # noqa: PLC0415 - only what is wanted
    from pagedchat.tui.inspect_app import run_inspector  # noqa: PLC0415 - loads Textual

    link = AttachedLink(address, role="onlooker", api_key=os.environ.get(KEY_VARIABLE, ""))
    options = settings()
    of_server = structs.replace(options, attached=address.where, ascii=options.ascii or args.ascii)
    return run_inspector(link, of_server)
