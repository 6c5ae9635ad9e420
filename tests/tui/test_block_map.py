"""The pool map: which cell shows which block, what it says of it, and that only changed lines are drawn again."""

import random

import pytest
from textual.pilot import Pilot
from textual.strip import Strip

from pagedchat.engine.limits import EngineLimits
from pagedchat.events import EngineDied
from pagedchat.tui.engine_view import EngineView
from pagedchat.tui.widgets.block_cells import COLOR_MODES, CellKinds, ColorMode, glyph
from pagedchat.tui.widgets.block_grid import BlockGrid
from pagedchat.tui.widgets.block_layout import BlockLayout, fitting_level, gutter_width, zoom_levels
from pagedchat.tui.widgets.block_map import BlockMap
from pagedchat.tui.widgets.block_picture import BlockPicture
from pagedchat.tui.widgets.owner_palette import NUM_COLORS, owner_colors, owner_glyph, owner_number
from pagedchat.tui.widgets.table_rows import count_tables
from tests.scripted_reports import ScriptedEngine, pressed, random_workload, ready, story
from tests.tui.inspector_app import WidgetApp, drawn


class MapApp(WidgetApp):
    def __init__(self, view: EngineView) -> None:
        super().__init__(BlockMap(view))
        self.opened: list[int] = []

    def on_block_map_block_opened(self, message: BlockMap.BlockOpened) -> None:
        self.opened.append(message.block_id)

    @property
    def map(self) -> BlockMap:
        assert isinstance(self.widget, BlockMap)
        return self.widget


async def show(app: MapApp, pilot: Pilot[None]) -> list[str]:
    app.map.refresh_view()
    await pilot.pause()
    return drawn(app.map.grid)


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


def test_a_panel_without_room_still_has_a_level() -> None:
    levels = zoom_levels(40_000, 1, 0)
    assert levels[-1].num_lines == 1
    assert fitting_level(levels, 0) == len(levels) - 1


# --- what a cell says ---------------------------------------------------------------------------------


def kinds(engine: ScriptedEngine, mode: str, blocks: range) -> str:
    mirror = engine.view.mirror
    assert mirror is not None
    cell_kinds = CellKinds(mirror, mode, lambda seq_id: f"@{seq_id}")  # type: ignore[arg-type]
    return "".join(glyph(cell_kinds.block(block)) for block in blocks)


def test_kinds_by_owner_ref_count_and_state() -> None:
    engine = story()
    assert kinds(engine, "owner", range(20, 44)) == "▓▓▓▓3333333214444444░░░░"
    assert kinds(engine, "refs", range(20, 44)) == "2222" + "1" * 16 + "░░░░"
    assert kinds(engine, "state", range(20, 44)) == "▓▓▓▓██████▒▒▒██████▒░░░░"


def test_blocks_of_a_closed_chat_stay_as_cached() -> None:
    engine = story()
    engine.core.close(3)
    engine.flush()
    assert kinds(engine, "owner", range(24, 32)) == "······░2"


def test_a_cell_of_several_blocks_shows_the_most_frequent_use() -> None:
    mirror = story().view.mirror
    assert mirror is not None
    cells = CellKinds(mirror, "owner", lambda seq_id: f"@{seq_id}")
    assert cells.cell(range(20, 30)) == "@3"
    assert cells.cell(range(38, 60)) == "@4"
    assert cells.cell(range(100, 120)) == "free"


@pytest.mark.parametrize("mode", COLOR_MODES)
@pytest.mark.parametrize("prefix_caching", [True, False])
def test_a_map_kept_up_equals_one_drawn_anew(mode: ColorMode, prefix_caching: bool) -> None:
    engine = ScriptedEngine(
        num_blocks=24,
        block_size=4,
        num_host_blocks=24,
        max_num_batched_tokens=12,
        enable_prefix_caching=prefix_caching,
    )
    mirror = engine.view.mirror
    assert mirror is not None
    layouts = [BlockLayout("cell", 24, 1, 8), BlockLayout("half", 24, 3, 3)]

    def picture(layout: BlockLayout) -> BlockPicture:
        return BlockPicture(mirror, layout, mode, lambda seq_id: f"@{seq_id % 10}", engine.view.fresh_copies())

    pictures = [picture(layout) for layout in layouts]
    for _ in random_workload(engine, random.Random(7), 250):
        for kept in pictures:
            before = kept.kinds.copy()
            lines = kept.update(engine.view.fresh_copies())
            assert kept.kinds == picture(kept.layout).kinds
            cells = range(kept.layout.num_cells)
            assert lines == {kept.layout.line_of(cell) for cell in cells if kept.kinds[cell] != before[cell]}
        assert count_tables(mirror).agrees


