"""`pagedchat bench engine`: two sets of figures, one for each kind of device."""

import argparse

from pagedchat.bench.engine.arguments import REPEATS


def run_engine_bench(args: argparse.Namespace) -> int:
    """Run the benchmark named in `args`; returns the exit code.

    Raises:
        PagedChatError: what the engine refuses (no such model, no GPU).
    """
    if args.repeats is None:
        args.repeats = REPEATS[args.device]
    if args.device == "cpu" and args.only is not None:
        from pagedchat.bench.engine.cpu_sections import run_cpu_sections  # noqa: PLC0415 - only what is wanted

        return run_cpu_sections(args)
    if args.device == "cpu":
        from pagedchat.bench.engine.cpu import run_cpu_bench  # noqa: PLC0415 - imports transformers

        return run_cpu_bench(args)
    from pagedchat.bench.engine.gpu import run_gpu_bench  # noqa: PLC0415 - as the other one: only what is wanted

    return run_gpu_bench(args)
