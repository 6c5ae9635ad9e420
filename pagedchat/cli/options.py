"""The command line: which commands there are, and the options of the chats and of one reply.

Knows names, types and help; starts nothing and imports nothing heavy. Every other command keeps its options beside
itself, and is imported only when it is asked for.
"""

import argparse
from collections.abc import Sequence
from typing import NoReturn

from pagedchat import __version__
from pagedchat.bench.readers import new_file
from pagedchat.bounds import is_unicode
from pagedchat.cli.attach import add_attach_options
from pagedchat.cli.engine_options import add_engine_options
from pagedchat.cli.server_options import add_server_options
from pagedchat.cli.settings import with_settings
from pagedchat.cli.themes import AUTO
from pagedchat.errors import InvalidValueError

MAX_SESSIONS = 9
MAX_PORT = 65535
_MOST_DIGITS = 15
"""Of a chat's number."""
WHEN_FULL = ("stop", "drop", "summary")
_MOST_SAID = 300
"""Characters of what argparse says, which repeats the argument."""
_DESCRIPTION = "Several chats side by side in the terminal, on one local engine whose paged KV cache you can watch."
_USAGE = """\
pagedchat [OPTIONS]
       pagedchat -p TEXT [OPTIONS]
       pagedchat inspect [URL]
       pagedchat replay FILE [OPTIONS]
       pagedchat serve [OPTIONS]
       pagedchat stats [URL] [OPTIONS]
       pagedchat models [--json]
       pagedchat bench NAME [OPTIONS]
       pagedchat doctor [OPTIONS]"""
_EPILOG = """\
commands:
  replay FILE             the inspector over a recording, without a model or a GPU; --summary prints what is in it
  inspect [URL]           the inspector of a server that runs, read-only
  serve                   an OpenAI-compatible server; serve --help has its options
  stats [URL]             figures of the pagedchat that is running, or of a server elsewhere
  models                  the models that this machine has: the hub's cache, folders, GGUF files
  bench engine            tokens a second, first tokens and start-up, against transformers and vLLM
  bench step              where the time of a decode step goes, on the GPU and on the host
  bench cpu               where the time of a decode step on a CPU goes, by kernel
  bench kernels           the CUDA kernels against the memory's bandwidth and against their peers
  bench drafts            tokens a second with guessed tokens and without
  bench quality           what weights of few bits cost: the perplexity of a text with and without them
  bench serve             streams of 64 clients of a server, beside the same prompts without one
  bench ranks             a model over several GPUs, and their sums beside those of NCCL and torch
  bench ui                how fast the screen draws and answers keys, and what it costs the engine
  doctor                  driver, GPU, compiler, kernel cache, and what every CUDA kernel takes of the GPU
  doctor --compile        compile every CUDA kernel for every architecture; needs no GPU
  doctor --model ID|DIR   which steps this GPU takes for a model, by which kernels, and why; needs no weights

examples:
  pagedchat                                      a chat with the toy model that comes along; works offline
  pagedchat --model Qwen/Qwen2.5-0.5B-Instruct   a real model of the Hugging Face hub
  pagedchat --model OWNER/NAME:Q4_K_M            a GGUF model of the hub, by its tag
  pagedchat --model ./checkpoint --sessions 4    four chats with a checkpoint in a folder
  pagedchat --server localhost:8000              chats on an OpenAI-compatible server; no engine, no torch here
  pagedchat --model ID --server URL              an engine here and a server side by side; /move takes chats across
  pagedchat --trace run.trace                    record every step, to be looked at again with replay
  pagedchat --attach                             the panes on the engine of a pagedchat serve that runs here
  pagedchat --continue                           what was open last, with its drafts
  pagedchat -p "Tell me a sea story."            one reply, no screen
  pagedchat -p "Sum this up." <notes.txt         a prompt about a file
  echo "And then?" | pagedchat --json            the prompt from standard input, the reply as JSON
"""
_COMMANDS = {
    "replay": "Show a recording: every step of the engine, its blocks, its batches and the chats' text.",
    "inspect": "Show the inspector of a pagedchat serve that runs: its cache and its steps, and nobody's text.",
    "serve": "Serve one model by OpenAI's API: completions, chats and responses, streamed too. It listens on this "
    "machine alone, unless it is told otherwise. One server has one model at a time.",
    "stats": "Print figures of the pagedchat that is running on this machine, or of the pagedchat serve at URL.",
    "models": "Print the models that this machine has, as --model takes them.",
    "bench": "Measure pagedchat on this machine.",
    "doctor": "Show what of CUDA is on this machine, and what every kernel takes of its GPU; or how a model "
    "would run on it.",
}
"""Words that are a command where they come first, and what each does."""


