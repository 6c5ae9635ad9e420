"""`pagedchat bench ui`: runs the sections asked for, prints a table, writes the figures as JSON."""

import argparse
import json
import os
from dataclasses import asdict, dataclass
from itertools import pairwise

from pagedchat.bench.engine.gpu import finds_gpu
from pagedchat.bench.made_up import SHAPE
from pagedchat.bench.random_checkpoint import OPT_125M
from pagedchat.bench.table import Row, environment, render_table, say, show
from pagedchat.bench.ui import attach as attaching
from pagedchat.bench.ui.arguments import GPU_SECTIONS, MODEL_SECTIONS, SECTIONS
from pagedchat.bench.ui.frames import FramesResult, measure_frames
from pagedchat.bench.ui.gpu_speed import measure_gpu_speed
from pagedchat.bench.ui.history import NUM_TURNS, HistoryResult, measure_history
from pagedchat.bench.ui.keys import KeysResult, measure_keys
from pagedchat.bench.ui.slowdown import KINDS, STEP_SECONDS, SlowdownResult, measure_slowdown
from pagedchat.bench.ui.terminal import COLUMNS, LINES
from pagedchat.bench.ui.transcripts import LONG, OLD_MESSAGES, SHORT, TranscriptResult, measure_transcripts
from pagedchat.errors import DeviceError, InvalidValueError, PagedChatError


@dataclass(frozen=True, slots=True, kw_only=True)
class UiFigures:
    """What was measured; None for a section that was not asked for."""

    frames: FramesResult | None
    keys: KeysResult | None
    transcripts: TranscriptResult | None
    slowdown: SlowdownResult | None
    history: HistoryResult | None
    attach: attaching.AttachResult | None
    engine: str
    """What ran in it for the slowdown, for people."""
    load: dict[str, float]
    """The machine's load average when each section began, one minute's."""


def run_ui_bench(args: argparse.Namespace) -> int:
    """Measure, print and write; returns the exit code.

    Raises:
        PagedChatError: the program under test fails, or there is no pseudo-terminal.
    """
    if os.name != "posix":
        raise PagedChatError("bench ui needs a pseudo-terminal.", "Run it on Linux or macOS.")
    if args.device == "cuda" and not finds_gpu():
        raise DeviceError("bench ui finds no GPU.", "Run it on a machine with one, or without --device cuda.")
    if args.model and (args.device == "cuda" or set(args.only or MODEL_SECTIONS) - set(MODEL_SECTIONS)):
        raise InvalidValueError(
            "--model is for keys, on the CPU.", "Write: pagedchat bench ui --only keys --model X"
        )
    figures = _measure(args)
    show(render_table(_title(args), _rows(figures)))
    if args.json is not None:
        values = {"environment": environment(), **_as_json(figures)}
        args.json.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    return 0


def _measure(args: argparse.Namespace) -> UiFigures:
    load: dict[str, float] = {}
    frames, keys, transcripts, slowdown, history, attach = None, None, None, None, None, None
    on_gpu = args.device == "cuda"
    sections = args.only or (GPU_SECTIONS if on_gpu else MODEL_SECTIONS if args.model else SECTIONS)
    if "frames" in sections:
        _begin("frames", f"{args.frames} frames of each kind", load)
        frames = measure_frames(args.num_blocks, args.chats, args.rate, args.frames)
    if "keys" in sections:
        _begin("keys", f"{args.keys} keys while {args.chats} chats stream", load)
        sizes = args.chats, args.num_blocks, args.rate, args.keys
        keys = measure_keys(*sizes, args.model or "", args.quantize)
    if "transcripts" in sections:
        _begin("transcripts", f"{args.chats} chats of {OLD_MESSAGES} messages, one of {LONG:,} lines", load)
        transcripts = measure_transcripts(args.chats, args.num_blocks, args.rate, args.keys, args.seconds)
    if "slowdown" in sections:
        _begin("slowdown", "the engine with and without a screen", load)
        if on_gpu:
            sizes = args.chats, args.num_blocks, args.rounds, args.steps
            slowdown = measure_gpu_speed(OPT_125M, "cuda", *sizes, say)
        else:
            slowdown = measure_slowdown(args.chats, args.num_blocks, args.rounds, args.seconds, say)
    if "history" in sections:
        _begin("history", f"a history of {args.history_chats} chats", load)
        history = measure_history(args.history_chats)
    if "attach" in sections:
        _begin("attach", "a terminal on a server", load)
        attach = attaching.measure_attach()
    engine = f"{SHAPE}, on a GPU" if on_gpu else f"{STEP_SECONDS * 1000:.0f} ms a step"
    return UiFigures(
        frames=frames,
        keys=keys,
        transcripts=transcripts,
        slowdown=slowdown,
        history=history,
        attach=attach,
        engine=engine,
        load=load,
    )


def _begin(section: str, what: str, load: dict[str, float]) -> None:
    load[section] = round(os.getloadavg()[0], 2)
    say(what)


def _title(args: argparse.Namespace) -> str:
    speed = f"{args.model} in {args.quantize}" if args.model else f"{args.rate} tokens a second each"
    return f"{args.chats} chats, {args.num_blocks} blocks, {speed}, a terminal of {COLUMNS} by {LINES}"


