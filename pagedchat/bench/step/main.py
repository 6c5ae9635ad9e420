"""`pagedchat bench step`: where the time of a decode step goes, as tables and as JSON."""

import argparse
import json
from dataclasses import asdict

import torch

from pagedchat.bench.made_up import SHAPE, given_or_made_up
from pagedchat.bench.step.measure import StepBench, StepFigure
from pagedchat.bench.step.report import gpu_table, host_table
from pagedchat.bench.table import environment, say, show
from pagedchat.config import CacheConfig, EngineConfig, ModelConfig, SchedulerConfig
from pagedchat.errors import DeviceError

_MEMORY_SHARE = 0.5


def run_step_bench(args: argparse.Namespace) -> int:
    """Measure, print and write; returns the exit code.

    Raises:
        DeviceError: no GPU.
        PagedChatError: what the engine refuses.
    """
    if not torch.cuda.is_available():
        raise DeviceError(
            "A step cannot be profiled: torch finds no CUDA GPU here.", "Run this on a machine with one."
        )
    with given_or_made_up(args.model, say) as folder:
        figures = _measure(args, folder)
    tables = (gpu_table(figures), host_table(figures))
    texts = [table.as_markdown() if args.markdown else table.as_text() for table in tables]
    show("\n\n".join([_title(args), *texts]))
    if args.json is not None:
        values = {
            "environment": environment() | {"gpu": torch.cuda.get_device_name()},
            "figures": [asdict(figure) for figure in figures],
        }
        args.json.write_text(json.dumps(values, indent=2) + "\n", encoding="utf-8")
    return 0


def _measure(args: argparse.Namespace, folder: str) -> list[StepFigure]:
    bench = StepBench(
        EngineConfig(
            model=ModelConfig(model=folder, device="cuda", dtype=args.dtype, skip_tokenizer_init=True),
            cache=CacheConfig(gpu_memory_utilization=_MEMORY_SHARE),
            scheduler=SchedulerConfig(max_num_seqs=max(256, *args.batch)),
        )
    )
    figures = []
    for num_chats in args.batch:
        say(f"a step of {num_chats}")
        figures.append(bench.measure(num_chats, args.context, args.steps))
    return figures


def _title(args: argparse.Namespace) -> str:
    return (
        f"{torch.cuda.get_device_name()}; {args.model or SHAPE}, {args.dtype}, about {args.context} tokens a chat"
    )
