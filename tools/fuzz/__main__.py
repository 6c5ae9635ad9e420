"""`python -m tools.fuzz [TARGET ...] --seconds N | --examples N`: hostile input for as long as is wanted.

It runs the strategies and the checks of tests/fuzz, one round of examples after the other, each with a seed of its
own. The first failure of a target is printed with its example, made as small as can be, and with the command that
finds it again; then the next target has its turn. Nothing but `terminal`, which is a plain seeded generator, needs
hypothesis; `terminal` alone goes over several processes.
"""

import argparse
import sys
import time
import traceback
from typing import TYPE_CHECKING

from tools.fuzz.terminal.long_run import run_terminal

if TYPE_CHECKING:
    from tools.fuzz.target import Target

ROUND = 500
"""Examples of a round: hypothesis keeps what it has tried of a round in memory."""
MODULES = (
    "wire",
    "traces",
    "command_line",
    "slash_commands",
    "templates",
    "checkpoints",
    "gguf_files",
    "gguf_parts",
    "hub_models",
    "checks",
    "chat_files",
    "cpu_kernels",
    "forms",
    "histories",
    "parameters",
    "programs",
    "screening",
    "servers",
    "serving",
)
TERMINAL = "terminal"


def main() -> int:
    """Run what the command line asks for; returns the exit code, 1 after a failure."""
    args = _parser().parse_args()
    failed = False
    for name in args.targets or (*MODULES, TERMINAL):
        if name == TERMINAL:
            failed |= run_terminal(args.seed, args.examples, args.seconds, args.jobs, args.only)
            continue
        for target in _targets(name):
            failed |= _run(name, target, args.seed, args.examples, args.seconds)
    return int(failed)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m tools.fuzz", description="Hostile input, for a long time.")
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join((*MODULES, TERMINAL))} (all)")
    parser.add_argument("--seconds", type=float, default=60.0, metavar="N", help="how long each target runs (60)")
    parser.add_argument("--examples", type=int, metavar="N", help="how many examples each target gets, instead")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the first round (0)")
    parser.add_argument("--jobs", type=int, default=1, metavar="N", help="processes, for terminal (1)")
    parser.add_argument("--only", type=int, metavar="N", help="draw this one output of the seed, for terminal")
    return parser


def _targets(name: str) -> "list[Target]":
    """Imported only where they are wanted: they load hypothesis, and checkpoints torch."""
    from importlib import import_module  # noqa: PLC0415

    if name not in MODULES:
        sys.exit(f"There is no target {name}; there are {', '.join((*MODULES, TERMINAL))}.")
    module = import_module(f"tools.fuzz.{name}")
    return [*module.TARGETS, *getattr(module, "SLOW_TARGETS", ())]


def _run(name: str, target: "Target", seed: int, examples: int | None, seconds: float) -> bool:
    """Rounds of one target; whether it failed."""
    started, passed, done = time.monotonic(), 0.0, 0
    while passed < seconds if examples is None else done < examples:
        size = ROUND if examples is None else min(ROUND, examples - done)
        try:
            target.hold(size, seed)
        except KeyboardInterrupt:
            raise
        except BaseException:  # Rust's panics are no exceptions
            traceback.print_exc()
            print(f"{target.name}: failed. Again: python -m tools.fuzz {name} --seed {seed} --examples {size}")
            return True
        passed, done, seed = time.monotonic() - started, done + size, seed + 1
        print(f"{target.name}: {done} examples, {passed:.0f} s", flush=True)
    return False


if __name__ == "__main__":
    sys.exit(main())