class Parser(argparse.ArgumentParser):
    """Says what is wrong as an `InvalidValueError` and leaves printing and exit codes to `cli.main`."""

    def error(self, message: str) -> NoReturn:
        """Called by argparse with its own words, which begin in lower case."""
        message = message.removeprefix("argument ").rstrip(".")[:_MOST_SAID]
        raise InvalidValueError(f"{message[:1].upper()}{message[1:]}.", f"See {self.prog} --help.")


def parse_args(argv: Sequence[str]) -> argparse.Namespace:
    """Read a command line; `command` in the result is "chat" or one of `_COMMANDS`.

    Raises:
        InvalidValueError: an option that does not exist, or a value that cannot be read.
        SystemExit: after --help and --version.
    """
    if argv and argv[0] in _COMMANDS:
        return _command_parser(argv[0]).parse_args(argv[1:])
    return with_settings(_chat_parser(), argv)


def _command_parser(command: str) -> Parser:
    parser = Parser(prog=f"pagedchat {command}", description=_COMMANDS[command], allow_abbrev=False)
    parser.set_defaults(command=command)
    if command == "replay":
        from pagedchat.cli.replay import add_replay_options  # noqa: PLC0415 - reads traces

        add_replay_options(parser)
    elif command == "inspect":
        from pagedchat.cli.attach import add_inspect_options  # noqa: PLC0415 - only what is wanted

        add_inspect_options(parser)
    elif command == "serve":
        from pagedchat.cli.serve import add_serve_options  # noqa: PLC0415 - only what is wanted

        add_serve_options(parser)
    elif command == "stats":
        from pagedchat.cli.stats import add_stats_options  # noqa: PLC0415 - opens sockets

        add_stats_options(parser)
    elif command == "models":
        from pagedchat.cli.models import add_models_options  # noqa: PLC0415 - only what is wanted

        add_models_options(parser)
    elif command == "bench":
        from pagedchat.bench.arguments import add_bench_options  # noqa: PLC0415 - only what is wanted

        add_bench_options(parser)
    else:
        from pagedchat.doctor.arguments import add_doctor_options  # noqa: PLC0415 - only what is wanted

        add_doctor_options(parser)
    return parser


def _chat_parser() -> Parser:
    parser = Parser(
        prog="pagedchat",
        usage=_USAGE,
        description=_DESCRIPTION,
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        add_help=False,
        allow_abbrev=False,
    )
    parser.set_defaults(command="chat")
    _add_general(parser)
    _add_one_shot(parser)
    _add_chats(parser)
    _add_history(parser)
    _add_screen(parser)
    _add_recording(parser)
    add_attach_options(parser)
    add_server_options(parser)
    add_engine_options(parser)
    _add_opposites(parser)
    return parser


def _add_general(parser: Parser) -> None:
    group = parser.add_argument_group("general")
    group.add_argument("-h", "--help", action="help", help="show this help and exit")
    group.add_argument("--version", action="version", version=f"pagedchat {__version__}")
    group.add_argument(
        "--config", metavar="FILE", help="settings in TOML (config.toml in the platform's place, if it is there)"
    )
    group.add_argument(
        "--print-config", action="store_true", help="print what holds and where each value is from, and exit"
    )


