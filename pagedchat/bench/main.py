"""`pagedchat bench`: finds the benchmark by its name."""

import argparse

from pagedchat.runtime.threads import spin_briefly


def run_bench(args: argparse.Namespace) -> int:
    """Run the benchmark named in `args`; returns the exit code.

    Raises:
        PagedChatError: what the engine refuses (no such model, no GPU).
    """
    spin_briefly()
    from pagedchat.bench.engine import run_engine_bench  # noqa: PLC0415 - loads torch, which must come after that

    return run_engine_bench(args)
