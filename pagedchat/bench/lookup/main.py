"""`pagedchat bench lookup`: a row for each number of chats and each kind of text.

The model has the shape of OPT-125m and random weights, so what it is to write is dictated: an edit of its prompt,
in which one token in 25 is another, or the prose that follows the prompt, which repeats what prose repeats.
"""

import argparse
import json
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import torch

from pagedchat import bundled
from pagedchat.api.engine import LLMEngine
from pagedchat.bench.lookup.dictated import Dictated
from pagedchat.bench.lookup.measure import TEXTS, Measured, Work, measure
from pagedchat.bench.random_checkpoint import OPT_125M, write_checkpoint
from pagedchat.bench.table import Row, environment, render_table, say, show
from pagedchat.config import CacheConfig, EngineConfig, ModelConfig
from pagedchat.errors import InvalidValueError
from pagedchat.models.config import describe_model
from pagedchat.models.hub import find_model
from pagedchat.models.tokenizer import load_tokenizer
from pagedchat.resources import resource_dir


def run_lookup_bench(args: argparse.Namespace) -> int:
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
    works = [Work(n, text, args.prompt, args.tokens) for n in args.batch for text in TEXTS]
    found = []
    with tempfile.TemporaryDirectory() as folder:
        write_checkpoint(Path(folder), OPT_125M, torch.float32, torch.device("cpu"))
        with LLMEngine(_config(folder, args, max(args.batch))) as engine:
            core = engine._core
            core.runner = Dictated(core.runner)
            if args.processor_time:
                core._clock = time.process_time
            for work in works:
                say(f"{work.num_chats} chats, text that {TEXTS[work.text]}")
                found.append(measure(core, prose, work, args.runs, engine.prepare))
            device = engine.info.device
    title = f"Prompt lookup on {device}, replies of {args.tokens} tokens to prompts of {args.prompt}"
    show(render_table(title, [_row(each) for each in found]))
    if args.json is not None:
        values = {"environment": environment(), "device": device, "rows": [asdict(each) for each in found]}
        args.json.write_text(json.dumps(values, indent=1) + "\n", encoding="utf-8")
    return 0


def _config(folder: str, args: argparse.Namespace, num_chats: int) -> EngineConfig:
    blocks = num_chats * (-(-(args.prompt + args.tokens) // 16) + 4)
    return EngineConfig(
        model=ModelConfig(model=folder, skip_tokenizer_init=True, device=args.device, dtype=args.dtype),
        cache=CacheConfig(num_blocks=blocks, enable_prefix_caching=False),
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
    off, lookup = found.tokens_per_second("off"), found.tokens_per_second("lookup")
    note = f"{off:,.1f} without: {found.times:.2f} times; {found.num_drafted:,} drafted, {share:.0%} accepted"
    return Row(f"{chats}, text that {TEXTS[work.text]}", f"{lookup:,.1f} tok/s", note)