def _add_one_shot(parser: Parser) -> None:
    group = parser.add_argument_group("one reply without a screen")
    group.add_argument(
        "-p",
        "--prompt",
        metavar="TEXT",
        help="print the reply to TEXT and exit; what standard input has is appended; - reads that alone",
    )
    group.add_argument(
        "--json", action="store_true", help="print one JSON object: text, token ids, timings, cache counters"
    )


def _add_chats(parser: Parser) -> None:
    group = parser.add_argument_group("chats")
    group.add_argument(
        "--sessions", type=_sessions, default=1, metavar="N", help="how many panes to open, 1 to 9 (1)"
    )
    group.add_argument("--system", type=_text, metavar="TEXT", help="system prompt of every chat")
    group.add_argument(
        "--when-full",
        choices=WHEN_FULL,
        default="stop",
        metavar="HOW",
        help="when a context is full: stop the reply, drop the oldest turns, or go on in a new chat with a "
        "summary (stop)",
    )
    group.add_argument(
        "--raw", action="store_true", help="text completion: the prompt goes to the model without a chat template"
    )


def _add_history(parser: Parser) -> None:
    group = parser.add_argument_group("history")
    group.add_argument(
        "--continue",
        dest="go_on",
        action="store_true",
        help="go on with what was open last: chats, forks, drafts, queues; with -p with the last chat",
    )
    group.add_argument(
        "--resume", type=_chat_number, metavar="N", help="go on with chat N, as ^S lists them; with -p too"
    )
    group.add_argument("--ephemeral", action="store_true", help="keep nothing of this run")


def _chat_number(text: str) -> int:
    if text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text[:40]!r} is not the number of a chat")


def _add_screen(parser: Parser) -> None:
    group = parser.add_argument_group("screen")
    group.add_argument(
        "--markdown",
        choices=("auto", "on", "off"),
        default="auto",
        help="draw replies as Markdown, or as written; auto: as Markdown those of a model with a chat template",
    )
    group.add_argument(
        "--thoughts",
        choices=("fold", "open"),
        default="fold",
        help="show what a model thinks before it answers as one line, or whole (fold)",
    )
    group.add_argument("--ascii", action="store_true", help="draw with ASCII characters only")
    group.add_argument(
        "--theme",
        default=AUTO,
        metavar="NAME",
        help="colours: auto (those chosen last, else by the terminal's background), dark, light, or any by name",
    )


def _add_recording(parser: Parser) -> None:
    group = parser.add_argument_group("recordings and figures")
    group.add_argument(
        "--trace", type=new_file, metavar="FILE", help="record every step in a new file, to be shown by replay"
    )
    group.add_argument(
        "--metrics-port",
        type=_port,
        metavar="N",
        help="metrics for Prometheus on 127.0.0.1 at this port; 0 takes any that is free",
    )


def _add_opposites(parser: Parser) -> None:
    """What a file or a variable switches on is switched off by `--no-NAME`, and `--no-NAME` by `--NAME`."""
    group = parser.add_argument_group()
    for action in [action for action in parser._actions if isinstance(action.const, bool)]:
        name = action.option_strings[-1].removeprefix("--")
        opposite = name.removeprefix("no-") if name.startswith("no-") else f"no-{name}"
        if action.dest != "print_config":
            group.add_argument(
                f"--{opposite}", dest=action.dest, action="store_const", const=not action.const,
                default=action.default, help=argparse.SUPPRESS,
            )  # fmt: skip


def _sessions(text: str) -> int:
    if text.isdecimal() and 1 <= int(text) <= MAX_SESSIONS:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a number from 1 to {MAX_SESSIONS}")


def _text(text: str) -> str:
    """Arguments come as bytes; what is no text cannot go to the engine."""
    if is_unicode(text):
        return text
    raise argparse.ArgumentTypeError(f"{text!r} is not valid Unicode")


def _port(text: str) -> int:
    if text.isdecimal() and int(text) <= MAX_PORT:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not a port from 0 to {MAX_PORT}")
