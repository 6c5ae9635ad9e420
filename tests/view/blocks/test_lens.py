"""The lens of the pool map: every block in use is seen, as large as there is room for."""

import random

import pytest

from pagedchat.view.blocks.lens import Lens, lens_on, whole
from pagedchat.view.blocks.map_layout import zoom_levels

POOL = 14_563


@pytest.mark.parametrize("seed", range(5))
def test_each_of_ten_blocks_anywhere_in_a_large_pool_has_a_cell_of_its_own(seed: int) -> None:
    blocks = random.Random(seed).sample(range(POOL), 10)
    levels = zoom_levels(POOL, 58, 14)
    level, lens = lens_on(levels, blocks, 14)
    layout = levels[level]
    assert layout.style == "tile"
    assert layout.blocks_per_cell == 1
    assert len(lens) == 14
    assert lens.hides_some
    assert all(lens.row_of(layout.line_of(layout.cell_of(block_id))) is not None for block_id in blocks)


def test_what_is_beside_the_blocks_fills_the_panel() -> None:
    levels = zoom_levels(POOL, 58, 6)
    level, lens = lens_on(levels, range(10), 6)
    assert (levels[level].style, list(lens.lines)) == ("tile", [0, 1, 2, 3, 4, 5])
    assert not lens.skips_before(0)


def test_cells_shrink_only_as_far_as_they_must() -> None:
    levels = zoom_levels(POOL, 58, 6)
    styles = [
        levels[lens_on(levels, range(count), 6).level].style for count in (1, 42, 43, 144, 145, 288, 289, 576)
    ]
    assert styles == ["tile", "tile", "pair", "pair", "cell", "cell", "half", "half"]
    level, lens = lens_on(levels, range(0, POOL, 3), 6)
    assert levels[level].blocks_per_cell > 1
    assert not lens.hides_some


def test_a_small_pool_is_shown_whole_and_an_empty_one_from_its_beginning() -> None:
    levels = zoom_levels(12, 58, 6)
    assert not lens_on(levels, [3], 6).lens.hides_some
    assert list(lens_on(zoom_levels(POOL, 58, 3), [], 3).lens.lines) == [0, 1, 2]


def test_rows_and_lines_lead_to_each_other() -> None:
    lens = Lens([0, 1, 7, 9], 20)
    assert [lens.row_of(line) for line in (0, 1, 2, 7, 9)] == [0, 1, None, 2, 3]
    assert lens.rows_of([9, 3, 1]) == [3, 1]
    assert [lens.skips_before(row) for row in range(4)] == [False, False, True, True]
    assert (lens.beyond(1, 1), lens.beyond(7, -1), lens.beyond(9, 1)) == (7, 1, None)
    everything = whole(zoom_levels(POOL, 58, 6)[-1])
    assert (everything.hides_some, everything.row_of(3)) == (False, 3)
