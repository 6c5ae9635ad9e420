import pytest

from pagedchat.engine.output import BlockOp
from pagedchat.runtime.step.block_moves import independent_groups


def copy(src: int, dst: int) -> BlockOp:
    return BlockOp("copy", src, dst)


def out(src: int, dst: int) -> BlockOp:
    return BlockOp("swap_out", src, dst)


def back(src: int, dst: int) -> BlockOp:
    return BlockOp("swap_in", src, dst)


@pytest.mark.parametrize(
    ("ops", "sizes"),
    [
        ([], []),
        ([copy(0, 1), copy(0, 2), copy(3, 4)], [3]),
        ([copy(0, 1), copy(1, 2)], [1, 1]),  # reads what was just written
        ([copy(0, 1), copy(2, 1)], [1, 1]),  # writes it again
        ([copy(0, 1), copy(2, 0)], [2]),  # overwrites what was read: reads come first anyway
        ([copy(0, 1), out(1, 0), out(2, 1), back(0, 5), copy(5, 6)], [1, 2, 1, 1]),
        ([out(0, 1), out(1, 0)], [2]),  # device 1 and host 1 are not the same block
        ([back(0, 1), back(2, 1)], [1, 1]),
    ],
)
def test_runs_end_where_order_matters(ops: list[BlockOp], sizes: list[int]) -> None:
    groups = list(independent_groups(ops))
    assert [len(group) for group in groups] == sizes
    assert [op for group in groups for op in group] == ops
