"""`pagedchat bench ranks`: tokens a second of a model over several ranks beside those of one, and their sums beside
other libraries', all in one run."""

import argparse
import json
from contextlib import ExitStack
from dataclasses import asdict, replace

import torch

from pagedchat.bench.made_up import given_or_made_up, model_words
from pagedchat.bench.ranks.arguments import SECTIONS
from pagedchat.bench.ranks.speed import Speed, measure_speed
from pagedchat.bench.ranks.sums import NUMS_ROWS, OURS, WIDTH, Sum, measure_sums
from pagedchat.bench.table import Row, environment, render_table, say, show
from pagedchat.config import DEFAULT_MODEL, EngineConfig, ModelConfig
from pagedchat.distributed.joining import check_devices
from pagedchat.errors import InvalidValueError
from pagedchat.ops.ranks.reduce_add_norm import choose_hops
from pagedchat.units import format_size

SHAPE = "llama-3.1-8b"
GOALS = {(1, 2): 1.7, (1, 4): 2.8, (64, 2): 1.6, (64, 4): 2.6}
"""Chats and ranks -> times as many tokens a second as one GPU has, of this shape."""
SUM_GOAL_US = 5.0
_OURS_ON_CPU = "gathered over gloo and summed in order"
_HOPS = {1: "one hop", 2: "two hops"}


def run_ranks_bench(args: argparse.Namespace) -> int:
    """Do what `args` say; returns the exit code.

    Raises:
        PagedChatError: fewer GPUs than ranks, a model that cannot be cut so, a rank that is lost.
    """
    sections, on_cpu = args.only or SECTIONS, args.device == "cpu"
    sizes = sorted(set(args.ranks or _usual_sizes(on_cpu)))
    if args.new_tokens < 2:
        raise InvalidValueError("--new-tokens is 1.", "The first token is left out of the figures: ask for more.")
    config = EngineConfig(model=replace(ModelConfig(), device=args.device, dtype=args.dtype))
    for size in sizes:
        replace(config.model, tensor_parallel_size=size)  # which has bounds
        check_devices(config, size)
    model, shape = args.model or (DEFAULT_MODEL if on_cpu else None), SHAPE
    where = "CPU" if on_cpu else torch.cuda.get_device_name()
    sums: list[Sum] = []
    speeds: list[Speed] = []
    if "sums" in sections:
        for size in (size for size in sizes if size > 1):
            say(f"sums of {size} ranks")
            sums += measure_sums(size, args.device)
        show(
            render_table(
                f"{where}: rows of all ranks summed, added to a stream and normed", _sum_rows(sums, on_cpu)
            )
        )
    if "speed" in sections:
        with ExitStack() as stack:
            folder = stack.enter_context(given_or_made_up(model, say, shape, args.device))
            config = replace(config, model=replace(config.model, model=folder))
            for size in sizes:
                speeds += measure_speed(config, size, args, say)
        title = f"{where}: {model_words(model, shape)}, {args.prompt_tokens} + {args.new_tokens} tokens, decode"
        rows = _speed_rows(speeds, has_goals=model is None)
        show(render_table(f"{title}, medians of {args.repeats}", rows))
    if args.json is not None:
        page = {"environment": environment(), "where": where, "model": model_words(model, shape),
                "sums": [asdict(each) for each in sums], "speed": [asdict(each) for each in speeds]}  # fmt: skip
        args.json.write_text(json.dumps(page, indent=2) + "\n", "utf-8")
    return 0


def _usual_sizes(on_cpu: bool) -> list[int]:
    """Without a GPU there is one all the same, so that it is refused."""
    most = 2 if on_cpu else max(1, torch.cuda.device_count())
    return [size for size in (1, 2, 4) if size <= most]


def _sum_rows(sums: list[Sum], on_cpu: bool) -> list[Row]:
    rows = []
    for each in sorted(sums, key=lambda each: (each.size, each.num_rows)):
        is_goal = each.way == OURS and each.num_rows == NUMS_ROWS[0] and not on_cpu
        figure = "-" if each.failed else f"{each.us:.1f} us"
        num_bytes = each.num_rows * WIDTH * (4 if on_cpu else 2)
        note = each.failed or (f"goal: {SUM_GOAL_US:g} us" if is_goal else "")
        way = each.way
        if way == OURS:
            way = _OURS_ON_CPU if on_cpu else f"{OURS}, {_HOPS[choose_hops(num_bytes, each.size)]}"
        rows.append(Row(f"{each.size} ranks, {format_size(num_bytes)}, {way}", figure, note))
    return rows or [Row("one rank has nothing to sum", "")]


def _speed_rows(speeds: list[Speed], has_goals: bool) -> list[Row]:
    alone = {each.chats: each.tokens_per_second for each in speeds if each.size == 1}
    rows = []
    for each in sorted(speeds, key=lambda each: (each.chats, each.size)):
        notes = [f"a step {each.step_ms:.3f} ms"]
        if each.size > 1 and each.chats in alone:
            notes.append(f"{each.tokens_per_second / alone[each.chats]:.2f} times one rank")
        if has_goals and (each.chats, each.size) in GOALS:
            notes.append(f"goal: {GOALS[each.chats, each.size]:g}")
        rows.append(Row(each.name, f"{each.tokens_per_second:.1f} tok/s", "; ".join(notes)))
    return rows