def _rows(figures: UiFigures) -> list[Row]:
    rows = []
    if figures.frames is not None:
        rows += _frames_rows(figures.frames)
    if figures.keys is not None:
        rows += _keys_rows(figures.keys)
    if figures.transcripts is not None:
        rows += _transcript_rows(figures.transcripts)
    if figures.slowdown is not None:
        rows += _slowdown_rows(figures.slowdown, figures.engine)
    if figures.history is not None:
        rows += _history_rows(figures.history)
    if figures.attach is not None:
        rows += _attach_rows(figures.attach)
    return rows


def _frames_rows(frames: FramesResult) -> list[Row]:
    per_second = f"{frames.busy_frames_per_second:.0f} frames/s on one core"
    return [
        Row(
            "inspector, frame in which nothing changed",
            f"{frames.idle_ms:.2f} ms",
            f"p99 {frames.idle_p99_ms:.2f} ms",
        ),
        Row("inspector, frame with every chat streaming", f"{frames.busy_ms:.2f} ms", per_second),
        Row(
            "inspector, whole map drawn anew", f"{frames.redrawn_ms:.2f} ms", f"p99 {frames.redrawn_p99_ms:.2f} ms"
        ),
    ]


def _keys_rows(keys: KeysResult) -> list[Row]:
    return [
        Row(
            "key to its echo, inspector open",
            f"{keys.p50_ms:.1f} ms",
            f"p99 {keys.p99_ms:.1f} ms, {keys.num_keys} keys",
        ),
        Row("frames drawn meanwhile", f"{keys.frames_per_second:.1f}/s", f"{keys.steps_per_second:.1f} steps/s"),
        Row(
            "processor time of the program",
            f"{keys.cpu_share:.0%}",
            f"of one core, {keys.cpu_ms_per_frame:.1f} ms a frame",
        ),
    ]


def _transcript_rows(result: TranscriptResult) -> list[Row]:
    keys = result.keys
    chats = f"{result.num_chats} chats of {OLD_MESSAGES} messages, Markdown streaming"
    return [
        Row(chats, f"{result.chats_share:.0%} of a core", f"{keys.cpu_share:.0%} with somebody typing"),
        Row("key to its echo there", f"{keys.p50_ms:.1f} ms", f"p99 {keys.p99_ms:.1f} ms, {keys.num_keys} keys"),
        Row(
            f"one chat of {LONG:,} lines, Markdown streaming",
            f"{result.long_share:.1%} of a core",
            f"{result.short_share:.1%} with {SHORT} lines",
        ),
        Row(
            "a page up there", f"{result.long_page_ms:.1f} ms", f"{result.short_page_ms:.1f} ms with {SHORT} lines"
        ),
    ]


def _slowdown_rows(result: SlowdownResult, engine: str) -> list[Row]:
    base = result.steps_per_second["no screen"]
    rows = [
        Row(
            f"engine, {result.num_chats} chats, {engine}, no screen",
            f"{base:.1f} steps/s",
        )
    ]
    for against, kind in pairwise(KINDS):
        slower = f"{result.slowdown(kind, against):+.1%} slower than {against}"
        speed = f"{result.steps_per_second[kind]:.1f} steps/s"
        rows.append(Row(f"engine, {kind}", speed, f"{slower}, program {result.cpu_share[kind]:.0%} of a core"))
    return rows


def _history_rows(history: HistoryResult) -> list[Row]:
    size = f"{history.num_chats} chats of {NUM_TURNS} turns, {history.megabytes:.0f} MB"
    both = history.open_ms + history.common_ms
    return [
        Row("history, opened and listed", f"{history.open_ms + history.list_ms:.1f} ms", size),
        Row("history, opened and searched", f"{both:.1f} ms", f"a rare word {history.rare_ms:.1f} ms"),
        Row("history, searched without an index", f"{history.plain_ms:.1f} ms", "a script without spaces"),
        Row("history, a chat written", f"{history.write_ms:.1f} ms", f"{NUM_TURNS} turns, on its thread"),
    ]


def _attach_rows(result: attaching.AttachResult) -> list[Row]:
    size = f"{attaching.NUM_CHATS} chats of {attaching.NUM_MESSAGES} messages"
    return [
        Row("attached, first frame", f"{result.first_frame_ms:.0f} ms", "from the start of the process"),
        Row("attached, all text", f"{result.all_text_ms:.0f} ms", size),
        Row("attached, the engine is named", f"{result.attached_ms:.0f} ms", "prompts go out from then on"),
    ]


def _as_json(figures: UiFigures) -> dict[str, object]:
    values: dict[str, object] = {"terminal": [COLUMNS, LINES], **asdict(figures)}
    if figures.frames is not None:
        values["frames"] = asdict(figures.frames) | {
            "busy_frames_per_second": figures.frames.busy_frames_per_second
        }
    if figures.slowdown is not None:
        slower = {
            "by_chats": figures.slowdown.slowdown("chats", "no screen"),
            "by_inspector": figures.slowdown.slowdown("chats and inspector", "chats"),
        }
        values["slowdown"] = asdict(figures.slowdown) | slower
    return values
