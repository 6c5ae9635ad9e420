"""The `pagedchat` command: reads arguments, starts the terminal, a one-shot prompt, a replay, a
benchmark or the doctor.

Each of those is imported only when it is wanted, so that help is instant and the first frame is early. This is
also the place where errors meant for people become one sentence on standard error and an exit code.
"""

import argparse
import os
import sys
from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from msgspec import structs

from pagedchat.bounds import check_text
from pagedchat.cli.attach import attach_address, attached_link
from pagedchat.cli.engine_options import engine_config, sampling_overrides
from pagedchat.cli.options import parse_args
from pagedchat.cli.server_options import chosen_servers, engines_first, local_models, server_opener
from pagedchat.cli.signals import ended_in_order
from pagedchat.cli.standard_input import whole_prompt
from pagedchat.cli.standard_streams import (
    OutputError,
    check_terminal_type,
    checked_output,
    give_up_output,
    say_error,
)
from pagedchat.cli.themes import chosen_theme
from pagedchat.config import CacheConfig, EngineConfig
from pagedchat.errors import InvalidValueError, PagedChatError
from pagedchat.garbage import no_collections
from pagedchat.remote.address import Address
from pagedchat.settings.places import remembered_path
from pagedchat.settings.remembered import remembered_theme

if TYPE_CHECKING:
    from pagedchat.history.one_reply import KeptReply
    from pagedchat.history.run import RunHistory
    from pagedchat.remote.openai.address import ServerAddress
    from pagedchat.service.commands import EngineLink
    from pagedchat.view.options import UiOptions

