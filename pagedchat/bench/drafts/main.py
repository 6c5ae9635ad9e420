"""`pagedchat bench drafts`: a row for each number of chats and each kind of drafts.

Prompt lookup drafts for a model of OPT-125m's or another shape with random weights, so what it is to write is
dictated: an edit of its prompt, in which one token in 25 is another, or the prose that follows the prompt, which
repeats what prose repeats. Draft models draft for the models of `pairs`, which say what they say.
"""

import argparse
import json
import tempfile
import time
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pagedchat import bundled
from pagedchat.api.engine import LLMEngine
from pagedchat.bench.drafts.arguments import HOW
from pagedchat.bench.drafts.dictated import Dictated
from pagedchat.bench.drafts.measure import TEXTS, Measured, Text, Work, measure
from pagedchat.bench.drafts.pairs import PAIRS
from pagedchat.bench.made_up import given_or_made_up, model_words
from pagedchat.bench.table import Row, environment, render_table, say, show
from pagedchat.config import CacheConfig, EngineConfig, ModelConfig, SpeculationConfig
from pagedchat.errors import InvalidValueError
from pagedchat.models.config import describe_model
from pagedchat.models.hub import find_model
from pagedchat.models.tokenizer import load_tokenizer
from pagedchat.resources import resource_dir

_DICTATED: tuple[Text, ...] = ("edit", "prose")


def run_drafts_bench(args: argparse.Namespace) -> int:
    """Measure and print; returns the exit code.

    Raises:
        InvalidValueError: an option.
        DeviceError: no such device.
    """
    prose = _prose()
    if args.prompt + args.tokens >= len(prose):
        raise InvalidValueError(
            f"--prompt and --tokens are more than the text's {len(prose):,} tokens.", "Ask for fewer."
        )
    rows: list[dict[str, Any]] = []
    for how in args.how or HOW:
        tables = _looked_up(args, prose) if how == "lookup" else _by_models(args, prose)
        for title, device, found in tables:
            show(render_table(f"{title}, on {device}", [_row(each) for each in found]))
            rows += [{"title": title, "device": device, **asdict(each)} for each in found]
    if args.json is not None:
        values = {"environment": environment(), "rows": rows}
        args.json.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    return 0


_Table = tuple[str, str, list[Measured]]
"""What was measured, on what."""


def _looked_up(args: argparse.Namespace, prose: list[int]) -> Iterator[_Table]:
    works = [Work(n, text, args.prompt, args.tokens) for n in args.batch for text in _DICTATED]
    with given_or_made_up(None, say, args.shape) as folder, LLMEngine(_config(args, folder)) as engine:
        engine._core.runner = Dictated(engine._core.runner)
        found = [_measured(engine, prose, work, args) for work in works]
        yield f"Prompt lookup, {model_words(None, args.shape)}", engine.info.device, found


def _by_models(args: argparse.Namespace, prose: list[int]) -> Iterator[_Table]:
    for make in PAIRS:
        with tempfile.TemporaryDirectory() as folder:
            pair = make(Path(folder))
            with LLMEngine(_config(args, pair.model, pair.draft)) as engine:
                works = [Work(n, "own", args.prompt, args.tokens, "model") for n in args.batch]
                found = [_measured(engine, prose, work, args) for work in works]
                yield f"Drafts for {pair.name}", engine.info.device, found


def _measured(engine: LLMEngine, prose: list[int], work: Work, args: argparse.Namespace) -> Measured:
    say(f"{work.num_chats} chats, text that {TEXTS[work.text]}")
    if args.processor_time:
        engine._core._clock = time.process_time
        engine._core.scheduler.drafts.time_by(time.process_time)
    return measure(engine._core, prose, work, args.runs, engine.prepare)


def _config(args: argparse.Namespace, model: str, draft: str | None = None) -> EngineConfig:
    blocks = max(args.batch) * (-(-(args.prompt + args.tokens) // 16) + 4)
    return EngineConfig(
        model=ModelConfig(
            model=model,
            skip_tokenizer_init=True,
            device=args.device,
            dtype=args.dtype,
            quantization=args.quantize if draft is None else "none",
        ),
        cache=CacheConfig(num_blocks=blocks, enable_prefix_caching=False),
        speculation=SpeculationConfig() if draft is None else SpeculationConfig(method="model", model=draft),
    )


def _prose() -> list[int]:
    """As tokens of the model in the box, all of which the shape has."""
    description = describe_model(bundled.NAME, find_model(bundled.NAME))
    loaded = load_tokenizer(description.name, description.folder, description.model_type)
    token_ids: list[int] = loaded.tokenizer.encode((resource_dir("assets") / "held_out.txt").read_text("utf-8")).ids
    return token_ids


def _row(found: Measured) -> Row:
    work = found.work
    chats = "1 chat" if work.num_chats == 1 else f"{work.num_chats} chats"
    share = found.num_accepted / found.num_drafted if found.num_drafted else 0.0
    off, drafted = (found.tokens_per_second(with_drafts=each) for each in (False, True))
    note = f"{off:,.1f} without: {found.times:.2f} times; {found.num_drafted:,} drafted, {share:.0%} accepted"
    note += f", {found.tokens_per_draft:.1f} tokens a draft's step" if found.num_drafts else ""
    return Row(f"{chats}, text that {TEXTS[work.text]}", f"{drafted:,.1f} tok/s", note)
