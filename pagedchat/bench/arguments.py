"""The command line of `pagedchat bench`: which benchmarks there are. Each keeps its own options.

Imports nothing heavy.
"""

import argparse
from collections.abc import Callable

from pagedchat.bench.cpu.arguments import CPU_HELP, add_cpu_options
from pagedchat.bench.drafts.arguments import DRAFTS_HELP, add_drafts_options
from pagedchat.bench.engine.arguments import ENGINE_HELP, add_engine_options
from pagedchat.bench.kernels.arguments import KERNELS_HELP, add_kernels_options
from pagedchat.bench.quality.arguments import QUALITY_HELP, add_quality_options
from pagedchat.bench.ranks.arguments import RANKS_HELP, add_ranks_options
from pagedchat.bench.serve.arguments import SERVE_HELP, add_serve_options
from pagedchat.bench.step.arguments import STEP_HELP, add_step_options
from pagedchat.bench.ui.arguments import UI_HELP, add_ui_options

_BENCHMARKS: dict[str, tuple[str, Callable[[argparse.ArgumentParser], None]]] = {
    "engine": (ENGINE_HELP, add_engine_options),
    "step": (STEP_HELP, add_step_options),
    "cpu": (CPU_HELP, add_cpu_options),
    "kernels": (KERNELS_HELP, add_kernels_options),
    "drafts": (DRAFTS_HELP, add_drafts_options),
    "quality": (QUALITY_HELP, add_quality_options),
    "serve": (SERVE_HELP, add_serve_options),
    "ranks": (RANKS_HELP, add_ranks_options),
    "ui": (UI_HELP, add_ui_options),
}


def add_bench_options(parser: argparse.ArgumentParser) -> None:
    """A parser for each benchmark; `benchmark` of what is parsed is its name."""
    kinds = parser.add_subparsers(title="benchmarks", dest="benchmark", metavar="NAME", required=True)
    for name, (text, add_options) in _BENCHMARKS.items():
        add_options(kinds.add_parser(name, help=text, allow_abbrev=False))
