"""`pagedchat bench engine --device cpu --only ...`: sections of the run on a GPU that a CPU has too."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pagedchat.api.llm import LLM
from pagedchat.bench.captured_host import CapturedHostResult, measure_captured_host
from pagedchat.bench.engine.arguments import CPU_SECTIONS
from pagedchat.bench.engine.beams import beam_table, measure_beams
from pagedchat.bench.engine.client import CPU_WORKS, measure_client
from pagedchat.bench.engine.cpu import text_rows
from pagedchat.bench.engine.report import client_table
from pagedchat.bench.engine.stutter import measure_stutter, stutter_table
from pagedchat.bench.kernels.report import Table
from pagedchat.bench.made_up import SHAPE, given_or_made_up
from pagedchat.bench.table import Row, environment, render_table, say, show
from pagedchat.bench.text_host import COUNTS, measure_text_host
from pagedchat.config import DType, EngineConfig, ModelConfig
from pagedchat.errors import InvalidValueError


def run_cpu_sections(args: argparse.Namespace) -> int:
    """Measure, print and write.

    Raises:
        InvalidValueError: a section that a CPU does not have.
        PagedChatError: what the engine refuses.
    """
    missing = [name for name in args.only if name not in CPU_SECTIONS]
    if missing:
        raise InvalidValueError(
            f"--only: {missing[0]!r} is measured on a GPU alone.",
            f"Add --device cuda, or choose {', '.join(CPU_SECTIONS)}.",
        )
    found: dict[str, Any] = {"environment": environment()}
    if "stutter" in args.only:
        found["stutter"] = _stutter(args)
    if "beams" in args.only:
        found["beams"] = _beams(args)
    if "client" in args.only:
        found |= _client(args)
    if args.json is not None:
        args.json.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    return 0


def _stutter(args: argparse.Namespace) -> list[dict[str, Any]]:
    with given_or_made_up(args.model, say) as folder:
        figures = measure_stutter(Path(folder), "cpu", args.dtype, args.repeats, say)
    show(f"{args.model or SHAPE}, {args.dtype}\n\n{_text(stutter_table(figures), args)}")
    return [asdict(figure) for figure in figures]


def _beams(args: argparse.Namespace) -> list[dict[str, Any]]:
    with given_or_made_up(args.model, say) as folder:
        dtype: DType = "float32" if args.dtype == "auto" else args.dtype
        llm = LLM(folder, device="cpu", dtype=dtype, skip_tokenizer_init=True, num_blocks=512)
        figures = measure_beams(llm, "cpu", args.repeats, say)
    show(f"{args.model or SHAPE}, {dtype}\n\n{_text(beam_table(figures), args)}")
    return [asdict(figure) | {"times": figure.times} for figure in figures]


def _client(args: argparse.Namespace) -> dict[str, Any]:
    """What the terminal's side gets, and what text costs the engine process without a model."""
    say("text on the host")
    texts = [measure_text_host(num_chats) for num_chats in COUNTS]
    captured = [measure_captured_host(num_chats) for num_chats in COUNTS]
    dtype: DType = "float32" if args.dtype == "auto" else args.dtype
    with given_or_made_up(args.model, say) as model:
        config = EngineConfig(model=ModelConfig(model=model, device="cpu", dtype=dtype))
        figures = measure_client(config, args.repeats, say, CPU_WORKS)
    show(_text(client_table(figures), args))
    show(render_table("Text, without a model", text_rows(texts)))
    show(render_table("Engine and captured steps that compute nothing", captured_rows(captured)))
    rows = [asdict(figure) | {"median": figure.value} for figure in figures]
    return {"client": rows, "text_host": list(map(asdict, texts)), "captured_host": list(map(asdict, captured))}


def captured_rows(results: list[CapturedHostResult]) -> list[Row]:
    """The host's part of a captured step, by the number of chats."""
    return [
        Row(
            f"host side of a captured step, chats: {result.num_chats}",
            f"{result.us_per_token:.2f} us a token",
            f"a step {result.step_us:.1f} us",
        )
        for result in results
    ]


def _text(table: Table, args: argparse.Namespace) -> str:
    return table.as_markdown() if args.markdown else table.as_text()
