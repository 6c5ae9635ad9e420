"""How much of the engine its tests hold: `python -m tools.mutants [--jobs N] [NAME ...]`, or `make mutants`.

mutmut changes one thing at a time in `pagedchat/engine/` (a `<` to a `<=`, a value to `None`, an argument left out)
and runs the tests that touch the function: those that notice have killed the mutant. What it may do, and by which
tests, is in `[tool.mutmut]` of pyproject.toml; what is known of each mutant is kept in `mutants/`, where
`mutmut show NAME` finds it, and a further run takes up where the last one ended. CONTRIBUTING.md says how to read
survivors. Run it from the top of a checkout; it needs no network.
"""

import argparse
import os
import resource
import sys
from pathlib import Path

from mutmut.__main__ import _run as run_mutmut
from mutmut.configuration import config

from tools.mutants import decorated, report

WANTED = 90.0
"""Per cent of the mutants that must be killed."""
MOST_MEMORY = 4 << 30
"""Bytes; a mutant that appends without end is stopped there."""


def main(args: list[str]) -> int:
    """Test mutants, and say how many of each file were killed.

    Returns:
        The exit status: 1 if too many survived.
    """
    parser = argparse.ArgumentParser(prog="python -m tools.mutants", description="Mutation testing of the engine.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="a file's stem, like block_pool, or a mutant's name"
    )
    parser.add_argument(
        "--tests", action="append", metavar="PATH", help="by these tests instead: tests/simulation, say"
    )
    parser.add_argument("--jobs", type=int, default=os.cpu_count(), help="tests run side by side")
    options = parser.parse_args(args)
    resource.setrlimit(resource.RLIMIT_DATA, (MOST_MEMORY, resource.getrlimit(resource.RLIMIT_DATA)[1]))
    decorated.allow()
    if options.tests:
        config().pytest_add_cli_args_test_selection = options.tests
    run_mutmut(tuple(name if "." in name else f"pagedchat.engine.{name}.*" for name in options.names), options.jobs)
    results = report.read(Path("mutants/pagedchat/engine"))
    print(report.table(results))
    return 0 if report.score(results) >= WANTED else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
