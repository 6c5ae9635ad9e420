"""Runs worlds of the simulator (tests/simulation), one a seed, on as many processes as asked for.

    python -m tools.simulate --steps 1_000_000 --jobs 8
    python -m tools.simulate --seed 77 --trace failed.trace     (and then: pagedchat replay failed.trace)

A step is a command or an engine step carried out, a piece of bytes that arrives, a doing of the user's, or a fault.
"""

import argparse
import multiprocessing
import sys
import time
import traceback
from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from typing import NamedTuple

from tests.simulation.world import World

STEPS_OF_A_SEED = 20_000


class Outcome(NamedTuple):
    """What came of one seed."""

    seed: int
    num_steps: int
    seen: Counter[str]
    failure: str
    """Where it failed and what was found; empty where nothing was."""


def run_seed(seed: int, num_steps: int = STEPS_OF_A_SEED, trace: Path | None = None) -> Outcome:
    """One world.

    Args:
        seed: which one.
        num_steps: when it comes to its end.
        trace: where the recording that was under way is kept.
    """
    world = World(seed)
    failure = ""
    try:
        world.run(num_steps)
    except Exception as error:
        place = traceback.extract_tb(error.__traceback__)[-1]
        failure = f"{Path(place.filename).name}:{place.lineno} {type(error).__name__}: {error}"
    if trace is not None and world.last_trace is not None:
        trace.write_bytes(world.last_trace)
    return Outcome(seed, world.num_steps, world.seen, failure)


def main(argv: list[str] | None = None) -> int:
    """Exit code 1 if some seed failed."""
    args = _parse(argv)
    if args.seed is not None:
        outcome = run_seed(args.seed, args.steps_of_a_seed, args.trace)
        print(outcome.failure or "nothing was found", f"after {outcome.num_steps} steps")
        return bool(outcome.failure)
    failed, total, seen, started = [], 0, Counter[str](), time.monotonic()
    for outcome in _outcomes(args.first_seed, args.jobs, args.steps_of_a_seed):
        total += outcome.num_steps
        seen += outcome.seen
        if outcome.failure:
            failed.append(outcome.seed)
            print(f"\rseed {outcome.seed}: {outcome.failure}")
        seconds = time.monotonic() - started
        print(f"\r{total:,} steps, {seconds:.0f} s, {len(failed)} seeds failed", end="", flush=True)
        if total >= args.steps or (args.seconds and seconds >= args.seconds):
            break
    print()
    for name, number in sorted(seen.items()):
        print(f"{number:>14,}  {name}")
    for seed in failed:
        print(f"again: python -m tools.simulate --seed {seed} --steps-of-a-seed {args.steps_of_a_seed}")
    return bool(failed)


def _parse(argv: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tools.simulate", description=__doc__.partition("\n")[0])
    parser.add_argument("--steps", type=int, default=100_000, help="how far, all seeds together")
    parser.add_argument("--seconds", type=float, default=0.0, help="and for how long at most")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--first-seed", type=int, default=0)
    parser.add_argument("--steps-of-a-seed", type=int, default=STEPS_OF_A_SEED)
    parser.add_argument("--seed", type=int, help="this one alone")
    parser.add_argument("--trace", type=Path, help="with --seed: where its last recording is kept")
    return parser.parse_args(argv)


def _outcomes(first_seed: int, jobs: int, num_steps: int) -> Iterator[Outcome]:
    """For ever, in the order in which they come."""
    if jobs == 1:
        yield from (run_seed(seed, num_steps) for seed in count(first_seed))
    with multiprocessing.Pool(jobs) as pool:
        asked = count(first_seed)
        running = [pool.apply_async(run_seed, (next(asked), num_steps)) for _ in range(2 * jobs)]
        while True:
            for index, result in enumerate(running):
                if result.ready():
                    yield result.get()
                    running[index] = pool.apply_async(run_seed, (next(asked), num_steps))
            time.sleep(0.05)


if __name__ == "__main__":
    sys.exit(main())
