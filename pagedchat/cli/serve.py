"""`pagedchat serve`: an OpenAI-compatible server over one engine. Reads its options, and says how it goes; imports
what serves only when it is to run."""

import argparse
import asyncio
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from pagedchat.chat.sanitize import one_line
from pagedchat.cli.engine_options import add_engine_options, engine_config, sampling_overrides
from pagedchat.cli.progress_line import ProgressLine
from pagedchat.errors import InvalidValueError, PagedChatError
from pagedchat.events import EngineEvent, LoadProgress
from pagedchat.units import parse_size

if TYPE_CHECKING:
    from pagedchat.server.options import ServeOptions

KEY_VARIABLE = "PAGEDCHAT_API_KEY"
_TOOL_FORMATS = ("auto", "hermes", "llama3_json", "mistral", "none")


def add_serve_options(parser: argparse.ArgumentParser) -> None:
    """Where it listens, whom it serves, and which engine."""
    _add_address(parser)
    _add_serving(parser)
    add_engine_options(parser, beside=False)


def run_serve(args: argparse.Namespace) -> int:
    """Serve until a signal; returns the exit code.

    Raises:
        InvalidValueError: an option outside what it may be, or an extra that is not installed.
        PagedChatError: the port cannot be had, the engine cannot start, or has ended for good.
    """
    _need_extra()
    from pagedchat.server.run import Server  # noqa: PLC0415 - loads Starlette and uvicorn

    options = serve_options(args)
    config, overrides = engine_config(args), sampling_overrides(args)
    progress = ProgressLine(sys.stderr)

    def loading(event: EngineEvent) -> None:
        if isinstance(event, LoadProgress):
            progress.show(event)

    def listening(url: str) -> None:
        progress.clear()
        name = options.names[0] if options.names else config.model.model
        print(f"Serving {one_line(name)} at {url}", flush=True)

    server = Server(
        config, options, overrides, listening=listening, say=lambda text: _say(progress, text), loading=loading
    )
    try:
        asyncio.run(server.run())
    finally:
        progress.clear()
    return 0


def serve_options(args: argparse.Namespace) -> "ServeOptions":
    """What was given, over the defaults.

    Raises:
        InvalidValueError: a value outside what it may be.
    """
    from pagedchat.server.options import ServeOptions  # noqa: PLC0415 - not for help

    names = (
        "host",
        "port",
        "ssl_certfile",
        "ssl_keyfile",
        "max_queued",
        "max_body",
        "shutdown_seconds",
        "keep_detached",
        "log_requests",
        "tool_format",
        "thoughts",
    )
    given = {name: value for name in names if (value := getattr(args, name)) is not None}
    return ServeOptions(
        api_key=_api_key(args), names=tuple(args.names or ()), origins=tuple(args.origins or ()), **given
    )


def _add_address(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("where it listens")
    group.add_argument("--host", metavar="NAME", help="address; others than this machine's need a key (127.0.0.1)")
    group.add_argument("--port", type=int, metavar="N", help="0 takes any that is free (8000)")
    group.add_argument("--ssl-certfile", metavar="FILE", help="certificate in PEM: speak HTTPS (HTTP)")
    group.add_argument("--ssl-keyfile", metavar="FILE", help="its key in PEM (in --ssl-certfile)")
    group.add_argument(
        "--api-key",
        metavar="KEY",
        help=f"that clients must have; in a list of processes all users see it: rather {KEY_VARIABLE}, or",
    )
    group.add_argument("--api-key-file", type=Path, metavar="FILE", help="its first line is the key")
    group.add_argument(
        "--cors-origin",
        dest="origins",
        action="append",
        metavar="ORIGIN",
        help="a page that may ask from a browser, like https://example.org; * for all; may be repeated (none)",
    )


def _add_serving(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("what it serves")
    group.add_argument(
        "--served-model-name",
        dest="names",
        action="append",
        metavar="NAME",
        help="the model's name for clients; may be repeated (as --model has it)",
    )
    group.add_argument(
        "--max-queued", type=int, metavar="N", help="sequences that may wait for a place; then 429 (256)"
    )
    group.add_argument("--max-body", type=_size, metavar="SIZE", help="of a request (16MiB)")
    group.add_argument(
        "--shutdown-seconds",
        type=float,
        metavar="S",
        help="for running requests after SIGTERM or ^C; then they are cut (30)",
    )
    group.add_argument(
        "--keep-detached",
        type=float,
        metavar="S",
        help="for chats and replies of a terminal (pagedchat --attach) that is gone; 0 keeps none (3600)",
    )
    group.add_argument(
        "--tool-call-parser",
        dest="tool_format",
        choices=_TOOL_FORMATS,
        help="how the model writes calls of tools (auto)",
    )
    group.add_argument(
        "--no-reasoning-content",
        dest="thoughts",
        action="store_false",
        default=None,
        help="leave thoughts in the reply",
    )
    group.add_argument(
        "--log-requests",
        action="store_true",
        default=None,
        help="a line on standard error for each request: method, path, status, seconds",
    )


def _api_key(args: argparse.Namespace) -> str:
    """From the first place that has one. The variable is taken away, so that no other process inherits it."""
    variable = os.environ.pop(KEY_VARIABLE, "")
    if args.api_key is not None:
        return _not_empty(args.api_key, "--api-key")
    if args.api_key_file is None:
        return variable
    try:
        with args.api_key_file.open(encoding="ascii") as file:
            return _not_empty(file.readline(4096).strip(), f"The first line of {args.api_key_file}")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror.lower() if isinstance(error, OSError) and error.strerror else "it is not ASCII"
        raise PagedChatError(f"--api-key-file {args.api_key_file} cannot be read: {reason}.") from None


def _not_empty(key: str, what: str) -> str:
    if not key:
        raise InvalidValueError(f"{what} is empty.", "Give a key, or none at all.")
    return key


def _need_extra() -> None:
    from importlib.util import find_spec  # noqa: PLC0415 - not for help

    if not all(find_spec(package) for package in ("starlette", "uvicorn", "websockets")):
        raise PagedChatError(
            "A server needs packages that are not installed.", "Install them: pip install 'pagedchat[serve]'."
        )


def _say(progress: ProgressLine, text: str) -> None:
    progress.clear()
    print(one_line(text), file=sys.stderr, flush=True)


def _size(text: str) -> int:
    try:
        return parse_size(text)
    except InvalidValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None