def test_owners_are_numbered_as_their_labels_are() -> None:
    assert owner_number(7, "12 tale") == 12
    assert owner_number(7, "tale") == 7
    assert [owner_glyph(number) for number in (1, 9, 10, 35, 36)] == ["1", "9", "a", "z", "1"]


def test_owner_colours_differ_in_dark_and_light_themes() -> None:
    app = WidgetApp(BlockGrid(EngineView()))
    for theme in app.available_themes.values():
        colors = owner_colors(theme)
        assert len({color.hex for color in colors}) == NUM_COLORS


# --- the drawn map ------------------------------------------------------------------------------------


async def test_a_small_pool_shows_ids_ref_counts_and_copies() -> None:
    app = MapApp(pressed().view)
    async with app.run_test(size=(60, 12)) as pilot:
        lines = await show(app, pilot)
        assert lines[:3] == [
            "000 000² 001² 002² 003  004  005  006  007*",
            "008 008  009² 010  011",
            "",
        ]
        assert app.map.border_title == "Pool 12 × 4 · colour owner (c) · cell = 1 block (+ −)"


async def test_a_middle_pool_has_two_columns_a_block() -> None:
    app = MapApp(story().view)
    async with app.run_test(size=(60, 15)) as pilot:
        lines = await show(app, pilot)
        assert lines[:4] == [
            "000 " + "▓▓" * 24,
            "024 3 3 3 3 3 3 3 2 * 4 4 4 4 4 4 4 ✕ ✕ ✕ ░░░░░░░░░░",
            "048 " + "░░" * 24,
            "072 " + "░░" * 24,
        ]
        assert lines[10] == "240 " + "░░" * 16


async def test_a_large_pool_has_two_rows_of_blocks_a_line() -> None:
    app = MapApp(story(1000).view)
    async with app.run_test(size=(60, 12)) as pilot:
        lines = await show(app, pilot)
        assert lines[:2] == ["000 " + "▀" * 56, "112 " + "▀" * 56]
        style = next(segment.style for segment in app.map.grid.render_line(0) if "▀" in segment.text)
        assert style is not None
        assert style.color != style.bgcolor


