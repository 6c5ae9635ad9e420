from itertools import chain

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedchat.runtime.attention.prefix_groups import PrefixGroup, SharingRule, find_shared, plan_sharing

BLOCK_SIZE = 4
ALWAYS = SharingRule(min_prefix=1, min_saved=1)


def lens(tables: list[list[int]]) -> list[int]:
    """Sequences whose last block holds the query alone."""
    return [(len(table) - 1) * BLOCK_SIZE + 1 for table in tables]


def plan(tables: list[list[int]], rule: SharingRule = ALWAYS) -> tuple[list[int], list[PrefixGroup]] | None:
    return plan_sharing(tables, lens(tables), BLOCK_SIZE, rule)


def test_members_come_side_by_side_and_loners_last() -> None:
    tables = [[1, 2, 10], [7, 8, 11], [1, 2, 12, 13], [9, 14], [7, 8, 15]]
    assert plan(tables) == ([0, 2, 1, 4, 3], [PrefixGroup(2, 2), PrefixGroup(2, 2), PrefixGroup(1, 0)])


def test_nobody_shares() -> None:
    assert plan([[1, 2], [3, 4], [5]]) is None
    assert plan([]) is None


def test_the_block_of_the_query_is_never_shared() -> None:
    tables = [[1, 2, 3], [1, 2, 3]]
    assert plan_sharing(tables, [12, 12], BLOCK_SIZE, ALWAYS) == ([0, 1], [PrefixGroup(2, 2)])
    assert plan_sharing(tables, [12, 4], BLOCK_SIZE, ALWAYS) is None


def test_long_prefix_of_few_beats_short_prefix_of_many() -> None:
    forks = [[1, *range(20, 60), 100 + i] for i in range(2)]
    others = [[1, 200 + i] for i in range(5)]
    order, groups = plan(forks + others) or ([], [])
    assert groups == [PrefixGroup(2, 41), PrefixGroup(2, 0), PrefixGroup(2, 0), PrefixGroup(1, 0)]
    assert sorted(order[:2]) == [0, 1]


def test_short_prefix_of_many_beats_long_prefix_of_few() -> None:
    forks = [[1, 2, 20, 100 + i] for i in range(2)]
    others = [[1, 2, 200 + i] for i in range(5)]
    assert plan(forks + others) == (list(range(7)), [PrefixGroup(7, 2)])


@pytest.mark.parametrize(("rule", "pays"), [((8, 16), True), ((9, 16), False), ((8, 17), False)])
def test_rule_in_tokens(rule: tuple[int, int], pays: bool) -> None:
    tables = [[1, 2, 3], [1, 2, 4], [1, 2, 5]]  # two blocks that two sequences need not read
    assert (plan(tables, SharingRule(*rule)) is not None) == pays


def test_chain_of_forks_is_no_deep_recursion() -> None:
    """Each sequence leaves the chain one block after the one before it."""
    tables = [[*range(i), 10_000 + i, 20_000 + i] for i in range(1, 1500)]
    assert plan(tables) is not None


@st.composite
def trees(draw: st.DrawFn) -> tuple[list[list[int]], list[int]]:
    """Block tables that often begin alike; a block id always comes after the same blocks, as in the engine."""
    tables: list[list[int]] = []
    fresh = iter(range(10_000))
    for _ in range(draw(st.integers(1, 9))):
        parent = draw(st.sampled_from([[], *tables]))
        kept = parent[: draw(st.integers(0, len(parent)))]
        tables.append([*kept, *(next(fresh) for _ in range(draw(st.integers(1, 4))))])
    seq_lens = [draw(st.integers((len(t) - 1) * BLOCK_SIZE + 1, len(t) * BLOCK_SIZE)) for t in tables]
    return tables, seq_lens


@given(trees())
def test_groups_share_what_they_say_and_cover_every_row_once(case: tuple[list[list[int]], list[int]]) -> None:
    tables, seq_lens = case
    found = plan_sharing(tables, seq_lens, BLOCK_SIZE, ALWAYS)
    if found is None:
        return
    order, groups = found
    assert sorted(order) == list(range(len(tables)))
    assert sum(group.num_rows for group in groups) == len(tables)
    rows = iter(order)
    for group in groups:
        members = [next(rows) for _ in range(group.num_rows)]
        assert len({tuple(tables[i][: group.num_blocks]) for i in members}) == 1
        assert all(group.num_blocks * BLOCK_SIZE < seq_lens[i] for i in members)
        assert group.num_rows > 1 or group.num_blocks == 0
        assert group.num_rows <= max(g.num_rows for g in groups if g.num_blocks > 0)


@given(trees())
def test_no_choice_of_groups_saves_more(case: tuple[list[list[int]], list[int]]) -> None:
    tables, seq_lens = case
    limits = [(length - 1) // BLOCK_SIZE for length in seq_lens]
    found = find_shared(tables, limits)
    assert len(set(chain.from_iterable(group.members for group in found))) == sum(len(g.members) for g in found)
    assert sum(group.saved for group in found) == most_saved(tables, limits, ())


def most_saved(tables: list[list[int]], limits: list[int], node: tuple[int, ...]) -> int:
    """The best of the tree below a node, tried exhaustively: all below it as one group, or each child by itself."""
    depth = len(node)
    below = [tuple(t[:limit]) for t, limit in zip(tables, limits, strict=True)]
    below = [t for t in below if t[:depth] == node and len(t) >= depth]
    deeper = {t[: depth + 1] for t in below if len(t) > depth}
    together = max(0, len(below) - 1) * depth
    return max(together, sum(most_saved(tables, limits, child) for child in deeper))
