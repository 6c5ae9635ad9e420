"""Where each block of the pool is on the map, at every zoom level; and the owners' numbers and colours."""

import pytest

from pagedchat.tui.inspector.pool.block_grid import BlockGrid
from pagedchat.tui.kit.owner_colors import NUM_COLORS, index_of_256, owner_colors
from pagedchat.view.blocks.block_layout import BlockLayout, fitting_level, gutter_width, zoom_levels
from pagedchat.view.engine_view import EngineView
from pagedchat.view.owners import owner_glyph, owner_number
from tests.tui.widget_app import WidgetApp

# --- which block is where -----------------------------------------------------------------------------


@pytest.mark.parametrize(("num_blocks", "width"), [(1, 4), (1000, 4), (1001, 5), (40_000, 6)])
def test_the_gutter_holds_the_largest_id(num_blocks: int, width: int) -> None:
    assert gutter_width(num_blocks) == width


@pytest.mark.parametrize(
    ("num_blocks", "style", "blocks_per_cell", "num_lines"),
    [
        (1, "tile", 1, 1),
        (64, "tile", 1, 8),
        (256, "pair", 1, 11),
        (500, "cell", 1, 9),
        (1000, "half", 1, 9),
        (4000, "half", 3, 13),
        (40_000, "half", 32, 12),
    ],
)
def test_the_largest_cells_that_fit_are_taken(
    num_blocks: int, style: str, blocks_per_cell: int, num_lines: int
) -> None:
    levels = zoom_levels(num_blocks, 60, 13)
    level = levels[fitting_level(levels, 13)]
    assert (level.style, level.blocks_per_cell, level.num_lines) == (style, blocks_per_cell, num_lines)


def test_every_block_has_one_cell_at_every_level() -> None:
    for layout in zoom_levels(1234, 50, 4):
        seen = [block for cell in range(layout.num_cells) for block in layout.blocks_of(cell)]
        assert seen == list(range(1234))
        assert all(block in layout.blocks_of(layout.cell_of(block)) for block in range(1234))
        assert layout.line_of(layout.num_cells - 1) == layout.num_lines - 1


def test_points_of_the_map_lead_to_blocks() -> None:
    pairs = BlockLayout("pair", 20, 1, 8)
    assert [pairs.block_at(x, 1) for x in (0, 1, 2, 15, 16)] == [8, 8, 9, 15, None]
    assert pairs.block_at(8, 2) is None
    assert BlockLayout("half", 100, 4, 10).block_at(3, 1) == 92


def test_without_half_blocks_several_blocks_share_a_whole_character() -> None:
    levels = zoom_levels(4000, 60, 13, half_blocks=False)
    assert [level.style for level in levels[:4]] == ["tile", "pair", "cell", "cell"]
    assert [level.blocks_per_cell for level in levels[2:]] == [1, 2, 3, 4, 6]
    assert levels[-1].num_lines <= 13


def test_tiles_have_room_for_long_ids() -> None:
    tiles = zoom_levels(300_000, 62, 13)[0]
    assert (tiles.style, tiles.cell_width, tiles.cells_per_row) == ("tile", 8, 6)


def test_a_panel_without_room_still_has_a_level() -> None:
    levels = zoom_levels(40_000, 1, 0)
    assert levels[-1].num_lines == 1
    assert fitting_level(levels, 0) == len(levels) - 1


# --- owners -------------------------------------------------------------------------------------------


def test_owners_are_numbered_as_their_labels_are() -> None:
    assert owner_number(7, "12 tale") == 12
    assert owner_number(7, "tale") == 7
    assert [owner_glyph(number) for number in (1, 9, 10, 35, 36)] == ["1", "9", "a", "z", "1"]


def test_owner_colours_differ_in_every_theme_and_on_256_colours() -> None:
    app = WidgetApp(BlockGrid(EngineView()))
    for theme in app.available_themes.values():
        colors = owner_colors(theme)
        assert len({color.hex for color in colors}) == NUM_COLORS
        assert len({index_of_256(color) for color in colors}) == NUM_COLORS, theme.name
