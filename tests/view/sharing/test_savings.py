"""What chats share, counted: the matrix, what is saved, the tree of prefixes, and what a fork would have saved."""

import random
from itertools import combinations

import pytest

from pagedchat.engine.mirror import CacheMirror
from pagedchat.view.sharing.savings import Twins, find_twins, saving, shared_blocks
from tests.scripted_reports import ScriptedEngine, pressed, random_workload, story


def mirror_of(engine: ScriptedEngine) -> CacheMirror:
    assert engine.view.mirror is not None
    return engine.view.mirror


def small(**limits: object) -> ScriptedEngine:
    settings: dict[str, object] = {"num_blocks": 40, "block_size": 4, "max_num_batched_tokens": 64, **limits}
    return ScriptedEngine(**settings)


# --- sums -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(4))
def test_references_are_entries_and_the_engine_counts_the_same(seed: int) -> None:
    engine = ScriptedEngine(
        num_blocks=16, block_size=4, num_host_blocks=16, max_num_batched_tokens=12, preemption_mode="swap"
    )
    for _ in random_workload(engine, random.Random(seed), 120):
        if not engine.reports:
            continue
        found, pool = saving(mirror_of(engine)), engine.reports[-1].pool
        assert found.refs == found.entries == pool.table_entries
        assert found.agrees
        assert found.used == pool.in_use
        assert (found.hits, found.queries) == (
            engine.reports[-1].counters.prefix_hits,
            engine.reports[-1].counters.prefix_queries,
        )


@pytest.mark.parametrize("seed", range(4))
def test_the_matrix_is_what_the_tables_say(seed: int) -> None:
    engine = ScriptedEngine(num_blocks=24, block_size=4, max_num_batched_tokens=12)
    for _ in random_workload(engine, random.Random(seed), 120):
        mirror = mirror_of(engine)
        tables = {seq_id: set(sequence.block_table) for seq_id, sequence in mirror.sequences.items()}
        counts = shared_blocks(mirror, list(tables))
        for a, b in combinations(tables, 2):
            assert counts.get((a, b), 0) == counts.get((b, a), 0) == len(tables[a] & tables[b])
        for a, table in tables.items():
            others = set[int]().union(*(other for b, other in tables.items() if b != a))
            assert counts.get((a, a), 0) == len(table - others)


def test_chats_that_are_not_shown_are_not_counted() -> None:
    assert shared_blocks(mirror_of(story()), [1, 3]) == {(1, 1): 1, (3, 3): 7}


# --- what a fork would have saved -------------------------------------------------------------------


def test_equal_prompts_in_different_blocks_are_told() -> None:
    engine = small(enable_prefix_caching=False)
    prompt = list(range(30))
    engine.ask(1, prompt, max_tokens=1)
    engine.ask(2, prompt[:22] + [90] * 8, max_tokens=1)
    engine.ask(3, [80] * 30, max_tokens=1)
    engine.run(3)
    assert find_twins(mirror_of(engine)) == Twins((1, 2), 5)
    tables = mirror_of(engine).sequences
    assert not set(tables[1].block_table) & set(tables[2].block_table)


def test_three_copies_of_one_prompt_are_two_too_many() -> None:
    engine = small(enable_prefix_caching=False)
    for seq_id in (1, 2, 3):
        engine.ask(seq_id, list(range(9)), max_tokens=1)
    engine.run(2)
    assert find_twins(mirror_of(engine)) == Twins((1, 2, 3), 4)


def test_shared_prompts_and_forks_leave_nothing_to_advise() -> None:
    engine = small()
    engine.ask(1, list(range(30)), max_tokens=9)
    engine.run(12)
    engine.ask(2, list(range(30)), max_tokens=9)
    engine.run(12)
    engine.core.fork(1, 3)
    engine.ask(1, [50, 51, 52, 53, 54, 55], max_tokens=2)
    engine.ask(3, [50, 51, 52, 53, 54, 55], max_tokens=2)
    engine.run(4)
    assert find_twins(mirror_of(engine)) is None
    assert find_twins(mirror_of(story())) is None
    assert find_twins(CacheMirror(4, 4)) is None


# --- the tree ---------------------------------------------------------------------------------------


def test_sums_hold_under_pressure() -> None:
    for mode in ("swap", "recompute"):
        engine = pressed(mode)
        assert saving(mirror_of(engine)).agrees
