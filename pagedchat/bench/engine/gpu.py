"""`pagedchat bench engine --device cuda`: the workloads that the peers were measured on, as tables and as JSON."""

import argparse
import json
import os
from importlib.util import find_spec

import torch

from pagedchat.bench.engine.arguments import SECTIONS
from pagedchat.bench.engine.beams import beam_table
from pagedchat.bench.engine.measuring import Measuring
from pagedchat.bench.engine.report import client_table, same_table, shape_table, speed_table, start_table
from pagedchat.bench.engine.results import Results
from pagedchat.bench.engine.stored import StoredPeers, stored_peers
from pagedchat.bench.engine.stutter import stutter_table
from pagedchat.bench.kernels.report import Table
from pagedchat.bench.made_up import SHAPE, given_or_made_up
from pagedchat.bench.table import say, show
from pagedchat.config import DType
from pagedchat.errors import DeviceError, InvalidValueError

_ASK_NVML = "PYTORCH_NVML_BASED_CUDA_CHECK"
"""Read by torch."""


def run_gpu_bench(args: argparse.Namespace) -> int:
    """Measure, print and write; returns 1 where replies that have to be the same were not.

    Raises:
        DeviceError: no GPU.
        InvalidValueError: a peer that is not installed.
        PagedChatError: what the engine refuses.
    """
    _check(args)
    dtype: DType = "float16" if args.dtype == "auto" else args.dtype
    with given_or_made_up(args.model, say) as folder:
        measuring = Measuring(
            folder, dtype, args.repeats, args.against, args.shapes, made_up=args.model is None, say=say
        )
        results = measuring.run(SECTIONS if args.only is None else args.only)
    show(_page(f"{args.model or SHAPE}, {dtype}", results, markdown=args.markdown))
    if args.json is not None:
        args.json.write_text(json.dumps(results.as_json(), indent=2) + "\n", encoding="utf-8")
    return int(not results.all_same)


def _check(args: argparse.Namespace) -> None:
    """What can be known before minutes have gone by."""
    if "transformers" in args.against and find_spec("transformers") is None:
        raise InvalidValueError("--against: transformers is not installed.", "Install it, or leave it out.")
    if not finds_gpu():
        raise DeviceError(
            "The engine cannot be measured on a GPU: torch finds none here.",
            "Run this on a machine with one, or with --device cpu.",
        )


def finds_gpu() -> bool:
    """Asked of the driver's management library: a start is not measured on a GPU that this process has woken."""
    previous = os.environ.get(_ASK_NVML)
    os.environ[_ASK_NVML] = "1"
    try:
        return torch.cuda.is_available()
    finally:
        os.environ.pop(_ASK_NVML) if previous is None else os.environ.update({_ASK_NVML: previous})


def _page(model: str, results: Results, *, markdown: bool) -> str:
    stored = stored_peers().on(results.gpu)
    copy = "" if results.copy_gb_s is None else f", copy {results.copy_gb_s:.0f} GB/s"
    parts = [f"{results.gpu}{copy}; {model}, greedy, medians of {results.repeats}"]
    parts += [table.as_markdown() if markdown else table.as_text() for table in _tables(results, stored)]
    parts += [f"{what} failed: {why}" for what, why in results.failed.items()]
    if stored.figures and (results.speed or results.start or results.shapes):
        parts.append(f"Stored peers were not measured in this run but on {stored.source}.")
    return "\n\n".join(parts)


def _tables(results: Results, stored: StoredPeers) -> list[Table]:
    tables = []
    if results.speed:
        tables.append(speed_table(results.speed, stored))
    if results.client:
        tables.append(client_table(results.client))
    if results.start:
        tables.append(start_table(results.start, stored))
    if results.stutter:
        tables.append(stutter_table(results.stutter))
    tables += [shape_table(figures, stored) for figures in results.shapes]
    if results.beams:
        tables.append(beam_table(results.beams))
    if results.same:
        tables.append(same_table(results.same))
    return tables
