"""`pagedchat replay`: the inspector over a recording, or what is in it in words. Needs no model and no torch."""

import argparse
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from pagedchat.chat.sanitize import one_line, sanitize, terminal_json
from pagedchat.cli.standard_streams import check_terminal_type
from pagedchat.errors import InvalidValueError
from pagedchat.trace.format import MAX_STEP
from pagedchat.trace.reader import open_trace
from pagedchat.trace.recording import Recording
from pagedchat.trace.summary import TraceSummary, summarize
from pagedchat.view.options import UiOptions


def add_replay_options(parser: argparse.ArgumentParser) -> None:
    """Which recording, where to begin, or what to print of it."""
    parser.add_argument("file", type=Path, metavar="FILE", help="written by --trace FILE or /trace save FILE")
    parser.add_argument("--step", type=_step, metavar="N", help="begin at this step (at the end)")
    parser.add_argument("--ascii", action="store_true", help="draw with ASCII characters only")
    parser.add_argument("--summary", action="store_true", help="print what is in it and show nothing")
    parser.add_argument("--json", action="store_true", help="with --summary: print one JSON object")


def run_replay(args: argparse.Namespace, settings: Callable[[], UiOptions] = UiOptions) -> int:
    """Show the recording until the user quits, or print its summary; returns the exit code.

    Args:
        args: of the command line.
        settings: what holds for screens, asked only where there is one.

    Raises:
        TraceError: the file cannot be read, or has no such step.
        InvalidValueError: there is no terminal to show it in.
    """
    if args.json and not args.summary:
        raise InvalidValueError("--json needs --summary.", "Give both, or neither.")
    recording = open_trace(args.file)
    if args.summary:
        summary = summarize(recording, args.file.stat().st_size)
        print(terminal_json(asdict(summary), indent=2) if args.json else sanitize(summary_text(summary)))
        return 0
    return _show(recording, args, settings)


def _show(recording: Recording, args: argparse.Namespace, settings: Callable[[], UiOptions]) -> int:
    if not sys.stdout.isatty():
        raise InvalidValueError(
            "Standard output is not a terminal, so the recording cannot be shown.", "For its figures use --summary."
        )
    check_terminal_type()
    from pagedchat.tui.kit.terminal_app import run_on_terminal  # noqa: PLC0415 - loads Textual
    from pagedchat.tui.replay.app import ReplayApp  # noqa: PLC0415 - as above

    options = settings()
    app = ReplayApp(
        recording, args.step, ascii_only=args.ascii or options.ascii, theme=options.theme, keymap=options.keymap
    )
    return run_on_terminal(app)


def summary_text(summary: TraceSummary) -> str:
    """The figures as lines for people."""
    day = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(summary.recorded_at))
    lines = [
        ("model", f"{one_line(summary.model)}  {one_line(summary.dtype)}  {one_line(summary.device)}"),
        ("pool", f"{summary.num_blocks} blocks of {summary.block_size} tokens"),
        ("recorded", f"{day} by pagedchat {one_line(summary.program)}"),
        ("steps", f"{summary.first_step} to {summary.last_step}, {summary.num_reports} reports"),
        ("time", f"{summary.seconds:.1f} s"),
        ("tokens", f"{summary.prefill_tokens} prefilled, {summary.decode_tokens} decoded"),
        ("chats", ", ".join(one_line(label) for label in summary.chats.values()) or "none"),
        (
            "size",
            f"{summary.num_bytes} bytes, {summary.bytes_per_step:g} a step, {summary.num_keyframes} keyframes",
        ),
        ("state", summary.damage or "whole"),
    ]
    return "\n".join(f"{name:9} {value}" for name, value in lines)


def _step(text: str) -> int:
    if text.isdecimal() and int(text) <= MAX_STEP:
        return int(text)
    raise argparse.ArgumentTypeError(f"{text!r} is not the number of a step")
