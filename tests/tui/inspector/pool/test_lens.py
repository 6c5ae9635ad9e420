"""The map by itself shows what is in use, as large as it can be, over a line of the whole pool."""

from collections.abc import Callable

from textual.pilot import Pilot

from pagedchat.tui.inspector.panels import Panels
from tests.scripted_reports import story
from tests.tui.inspector.pool.test_block_map import MapApp, show
from tests.tui.widget_app import WidgetApp, drawn

SnapCompare = Callable[..., bool]
POOL = 14_563
"""Blocks that a GPU has room for by itself."""


def large_pool() -> MapApp:
    return MapApp(story(POOL).view, lens=True)


async def test_every_block_in_use_of_a_large_pool_is_a_tile_of_its_own() -> None:
    app = large_pool()
    async with app.run_test(size=(58, 16)) as pilot:
        lines = await show(app, pilot)
        mirror = app.map.view.mirror
        assert mirror is not None
        in_use = set[int]().union(*(sequence.block_table for sequence in mirror.sequences.values()))
        assert len(in_use) > 30
        assert all(f"{block_id:05d}" in " ".join(lines) for block_id in in_use)
        [strip] = drawn(app.map._strip)
        assert strip.startswith("all   ▓░░░")
        assert len(strip) == 58


async def test_a_block_far_away_is_shown_as_soon_as_it_is_looked_at() -> None:
    app = large_pool()
    async with app.run_test(size=(58, 16)) as pilot:
        await show(app, pilot)
        app.map.choose(9000)
        lines = await show(app, pilot)
        assert any("09000" in line for line in lines)
        assert lines[0].startswith("00000 00000²")
        [after_a_gap] = [line for line in lines if line[5] == "»"]
        assert int(after_a_gap[:5]) > 100
        app.map.grid.action_move(0, -1)
        assert app.map.grid.lens.row_of(app.map.grid.cell_layout.line_of(app.map.grid.cursor)) is not None


async def test_the_cursor_begins_where_something_is_shown() -> None:
    engine = story(POOL)
    engine.core.fork(4, 9)
    for seq_id in (1, 2, 3):
        engine.core.close(seq_id)
    engine.flush()
    app = MapApp(engine.view, lens=True)
    async with app.run_test(size=(58, 4)) as pilot:
        app.screen.set_focus(None)
        await show(app, pilot)
        grid = app.map.grid
        grid.toggle_lens()
        grid.toggle_lens()
        assert grid.lens.row_of(0) is None
        grid.focus()
        await pilot.pause()
        assert grid.lens.row_of(grid.cell_layout.line_of(grid.cell_layout.cell_of(grid.cursor))) == 0


async def test_moves_jump_over_what_is_left_out() -> None:
    app = large_pool()
    async with app.run_test(size=(58, 16)) as pilot:
        await show(app, pilot)
        app.map.choose(9000)
        await show(app, pilot)
        grid = app.map.grid
        seen = []
        for _ in range(40):
            grid.action_move(0, -1)
            seen.append(grid.cursor)
        assert seen[-1] < grid.cell_layout.cells_per_line
        assert len(set(seen)) < 20
        assert not {500, 1000, 5000} & set(seen)


async def test_the_lens_follows_what_comes_into_use_and_grows_when_it_is_gone() -> None:
    engine = story(2000)
    app = MapApp(engine.view, lens=True)
    async with app.run_test(size=(58, 12)) as pilot:
        await show(app, pilot)
        assert app.map.grid.cell_layout.style == "tile"
        engine.ask(9, 1900)
        engine.run(40)
        await show(app, pilot)
        grid, mirror = app.map.grid, app.map.view.mirror
        assert mirror is not None
        assert grid.cell_layout.style in ("pair", "cell")
        for block_id in mirror.sequences[9].block_table:
            assert grid.lens.row_of(grid.cell_layout.line_of(grid.cell_layout.cell_of(block_id))) is not None
        engine.core.close(9)
        engine.flush()
        await show(app, pilot)
        assert grid.cell_layout.style == "tile"


async def test_one_key_shows_the_whole_pool_and_the_lens_again() -> None:
    view = story(POOL).view
    app = WidgetApp(Panels(view))
    async with app.run_test(size=(120, 40)) as pilot:
        panels = app.widget
        assert isinstance(panels, Panels)
        panels.refresh_view()
        await pilot.pause()
        grid = panels.block_map.grid
        grid.focus()
        assert grid.lens.hides_some
        await pilot.press("z")
        assert not grid.lens.hides_some
        assert drawn(panels.block_map._strip) == []
        assert "z what is in use" in str(panels.block_map.border_subtitle)
        await pilot.press("z")
        assert grid.lens.hides_some
        await pilot.press("plus")
        assert not grid.lens.hides_some


def test_a_large_pool_through_the_lens_looks(snap_compare: SnapCompare) -> None:
    app = large_pool()

    async def run_before(pilot: Pilot[None]) -> None:
        await show(app, pilot)
        app.map.choose(9000)
        await show(app, pilot)

    assert snap_compare(app, terminal_size=(90, 18), run_before=run_before)
