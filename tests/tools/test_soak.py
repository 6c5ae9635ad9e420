"""The command for large loads and long runs, on small ones: all ends, nothing is held, no table keeps growing."""

import asyncio
from collections import deque
from dataclasses import dataclass, field
from functools import cache

import pytest

from pagedchat.errors import IntegrityError
from tools.soak import __main__ as soak
from tools.soak import engine_run, prompts, queued
from tools.soak.memory import MIB, Course, no_blocks_left, too_steep
from tools.soak.tables import grown, table_sizes
from tools.soak.tiny import tiny_checkpoint


@pytest.fixture(scope="module")
def tiny():
    with tiny_checkpoint() as folder:
        yield folder


# --- the loads ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", queued.MODES)
def test_everybody_in_a_long_queue_has_a_turn(tiny, mode):
    outcome = queued.run_queue(tiny, 30, 4, mode)
    assert len(outcome.waits) == 30
    assert outcome.preemptions > 0, "the pool is small enough"
    assert max(steps for steps, _ in outcome.waits) < outcome.steps
    assert "nothing is held" in outcome.lines()[0]


def test_many_prompts_on_few_blocks_are_answered_as_alone_and_leave_nothing(tiny):
    outcome = prompts.run_prompts(tiny, 250, 16)
    assert outcome.grown == {}, "250 of anything would be told"
    assert outcome.found > 0.1
    assert outcome.tables["_Request"] == outcome.tables["Reply"] == 0
    assert outcome.tables["Sequence"] < 16, "those of the last batches"
    assert 0 < outcome.tables["CachedBlock"] <= 16


@pytest.mark.parametrize("mode", queued.MODES)
def test_a_long_run_of_one_engine_leaves_nothing(tiny, mode):
    outcome = engine_run.run_engine(tiny, "cpu", 500, max_seconds=600, num_blocks=40, num_chats=4, mode=mode)
    stats = outcome.stats
    assert stats.steps >= 500
    assert min(stats.preemptions, stats.copies, stats.evictions, outcome.done["forked"], outcome.done["closed"]) > 0
    assert outcome.grown == {}
    assert stats.blocks_in_use == 0


def test_both_processes_run_and_leave_nothing(tiny, capsys):
    assert soak.main(["run", "--model", tiny, "--steps", "90", "--most", "inf"]) == 0
    told = capsys.readouterr().out
    assert "prompts" in told
    assert "screens" in told
    assert "WRONG" not in told


# --- what they measure with ---------------------------------------------------------------------------


def test_what_is_held_when_all_is_over_is_told():
    with pytest.raises(IntegrityError, match="3 blocks and 0 host blocks are in use by 1 sequences"):
        no_blocks_left(3, 0, 1)


def test_only_growth_in_the_second_half_counts():
    flat, steep = Course("flat"), Course("steep")
    for step in range(0, 1_001, 100):
        flat.add(step, min(step, 500) * MIB)
        steep.add(step, step * MIB)
    assert flat.at(0.1) == 100 * MIB
    assert abs(flat.slope()) < 1
    assert steep.slope() == pytest.approx(100_000 * MIB)
    assert too_steep([flat, steep], 4) == ["steep grew by 100000.00 MiB in 100,000 steps; 4 are allowed."]


@dataclass(slots=True)
class Leaf:
    table: deque = field(default_factory=lambda: deque([1, 2]))


class Root:
    def __init__(self):
        self.leaves = {1: Leaf(), 2: Leaf()}
        self.queue = asyncio.Queue()
        self.queue.put_nowait(1)
        self.squares = cache(lambda number: number * number)
        self.call = self.add_to_hidden([1, 2, 3])

    def add_to_hidden(self, hidden):
        return lambda: hidden


def test_tables_are_found_wherever_they_hang(monkeypatch):
    monkeypatch.setattr(Leaf, "__module__", "pagedchat.somewhere")
    monkeypatch.setattr(Root, "__module__", "pagedchat.somewhere")
    root = Root()
    root.squares(3)
    sizes = table_sizes([root])
    assert sizes["Leaf"] == 2
    assert sizes["Root.leaves"] == 2
    assert sizes["Leaf.table"] == 4
    assert sizes["Root.queue"] == 1
    assert sizes["Root.squares()"] == 1
    assert sizes["<lambda>.hidden"] == 3
    root.leaves[3] = Leaf()
    assert grown(sizes, table_sizes([root])) == {"Leaf": (2, 3), "Leaf.table": (4, 6), "Root.leaves": (2, 3)}
