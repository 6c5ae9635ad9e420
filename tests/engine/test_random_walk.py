"""Long, crowded random workloads: scarcity of every kind, every read checked, the mirror equal after every step.

`PAGEDCHAT_WALK_STEPS=100000 python -m pytest -s tests/engine/test_random_walk.py -k many_steps` walks that far and
says how long it took; without the variable that test walks a few thousand steps.
"""

import os
import time
from collections import Counter

import pytest

from tests.engine.walk import STATS, Faults, Walk

WALKS = 150
"""Half as many meet a limit that is refused four times, a third as many a fault while writing five times."""
OPERATIONS = 250
FIRST_FAR_SEED = 1000


@pytest.fixture(scope="module")
def totals() -> Counter[str]:
    return sum((Walk(seed).run(OPERATIONS) for seed in range(WALKS)), Counter())


def test_walks_meet_every_kind_of_scarcity_and_verb(totals: Counter[str]) -> None:
    wanted = [*STATS, "fork running", "fork swapped", "fork parked", "fork waiting", "rewind running"]
    wanted += ["rewind swapped", "close running", "close swapped", "close waiting", "refused", "stalls"]
    wanted += ["limit", "limit refused", "pin", "pin refused", "unpin", "unpin refused", "evict", "evict refused"]
    wanted += ["flush", "runs", "ended by errors", "contents lost", "drafted", "accepted", "rejected"]
    wanted += ["search over", "search ended", "search refused", "pruned", "answer forked"]
    wanted += [f"fault {place}" for place in Faults.PLACES]
    wanted += [f"fault {place} of one" for place in ("begun", "moved", "writing", "written")]
    assert {name: totals[name] for name in wanted if totals[name] < 10} == {}


def test_walks_are_long_enough_to_mean_something(totals: Counter[str]) -> None:
    assert totals["steps"] > WALKS * OPERATIONS / 4


@pytest.mark.slow
def test_many_steps_without_a_difference(capsys: pytest.CaptureFixture[str]) -> None:
    wanted = int(os.environ.get("PAGEDCHAT_WALK_STEPS", "3000"))
    totals: Counter[str] = Counter()
    seed, started = FIRST_FAR_SEED, time.perf_counter()
    while totals["steps"] < wanted:
        totals += Walk(seed).run(500)
        seed += 1
    seconds = time.perf_counter() - started
    with capsys.disabled():
        print(f"\n{totals['steps']} steps in {seed - FIRST_FAR_SEED} walks, {seconds:.0f} s, 0 differences")
    assert totals["steps"] >= wanted