async def test_only_changed_lines_are_drawn_again(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = ScriptedEngine(num_blocks=40_000, max_num_batched_tokens=64)
    engine.ask(1, 40)
    app = MapApp(engine.view)
    built: list[int] = []
    build_line = BlockGrid.build_line

    def counting(grid: BlockGrid, index: int) -> Strip:
        built.append(index)
        return build_line(grid, index)

    monkeypatch.setattr(BlockGrid, "build_line", counting)
    async with app.run_test(size=(230, 66)) as pilot:
        await show(app, pilot)
        assert len(set(built)) == app.map.grid.num_lines == 45
        built.clear()
        app.map.refresh_view()
        await pilot.pause()
        assert built == []
        engine.run()
        app.map.refresh_view()
        await pilot.pause()
        assert built == [0]


async def test_just_copied_fades_after_some_reports() -> None:
    engine = story()
    app = MapApp(engine.view)
    async with app.run_test(size=(60, 15)) as pilot:
        assert "*" in (await show(app, pilot))[1]
        engine.run(30)
        assert "*" not in (await show(app, pilot))[1]


async def test_colours_cycle_through_owner_refs_and_state() -> None:
    app = MapApp(story().view)
    async with app.run_test(size=(60, 15)) as pilot:
        await show(app, pilot)
        app.map.cycle_colors()
        await pilot.pause()
        assert drawn(app.map.grid)[0] == "000 " + "2 " * 23 + "2"
        assert "colour refs" in str(app.map.border_title)
        app.map.cycle_colors()
        app.map.cycle_colors()
        await pilot.pause()
        assert drawn(app.map.grid)[0] == "000 " + "▓▓" * 24


async def test_zoom_scrolls_when_cells_are_larger_than_the_panel_allows() -> None:
    app = MapApp(story().view)
    async with app.run_test(size=(60, 15)) as pilot:
        await show(app, pilot)
        app.map.grid.zoom_by(1)
        await pilot.pause()
        assert drawn(app.map.grid)[0].startswith("000 000² 001²")
        assert app.map.grid.virtual_size.height > app.map.grid.size.height
        app.map.grid.zoom_by(-1)
        app.map.grid.zoom_by(-2)
        await pilot.pause()
        assert drawn(app.map.grid)[0] == "000 " + "▀" * 56


async def test_the_cursor_moves_by_cells_and_rows_and_tells_about_its_block() -> None:
    app = MapApp(story().view)
    async with app.run_test(size=(76, 15)) as pilot:
        await show(app, pilot)
        app.map.grid.focus()
        detail = app.map.query("LineBar").first()
        assert drawn(detail)[0].startswith("000 in use · ref 2 · 1 tale[0] 2 tale⑂a[0] · 16/16 · #")
        await pilot.press("down", "right", "right", "left", "down", "up")
        assert app.map.grid.cursor == 33
        await pilot.pause()
        assert drawn(detail)[0].startswith("033 in use · ref 1 · 4 notes[0] · 16/16 · #")
        await pilot.press("end")
        assert app.map.grid.cursor == 255
        await pilot.press("right", "down")
        assert app.map.grid.cursor == 255
        await pilot.press("home", "left", "up")
        assert app.map.grid.cursor == 0


async def test_a_double_click_opens_a_block() -> None:
    app = MapApp(story().view)
    async with app.run_test(size=(60, 15)) as pilot:
        await show(app, pilot)
        await pilot.click(app.map.grid, offset=(4 + 2 * 2, 1))
        assert app.opened == []
        assert app.map.grid.cursor == 26
        await pilot.click(app.map.grid, offset=(4 + 2 * 2, 1), times=2)
        assert app.opened == [26]


async def test_the_mouse_tells_about_the_block_under_it() -> None:
    app = MapApp(story().view)
    async with app.run_test(size=(60, 15)) as pilot:
        await show(app, pilot)
        await pilot.hover(app.map.grid, offset=(4 + 2 * 8, 1))
        assert app.map.grid.inspected == 32
        await pilot.hover(app.map, offset=(1, 14))
        assert app.map.grid.inspected == 0


async def test_another_engine_brings_another_map() -> None:
    engine = story()
    app = MapApp(engine.view)
    async with app.run_test(size=(60, 15)) as pilot:
        await show(app, pilot)
        engine.view.apply(EngineDied(1, "", restarting=True))
        app.map.refresh_view()
        engine.view.apply(ready(EngineLimits(num_blocks=5)))
        lines = await show(app, pilot)
        assert lines[0] == "000 000✕ 001✕ 002✕ 003  004"


async def test_renamed_chats_get_their_new_numbers() -> None:
    engine = story()
    app = MapApp(engine.view)
    async with app.run_test(size=(60, 15)) as pilot:
        await show(app, pilot)
        engine.view.labels = {**engine.view.labels, 3: "5 code"}
        assert (await show(app, pilot))[1].startswith("024 5 5 5 5 5 5 5 2 *")


async def test_the_legend_names_owners_and_another_theme_keeps_the_text() -> None:
    app = MapApp(story().view)
    async with app.run_test(size=(60, 15)) as pilot:
        before = await show(app, pilot)
        legend = list(app.map.query("LineBar"))[1]
        assert drawn(legend)[0] == "▓ shared  * copied  · cached  ░ free  ✕ next  owner 1234"
        app.theme = "textual-light"
        await pilot.pause()
        assert await show(app, pilot) == before


@pytest.mark.parametrize("num_blocks", [1, 40_000])
@pytest.mark.parametrize("size", [(1, 1), (20, 5), (230, 66)])
async def test_any_pool_draws_in_any_panel(num_blocks: int, size: tuple[int, int]) -> None:
    engine = ScriptedEngine(num_blocks=num_blocks)
    engine.ask(1, 5)
    engine.run()
    app = MapApp(engine.view)
    async with app.run_test(size=size) as pilot:
        await show(app, pilot)
        for mode in range(3):
            app.map.cycle_colors()
            await pilot.pause()
            assert len(drawn(app.map.grid)) == app.map.grid.size.height, mode
