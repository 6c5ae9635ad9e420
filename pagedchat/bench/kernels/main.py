"""`pagedchat bench kernels`: runs the sections asked for, prints their tables, writes the figures as JSON."""

import argparse
import json
from collections.abc import Callable, Collection
from dataclasses import asdict

import torch

from pagedchat.bench.kernels.bandwidth import Limits, measure_limits
from pagedchat.bench.kernels.block_moves import measure_copies, measure_swaps
from pagedchat.bench.kernels.choices import COMPILE, choose_peers, choose_sections
from pagedchat.bench.kernels.cold_compile import CompileResult, measure_compile
from pagedchat.bench.kernels.decode import measure_byte_decode, measure_decode
from pagedchat.bench.kernels.figures import OURS, Bench, Figure
from pagedchat.bench.kernels.merge import measure_merge
from pagedchat.bench.kernels.prefill import measure_prefill
from pagedchat.bench.kernels.products.experts import measure_experts
from pagedchat.bench.kernels.products.invariant import measure_invariant
from pagedchat.bench.kernels.products.quantized import measure_quantized
from pagedchat.bench.kernels.report import make_tables
from pagedchat.bench.kernels.shared_prefix import measure_shared_prefix
from pagedchat.bench.kernels.stored import stored_peers
from pagedchat.bench.kernels.token_moves import measure_gather, measure_writes
from pagedchat.bench.table import environment, say, show
from pagedchat.errors import DeviceError
from pagedchat.jit.architecture import architecture_of

_MEASURED: dict[str, Callable[[Bench], list[Figure]]] = {
    "decode": measure_decode,
    "bytes": measure_byte_decode,
    "prefill": measure_prefill,
    "merge": measure_merge,
    "prefix": measure_shared_prefix,
    "write": measure_writes,
    "gather": measure_gather,
    "copy": measure_copies,
    "swap": measure_swaps,
    "experts": measure_experts,
    "invariant": measure_invariant,
    "quantized": measure_quantized,
}


def run_kernels_bench(args: argparse.Namespace) -> int:
    """Measure, print and write; returns 1 if one of our own kernels failed.

    Raises:
        DeviceError: no GPU.
        InvalidValueError: a section that does not exist, or a peer that is not installed.
    """
    wanted, peers = choose_sections(args.only), choose_peers(args.peers)
    if not torch.cuda.is_available():
        raise DeviceError(
            "The kernels cannot be measured: torch finds no CUDA GPU here.", "Run this on a machine with one."
        )
    with torch.inference_mode():
        compiled = _compile(wanted)
        limits, figures = _measure(wanted, peers)
    show(_page(limits, figures, compiled, markdown=args.markdown))
    if args.json is not None:
        args.json.write_text(json.dumps(_as_json(limits, figures, compiled), indent=2) + "\n", encoding="utf-8")
    return int(any(figure.failed is not None for figure in figures if figure.name == OURS))


def _compile(wanted: Collection[str]) -> list[CompileResult]:
    if COMPILE not in wanted:
        return []
    say("compiling what one model needs, without a cache and with it")
    return measure_compile(architecture_of(*torch.cuda.get_device_capability()))


def _measure(wanted: Collection[str], peers: frozenset[str]) -> tuple[Limits | None, list[Figure]]:
    chosen = [name for name in _MEASURED if name in wanted]
    if not chosen:
        return None, []
    say("bandwidth of the memory")
    bench = Bench(limits=measure_limits(link="swap" in wanted), peers=peers, say=say)
    figures = []
    for name in chosen:
        figures += _MEASURED[name](bench)
        torch.cuda.empty_cache()
    return bench.limits, figures


def _page(limits: Limits | None, figures: list[Figure], compiled: list[CompileResult], *, markdown: bool) -> str:
    stored = stored_peers().on(torch.cuda.get_device_name())
    parts = [] if limits is None else [_title(limits)]
    parts += [table.as_markdown() if markdown else table.as_text() for table in make_tables(figures, stored)]
    if compiled:
        parts.append("\n".join(str(result) for result in compiled))
    if any(stored.at(figure.section, figure.shape) for figure in figures):
        parts.append(f"* stored, not measured in this run: {stored.source}.")
    return "\n\n".join(parts)


def _title(limits: Limits) -> str:
    device = torch.cuda.get_device_properties(0)
    words = [f"{device.name}, {device.multi_processor_count} multiprocessors, copy {limits.copy:.0f} GB/s"]
    if limits.to_host is not None and limits.from_host is not None:
        words.append(f"link {limits.to_host:.1f} GB/s to the host, {limits.from_host:.1f} GB/s from it")
    return f"{', '.join(words)}; fp16 (experts bf16), medians; x: how many times our time a peer takes"


def _as_json(limits: Limits | None, figures: list[Figure], compiled: list[CompileResult]) -> dict[str, object]:
    device = torch.cuda.get_device_properties(0)
    stored = stored_peers()
    return {
        "environment": environment()
        | {"gpu": device.name, "multiprocessors": device.multi_processor_count, "l2_bytes": device.L2_cache_size},
        "limits_gb_s": None if limits is None else asdict(limits),
        "figures": [asdict(figure) for figure in figures],
        "compile": [asdict(result) for result in compiled],
        "stored_peers": asdict(stored),
    }