_USUAL_SHARE = CacheConfig().gpu_memory_utilization
EXIT_FAILURE = 1
EXIT_USAGE = 2
EXIT_BROKEN_PIPE = 141


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line `argv` (the process's own by default) and return its exit code."""
    with ended_in_order() as ending:
        try:
            with checked_output():
                code = _dispatch(parse_args(sys.argv[1:] if argv is None else argv))
            return ending.exit_code if ending.has_begun else code
        except KeyboardInterrupt:
            return ending.exit_code
        except BrokenPipeError:
            give_up_output()
            return EXIT_BROKEN_PIPE
        except OutputError as error:
            give_up_output()
            return ending.exit_code if ending.has_begun else _complain(error)
        except PagedChatError as error:
            return _complain(error)


def _dispatch(args: argparse.Namespace) -> int:
    if args.command != "chat":
        return _run_command(args)
    _check_history_options(args)
    config = engine_config(args)
    attach = attach_address(args)
    prompt = None if attach is not None else _prompt(args)
    if prompt is None:
        return _run_terminal(args, config, attach)
    _refuse_screen_options(args)
    kept = _kept_reply(args)
    from pagedchat.cli.oneshot import run_oneshot  # noqa: PLC0415 - loads the engine

    return run_oneshot(
        prompt, config, sampling_overrides(args), system=args.system, raw=args.raw, as_json=args.json, kept=kept
    )


def _run_command(args: argparse.Namespace) -> int:
    """One of those that are named by a word."""
    match args.command:
        case "bench":
            from pagedchat.bench.main import run_bench as run  # noqa: PLC0415 - loads torch
        case "doctor":
            from pagedchat.doctor.main import run_doctor as run  # noqa: PLC0415 - loads what compiles kernels
        case "models":
            from pagedchat.cli.models import run_models as run  # noqa: PLC0415 - only what is wanted
        case "replay":
            from pagedchat.cli.replay import run_replay  # noqa: PLC0415 - reads traces

            return run_replay(args, _screen_settings)
        case "inspect":
            from pagedchat.cli.attach import run_inspect  # noqa: PLC0415 - only what is wanted

            return run_inspect(args, _screen_settings)
        case "serve":
            from pagedchat.cli.serve import run_serve as run  # noqa: PLC0415 - only what is wanted
        case _:
            from pagedchat.cli.stats import run_stats as run  # noqa: PLC0415 - opens sockets
    return run(args)


def _prompt(args: argparse.Namespace) -> str | None:
    """The text to reply to and exit, or None for the terminal."""
    if args.prompt is None and sys.stdin.isatty():
        if args.json and "json" in args.given:
            raise InvalidValueError("--json needs a prompt.", 'Give one with -p "TEXT" or on standard input.')
        return None
    return whole_prompt(args.prompt)


def _check_history_options(args: argparse.Namespace) -> None:
    if args.go_on and args.resume is not None:
        raise InvalidValueError("--continue and --resume name different chats.", "Leave out one of them.")
    if args.ephemeral and (args.go_on or args.resume is not None):
        raise InvalidValueError(
            "--ephemeral keeps nothing, and what it goes on with would be kept.", "Leave out --ephemeral."
        )


def _refuse_screen_options(args: argparse.Namespace) -> None:
    """What only the chats on the screen do, where it was asked for in this very command."""
    for name in ("--trace", "--metrics-port", "--beside", "--server"):
        if name.lstrip("-").replace("-", "_") in args.given:
            raise InvalidValueError(
                f"{name} goes with the chats on the screen, not with one reply.", f"Leave out {name} or -p."
            )


def _run_terminal(args: argparse.Namespace, config: EngineConfig, attach: Address | None) -> int:
    """The chats on the screen, which says when garbage is searched for: not before its first frame is out."""
    if not sys.stdout.isatty():
        raise InvalidValueError(
            "Standard output is not a terminal, so the chats cannot be shown.", 'For one reply use -p "TEXT".'
        )
    check_terminal_type()
    with no_collections():
        return _run_chats(args, config, attach)


def _run_chats(args: argparse.Namespace, config: EngineConfig, attach: Address | None) -> int:
    from pagedchat.tui.app import UiOptions, run_app  # noqa: PLC0415 - loads Textual

    history = _history(args)
    remembered = remembered_path()
    link: EngineLink
    if history is not None:
        reopened = history.reopened
        reopened = structs.replace(reopened, layout=engines_first(reopened.layout))
        history = structs.replace(history, reopened=reopened)
    servers, has_engine = _servers(args, history, attach)
    open_server = server_opener(args)
    config, beside = _two_models(args, config, history)
    metrics_url, model = "", config.model.model if has_engine else servers[0].text
    if attach is not None:
        link, beside, model = attached_link(args, attach, history), "", attach.where
    elif has_engine:
        link, metrics_url = _engine_link(config, args.metrics_port)
    else:
        link = open_server(servers[0])
    options = UiOptions(
        model=model,
        attached="" if attach is None else attach.where,
        beside=beside if has_engine else "",
        has_engine=has_engine,
        servers=servers,
        known_servers=args.servers,
        api_key_env=args.api_key_env or "",
        open_server=open_server,
        open_engine=lambda model: _engine_link(_with_model(config, model), None)[0],
        sessions=args.sessions,
        overrides=sampling_overrides(args),
        system=args.system,
        when_full=args.when_full,
        raw=args.raw,
        history=history,
        keeps=not args.ephemeral,
        ephemeral=args.ephemeral,
        markdown=args.markdown,
        thoughts=args.thoughts,
        ascii=args.ascii,
        trace=args.trace,
        metrics_port=args.metrics_port,
        metrics_url=metrics_url,
        theme=chosen_theme(args.theme, remembered_theme(remembered), os.environ),
        remember_in=remembered,
        keymap=args.keymap,
    )
    return run_app(link, options)


def _servers(
    args: argparse.Namespace, history: "RunHistory | None", attach: Address | None
) -> "tuple[tuple[ServerAddress, ...], bool]":
    """OpenAI-compatible servers beside the engine, or in its place, and whether there is an engine."""
    if attach is not None:
        return (), True
    return chosen_servers(args, history.reopened.layout.models if history is not None else ())


def _two_models(
    args: argparse.Namespace, config: EngineConfig, history: "RunHistory | None"
) -> tuple[EngineConfig, str]:
    """What the first engine loads, and the model beside it, empty if there is none.

    They are those that were asked for, or those of the chats that are gone on with. On a GPU the first one leaves
    half of its share to the second, if nothing else is said.
    """
    before = local_models(history.reopened.layout.models) if history is not None else ()
    asked = None if args.beside is None else check_text("--beside", args.beside)
    beside = asked or (before[1] if len(before) > 1 else "")
    model, cache = config.model, config.cache
    if before and "model" not in args.given and before[0] != model.model:
        model = _with_model(config, before[0]).model
    if beside and "gpu_memory_utilization" not in args.given and cache.gpu_memory_utilization == _USUAL_SHARE:
        cache = replace(cache, gpu_memory_utilization=cache.gpu_memory_utilization / 2)
    return replace(config, model=model, cache=cache), beside


def _with_model(config: EngineConfig, model: str) -> EngineConfig:
    """The same for another model; a tokenizer that was chosen for the first one does not serve it."""
    return replace(config, model=replace(config.model, model=model, tokenizer=None))


def _history(args: argparse.Namespace) -> "RunHistory | None":
    """The chats to go on with; None where there are none, and the history can wait until the first frame is out."""
    if not args.go_on and args.resume is None and args.attach is None:
        return None
    if args.attach is not None and args.ephemeral:
        return None
    from pagedchat.history.run import begin, begin_attached  # noqa: PLC0415 - loads SQLite

    if args.attach is not None and args.resume is None:
        return begin_attached()
    return begin(go_on=args.go_on, number=args.resume)


def _kept_reply(args: argparse.Namespace) -> "KeptReply | None":
    """The chat that a prompt without a screen belongs to."""
    going_on = args.go_on or args.resume is not None
    if args.raw and going_on:
        raise InvalidValueError("--raw continues a text, not a chat.", "Leave out one of them.")
    if args.raw or args.ephemeral:
        return None
    from pagedchat.history.one_reply import keep_reply  # noqa: PLC0415 - loads SQLite

    return keep_reply(go_on=args.go_on, number=args.resume)


def _screen_settings() -> "UiOptions":
    """What a file and the environment say of screens."""
    from pagedchat.view.options import UiOptions  # noqa: PLC0415 - not for help

    settings = parse_args([])
    theme = chosen_theme(settings.theme, remembered_theme(remembered_path()), os.environ)
    return UiOptions(ascii=settings.ascii, theme=theme, keymap=settings.keymap)


def _engine_link(config: EngineConfig, metrics_port: int | None) -> "tuple[EngineLink, str]":
    """The engine, not yet started, and where its metrics are served; empty if nowhere."""
    from pagedchat.service.client import EngineClient  # noqa: PLC0415 - loads asyncio, multiprocessing

    if metrics_port is None:
        return EngineClient(config), ""
    from pagedchat.metrics.observed import with_metrics  # noqa: PLC0415 - loads the HTTP server

    return with_metrics(EngineClient(config), metrics_port)


def _complain(error: PagedChatError) -> int:
    """Say it; returns the exit code."""
    say_error(f"pagedchat: {_one_line(error.message)}")
    if error.hint:
        say_error(_one_line(error.hint))
    return EXIT_USAGE if isinstance(error, InvalidValueError) else EXIT_FAILURE


def _one_line(text: str) -> str:
    """Names from files and arguments go into messages; none of them may reach the terminal as an escape."""
    return "".join(char if char.isprintable() else " " for char in text)
