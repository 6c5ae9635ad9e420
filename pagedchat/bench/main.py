"""`pagedchat bench`: finds the benchmark by its name. Each is imported only when it is wanted."""

import argparse

from pagedchat.runtime.loading.cpu_process import tune_for_cpu


def run_bench(args: argparse.Namespace) -> int:  # noqa: PLR0911 - one for each
    """Run the benchmark named in `args`; returns the exit code.

    Raises:
        PagedChatError: what the engine refuses (no such model, no GPU).
    """
    if args.benchmark == "kernels":
        from pagedchat.bench.kernels.main import run_kernels_bench  # noqa: PLC0415 - loads torch

        return run_kernels_bench(args)
    if args.benchmark == "ui":
        from pagedchat.bench.ui.main import run_ui_bench  # noqa: PLC0415 - loads Textual

        return run_ui_bench(args)
    if args.benchmark == "step":
        from pagedchat.bench.step.main import run_step_bench  # noqa: PLC0415 - loads torch

        return run_step_bench(args)
    tune_for_cpu()
    if args.benchmark == "quality":
        from pagedchat.bench.quality.main import run_quality_bench  # noqa: PLC0415 - loads torch

        return run_quality_bench(args)
    if args.benchmark == "drafts":
        from pagedchat.bench.drafts.main import run_drafts_bench  # noqa: PLC0415 - loads torch

        return run_drafts_bench(args)
    if args.benchmark == "serve":
        from pagedchat.bench.serve.main import run_serve_bench  # noqa: PLC0415 - loads torch

        return run_serve_bench(args)
    if args.benchmark == "ranks":
        from pagedchat.bench.ranks.main import run_ranks_bench  # noqa: PLC0415 - loads torch

        return run_ranks_bench(args)
    if args.benchmark == "cpu":
        from pagedchat.bench.cpu.main import run_cpu_bench  # noqa: PLC0415 - loads torch, which must come after that

        return run_cpu_bench(args)
    from pagedchat.bench.engine.main import run_engine_bench  # noqa: PLC0415 - loads torch, which must come after that

    return run_engine_bench(args)
