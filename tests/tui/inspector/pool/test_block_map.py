"""The pool map: which cell shows which block, what it says of it, and that only changed lines are drawn again."""

from collections.abc import Callable

import msgspec
import pytest
from textual.events import MouseScrollDown, MouseScrollUp
from textual.pilot import Pilot
from textual.strip import Strip

from pagedchat.cache_events import BlockPinned, BlocksWithheld
from pagedchat.engine.limits import EngineLimits
from pagedchat.events import EngineDied, RankInfo
from pagedchat.tui.inspector.pool.block_grid import BlockGrid
from pagedchat.tui.inspector.pool.block_map import BlockMap
from pagedchat.tui.messages import BlockChosen, BlockOpened
from pagedchat.view.blocks.kinds import COLOR_MODES, ColorMode
from pagedchat.view.blocks.pool_kinds import BlockKinds
from pagedchat.view.engine_view import EngineView
from tests.scripted_reports import ScriptedEngine, pressed, ready, story
from tests.tui.widget_app import WidgetApp, drawn

SnapCompare = Callable[..., bool]


class MapApp(WidgetApp):
    ascii = False

    def __init__(self, view: EngineView, *, lens: bool = False) -> None:
        super().__init__(BlockMap(view))
        self.map.grid.follows_use = lens
        self.opened: list[int] = []
        self.chosen: list[int] = []

    def on_block_opened(self, message: BlockOpened) -> None:
        self.opened.append(message.block_id)

    def on_block_chosen(self, message: BlockChosen) -> None:
        self.chosen.append(message.block_id)

    @property
    def map(self) -> BlockMap:
        assert isinstance(self.widget, BlockMap)
        return self.widget


async def show(app: MapApp, pilot: Pilot[None]) -> list[str]:
    app.map.refresh_view()
    await pilot.pause()
    return drawn(app.map.grid)


# --- the drawn map ------------------------------------------------------------------------------------


async def test_a_model_over_several_ranks_has_a_pool_on_each() -> None:
    engine = pressed()
    ranks = (RankInfo("GPU 0: NVIDIA H200", 3 << 30), RankInfo("GPU 1: NVIDIA H200", 3 << 30))
    engine.view.live.info = msgspec.structs.replace(engine.view.live.info, ranks=ranks)
    last = engine.view.live.mirror.last
    assert last is not None
    engine.view.live.mirror.last = msgspec.structs.replace(last, rank_seconds=(0.00312, 0.0029))
    app = MapApp(engine.view)
    async with app.run_test(size=(60, 12)) as pilot:
        await show(app, pilot)
        assert drawn(app.map._ranks)[0].rstrip() == "rank 0: 3 GiB, 3.1 ms · 1: 3 GiB, 2.9 ms"
        engine.view.live.info = msgspec.structs.replace(engine.view.live.info, ranks=())
        await show(app, pilot)
        assert app.map._ranks.size.height == 0


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
            "024 3 3 3 3 3 3 3 2 * 4 4 4 4 4 4 4 ▼ ▼ ▼ ░░░░░░░░░░",
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


