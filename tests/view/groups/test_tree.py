"""Block tables as one tree: every table can be read from it again."""

from hypothesis import given
from hypothesis import strategies as st

from pagedchat.view.groups.tree import group_tree


@st.composite
def forked_tables(draw: st.DrawFn) -> dict[int, list[int]]:
    """Tables as forks have them: the same blocks up to where they part, then never again the same."""
    tables = {1: list(range(draw(st.integers(0, 5))))}
    fresh = 100
    for seq_id in range(2, draw(st.integers(2, 9))):
        source = tables[draw(st.sampled_from(sorted(tables)))]
        kept = draw(st.integers(0, len(source)))
        count = draw(st.integers(0, 4))
        tables[seq_id] = [*source[:kept], *range(fresh, fresh + count)]
        fresh += count
    return tables


@given(forked_tables())
def test_every_table_is_the_way_to_its_leaf(tables: dict[int, list[int]]) -> None:
    nodes = group_tree(tables)
    for seq_id, table in tables.items():
        path = [node for node in nodes if seq_id in node.members]
        assert [block_id for node in path for block_id in node.blocks] == table
        assert [node.depth for node in path] == list(range(len(path)))
        assert len(path[-1].members) == 1, "each has an end of its own"


@given(forked_tables())
def test_a_block_is_drawn_once(tables: dict[int, list[int]]) -> None:
    drawn = [block_id for node in group_tree(tables) for block_id in node.blocks]
    assert len(drawn) == len(set(drawn)) == len({block_id for table in tables.values() for block_id in table})


def test_rails_lead_past_what_comes_between() -> None:
    nodes = group_tree({1: [0, 1, 2], 2: [0, 1, 3], 3: [0, 4]})
    assert [(node.depth, node.blocks, node.members, node.is_last, node.rails) for node in nodes] == [
        (0, (0,), (1, 2, 3), True, ()),
        (1, (1,), (1, 2), False, ()),
        (2, (2,), (1,), False, (True,)),
        (2, (3,), (2,), True, (True,)),
        (1, (4,), (3,), True, ()),
    ]


def test_nobody_has_no_tree() -> None:
    assert group_tree({}) == []