async def test_a_huge_pool_costs_only_what_changed(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = ScriptedEngine(num_blocks=300_000, max_num_batched_tokens=64)
    engine.ask(1, 40)
    engine.run()
    app = MapApp(engine.view)
    looked: list[range] = []
    cell = BlockKinds.cell

    def counting(kinds: BlockKinds, blocks: range) -> tuple[str, int]:
        looked.append(blocks)
        return cell(kinds, blocks)

    monkeypatch.setattr(BlockKinds, "cell", counting)
    async with app.run_test(size=(120, 40)) as pilot:
        await show(app, pilot)
        assert app.map.grid.cell_layout is not None
        assert len(looked) == app.map.grid.cell_layout.num_cells
        looked.clear()
        await show(app, pilot)
        assert looked == []
        engine.run(20)
        await show(app, pilot)
        assert len(looked) <= 3


async def test_a_smaller_pool_after_a_hover_is_told_about() -> None:
    engine = story()
    app = MapApp(engine.view)
    async with app.run_test(size=(60, 15)) as pilot:
        await show(app, pilot)
        app.map.choose(200)
        await pilot.hover(app.map.grid, offset=(20, 9))
        assert app.map.grid.inspected > 100
        engine.view.apply(ready(EngineLimits(num_blocks=5)))
        await show(app, pilot)
        assert drawn(app.map._detail) == ["004 free"]


async def test_just_copied_fades_after_some_reports() -> None:
    engine = story()
    app = MapApp(engine.view)
    async with app.run_test(size=(60, 15)) as pilot:
        assert "*" in (await show(app, pilot))[1]
        engine.run(30)
        assert "*" not in (await show(app, pilot))[1]


async def test_colours_cycle_through_every_mode_and_back() -> None:
    app = MapApp(story().view)
    async with app.run_test(size=(60, 15)) as pilot:
        await show(app, pilot)
        app.map.cycle_colors()
        await pilot.pause()
        assert drawn(app.map.grid)[0] == "000 " + "2 " * 23 + "2"
        assert "colour ref count" in str(app.map.border_title)
        modes = []
        for _ in range(4):
            app.map.cycle_colors()
            modes.append(app.map.grid.mode)
        assert modes == ["age", "fill", "hash", "owner"]
        await pilot.pause()
        assert drawn(app.map.grid)[0] == "000 " + "▓▓" * 24
        app.map.grid.focus()
        await pilot.press("C")
        assert app.map.grid.mode == "hash"


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
        detail = app.map._detail
        assert drawn(detail)[0].startswith("000 in use · ref 2 · 1 tale[0] 2 tale»a[0] · 16/16 · #")
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
        assert app.chosen == [32, 33, 34, 33, 65, 33, 255, 0]


async def test_a_double_click_opens_a_block() -> None:
    app = MapApp(story().view)
    async with app.run_test(size=(60, 15)) as pilot:
        await show(app, pilot)
        await pilot.click(app.map.grid, offset=(4 + 2 * 2, 1))
        assert app.opened == []
        assert app.map.grid.cursor == 26
        await pilot.click(app.map.grid, offset=(4 + 2 * 2, 1), times=2)
        assert app.opened == [26]
        assert app.chosen == [26, 26, 26]


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
        assert lines[0] == "000 000▼ 001▼ 002▼ 003  004"


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
        legend = app.map._legend
        assert drawn(legend)[0] == "▓ ×24  1 ×1  2 ×1  3 ×7  4 ×7  ░ ×216  * copied  ▼ next out"
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
        for mode in COLOR_MODES:
            app.map.cycle_colors()
            await pilot.pause()
            assert len(drawn(app.map.grid)) == app.map.grid.size.height, mode


async def test_zooming_keeps_the_cursor_in_sight() -> None:
    app = MapApp(story(8000).view)
    async with app.run_test(size=(80, 20)) as pilot:
        await show(app, pilot)
        app.map.choose(7000)
        for _ in range(8):
            app.map.grid.zoom_by(1)
            await pilot.pause()
            layout, top = app.map.grid.cell_layout, app.map.grid.scroll_offset.y
            assert layout is not None
            line = layout.line_of(layout.cell_of(7000))
            assert top <= line < top + app.map.grid.size.height
        assert layout.style == "tile"
        assert any("7000" in line for line in drawn(app.map.grid))


async def test_pages_move_the_cursor_by_what_is_in_sight() -> None:
    app = MapApp(story(8000).view)
    async with app.run_test(size=(80, 20)) as pilot:
        await show(app, pilot)
        app.map.grid.zoom_by(9)
        app.map.grid.focus()
        layout = app.map.grid.cell_layout
        assert layout is not None
        page = layout.cells_per_row * app.map.grid.size.height
        await pilot.press("right", "pagedown")
        assert app.map.grid.cursor == 1 + page
        await pilot.press("pagedown", "pageup", "pageup", "pageup")
        assert app.map.grid.cursor == 1
        await pilot.press("end", "pagedown")
        assert app.map.grid.cursor == 7999


async def test_the_wheel_scrolls_and_with_ctrl_zooms() -> None:
    app = MapApp(story(8000).view)
    async with app.run_test(size=(80, 20)) as pilot:
        await show(app, pilot)
        grid = app.map.grid
        scroll = {"widget": grid, "offset": (20, 3), "button": 0}
        await pilot._post_mouse_events([MouseScrollUp], control=True, **scroll)
        await pilot.pause()
        assert grid.cell_layout is not None
        assert grid.cell_layout.blocks_per_cell == 2
        await pilot._post_mouse_events([MouseScrollDown], **scroll)
        await pilot.pause()
        assert grid.scroll_offset.y > 0
        await pilot._post_mouse_events([MouseScrollDown], control=True, **scroll)
        await pilot.pause()
        assert grid.cell_layout.blocks_per_cell == 3


async def test_a_cursor_moved_from_another_panel_is_seen() -> None:
    app = MapApp(story().view)
    async with app.run_test(size=(60, 15)) as pilot:
        app.set_focus(None)
        await show(app, pilot)
        assert app.map.grid.shown_cell is None
        app.map.grid.action_move(1, 0)
        assert app.map.grid.shown_cell == 1


async def test_what_is_selected_is_lit_and_goes_out() -> None:
    engine = story()
    app = MapApp(engine.view)
    async with app.run_test(size=(60, 15)) as pilot:
        app.set_focus(None)
        before = [app.map.grid.render_line(y) for y in range(3)] if await show(app, pilot) else []
        engine.view.highlighted = frozenset({2})
        await show(app, pilot)
        lit = app.map.grid.render_line(0)
        assert [segment.text for segment in lit if segment.style and segment.style.underline] == ["# "]
        engine.view.highlighted = frozenset()
        await show(app, pilot)
        assert [app.map.grid.render_line(y) for y in range(3)] == before


async def test_time_travel_brings_another_mirror_and_back() -> None:
    engine, past = story(), ScriptedEngine(num_blocks=256)
    app = MapApp(engine.view)
    async with app.run_test(size=(60, 15)) as pilot:
        live = await show(app, pilot)
        assert past.view.live is not None
        engine.view.show_past(past.view.live)
        assert (await show(app, pilot))[0] == "000 ▼ ▼ ▼ " + "░░" * 21
        engine.view.show_live()
        assert await show(app, pilot) == live


@pytest.mark.parametrize("num_blocks", [12, 256, 500, 8000])
async def test_ascii_means_nothing_else(num_blocks: int) -> None:
    engine = pressed() if num_blocks == 12 else story(num_blocks)
    app = MapApp(engine.view)
    app.ascii = True
    async with app.run_test(size=(60, 15)) as pilot:
        for _ in COLOR_MODES:
            lines = await show(app, pilot)
            lines += [line for bar in app.map.query("LineBar") for line in drawn(bar)]
            lines += [str(app.map.border_title), str(app.map.border_subtitle)]
            assert all(line.isascii() for line in lines), lines
            app.map.cycle_colors()


# --- how it looks -------------------------------------------------------------------------------------


def busy_story(num_blocks: int) -> ScriptedEngine:
    """The story with everything that can be marked."""
    engine = story(num_blocks)
    engine.core.close(4)
    engine.flush()
    events = [BlockPinned(33), BlockPinned(0), BlocksWithheld(list(range(num_blocks - 20, num_blocks)))]
    engine.tell(msgspec.structs.replace(engine.reports[-1], batch=[], events=events))
    engine.view.highlighted = frozenset(range(8, 12))
    return engine


@pytest.mark.parametrize("mode", COLOR_MODES)
def test_every_mode_looks(snap_compare: SnapCompare, mode: ColorMode) -> None:
    app = MapApp(busy_story(256).view)

    async def run_before(pilot: Pilot[None]) -> None:
        app.map.grid.mode = mode
        await show(app, pilot)

    assert snap_compare(app, terminal_size=(90, 14), run_before=run_before)


def test_half_blocks_look(snap_compare: SnapCompare) -> None:
    app = MapApp(busy_story(1000).view)

    async def run_before(pilot: Pilot[None]) -> None:
        await show(app, pilot)

    assert snap_compare(app, terminal_size=(90, 14), run_before=run_before)


def test_ascii_looks(snap_compare: SnapCompare) -> None:
    app = MapApp(busy_story(256).view)
    app.ascii = True

    async def run_before(pilot: Pilot[None]) -> None:
        await show(app, pilot)

    assert snap_compare(app, terminal_size=(90, 14), run_before=run_before)


def test_a_huge_pool_looks(snap_compare: SnapCompare) -> None:
    app = MapApp(busy_story(300_000).view)

    async def run_before(pilot: Pilot[None]) -> None:
        await show(app, pilot)

    assert snap_compare(app, terminal_size=(90, 24), run_before=run_before)
