"""What is painted bit by bit is in the end what is there."""

import asyncio
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from textual.app import App, ComposeResult
from textual.containers import Horizontal, Vertical
from textual.geometry import Region
from textual.screen import Screen
from textual.strip import Strip
from textual.widgets import Static

from pagedchat.chat.prompt_history import PromptHistory
from pagedchat.tui.app import PagedChatApp
from pagedchat.tui.kit.sparse_painting import (
    PaintedRows,
    SparseCompositor,
    SparseScreen,
    around,
    one_frame,
    repaint,
    row_runs,
)
from pagedchat.view.options import UiOptions
from tests.fakes_tui import FakeEngineLink

SIZE = (40, 12)


class Terminal:
    """The cells that a terminal has after each update; as many columns as characters."""

    def __init__(self) -> None:
        width, height = SIZE
        self.lines = [[" "] * width for _ in range(height)]

    def take(self, update: PaintedRows | None) -> None:
        painted = set()
        for left, y, strip in update.pieces if update else ():
            for x, char in enumerate(strip.text, left):
                assert (x, y) not in painted
                painted.add((x, y))
                self.lines[y][x] = char


def whole(app: App[None]) -> list[str]:
    return [strip.text for strip in app.screen._compositor.render_strips()]


class Corners(SparseScreen):
    """Texts in boxes in boxes."""

    CSS = "Static { border: round white; width: 1fr; height: 1fr; }"

    def compose(self) -> ComposeResult:
        for _ in range(2):
            with Horizontal():
                yield Static("a")
                with Vertical():
                    yield Static("b")


class CornersApp(App[None]):
    def get_default_screen(self) -> Screen[None]:
        return Corners()


async def test_after_any_changes_the_terminal_shows_the_whole_screen(monkeypatch) -> None:
    terminal, chance = Terminal(), random.Random(1)
    paint = SparseCompositor.render_partial_update

    def watched(self: SparseCompositor) -> PaintedRows | None:
        update = paint(self)
        terminal.take(update)
        return update

    app = CornersApp()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause(1 / 60)
        terminal.lines = [list(strip.text) for strip in app.screen._compositor.render_strips()]
        monkeypatch.setattr(SparseCompositor, "render_partial_update", watched)
        for number in range(40):
            for box in chance.sample(list(app.screen.query(Static)), chance.randint(1, 4)):
                if chance.random() < 0.5:
                    box.border_title = f"t{number}"
                box.update(str(number) * chance.randint(1, 9))
            await pilot.pause(1 / 60)
            shown = ["".join(line) for line in terminal.lines]
            assert shown == [strip.text for strip in app.screen._compositor.render_strips()]


async def test_what_lies_wholly_behind_a_change_is_not_asked(monkeypatch) -> None:
    app = CornersApp()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause(1 / 60)
        asked: list[Region] = []
        behind, box = app.screen.query_one(Horizontal), app.screen.query(Static).first()
        draw = behind.render_lines
        monkeypatch.setattr(behind, "render_lines", lambda crop: asked.append(crop) or draw(crop))
        box.update("changed")
        await pilot.pause(1 / 60)
        assert asked == []
        behind.refresh()
        await pilot.pause(1 / 60)
        assert asked


def test_only_rows_that_a_change_lies_in_are_asked_for_neighbours_in_one_piece() -> None:
    assert row_runs([Region(0, 5, 40, 2)]) == [(5, 7)]
    apart = [Region(29, 12, 5, 3), Region(12, 6, 1, 1)]
    assert row_runs(apart) == [(6, 7), (12, 15)]
    assert row_runs([*apart, Region(0, 6, 20, 6)]) == [(6, 15)]
    assert row_runs([Region(0, 0, 40, 9), Region(0, 6, 40, 1)]) == [(0, 9)]


AREAS = st.builds(Region, st.integers(0, 6), st.integers(0, 6), st.integers(1, 6), st.integers(1, 6))


@given(AREAS, AREAS)
def test_what_is_left_around_a_hole_is_all_of_the_rest_and_once(area: Region, hole: Region) -> None:
    def cells(region: Region) -> set[tuple[int, int]]:
        return {(x, y) for x in range(region.x, region.right) for y in range(region.y, region.bottom)}

    parts = around(area, hole)
    assert sum(part.area for part in parts) == len(cells(area) - cells(hole))
    assert set().union(*map(cells, parts)) == cells(area) - cells(hole)


async def test_a_change_that_lies_half_behind_something_is_painted_around_it() -> None:
    class Covered(SparseScreen):
        def compose(self) -> ComposeResult:
            yield Static("behind " * 20, id="behind")
            yield Static("OVER" * 6, id="over")

    class CoveredApp(App[None]):
        CSS = """
        Covered { layers: below top; }
        #behind { layer: below; width: 20; height: 8; }
        #over { layer: top; offset: 5 2; width: 6; height: 3; }
        """

        def get_default_screen(self) -> Screen[None]:
            return Covered()

    app, terminal = CoveredApp(), Terminal()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause(1 / 60)
        compositor, behind = app.screen._compositor, app.screen.query_one("#behind")
        assert isinstance(compositor, SparseCompositor)
        compositor._dirty_regions.update((behind.region, Region(3, 1, 4, 9)))
        terminal.take(compositor.render_partial_update())
        shown = ["".join(line)[:20] for line in terminal.lines[:8]]
        assert shown == [line[:20] for line in whole(app)[:8]]
        assert any("OVEROV" in line for line in shown)


class Counted(Static):
    """Tells how often it was painted."""

    num_painted = 0

    def render_lines(self, crop: Region) -> list[Strip]:
        self.num_painted += 1
        return super().render_lines(crop)


class CountedApp(App[None]):
    def get_default_screen(self) -> Screen[None]:
        class Two(SparseScreen):
            def compose(self) -> ComposeResult:
                yield Counted("a")
                yield Counted("b")

        return Two()


async def test_what_is_drawn_in_one_frame_is_painted_once_and_no_message_is_sent_for_it(monkeypatch) -> None:
    app = CountedApp()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause(1 / 60)
        screen, painted = app.screen, list[int]()
        paint = SparseCompositor.render_partial_update

        def watched(self: SparseCompositor) -> PaintedRows | None:
            update = paint(self)
            painted.append(len(update.pieces) if update else 0)
            return update

        monkeypatch.setattr(SparseCompositor, "render_partial_update", watched)
        with monkeypatch.context() as silent:
            silent.setattr(screen, "post_message", lambda message: pytest.fail(f"a message: {message}"))
            with one_frame(screen):
                for box in screen.query(Counted):
                    repaint(box)
                assert painted == []
            assert painted == [2]


async def test_outside_of_a_frame_it_is_painted_at_the_next_tick() -> None:
    app = CountedApp()
    async with app.run_test(size=SIZE):
        await asyncio.sleep(3 / 60)
        box = app.screen.query(Counted).first()
        before = box.num_painted
        for _ in range(5):
            repaint(box)
        assert box.num_painted == before
        await asyncio.sleep(4 / 60)
        assert box.num_painted == before + 1


async def test_a_frame_that_the_terminal_is_too_slow_for_is_painted_when_it_is_ready(monkeypatch) -> None:
    app = CountedApp()
    async with app.run_test(size=SIZE):
        await asyncio.sleep(3 / 60)
        box = app.screen.query(Counted).first()
        before = box.num_painted
        monkeypatch.setattr(app._driver, "is_behind", True, raising=False)
        with one_frame(app.screen):
            repaint(box)
        await asyncio.sleep(2 / 60)
        assert box.num_painted == before
        monkeypatch.setattr(app._driver, "is_behind", False)
        await asyncio.sleep(4 / 60)
        assert box.num_painted == before + 1


async def test_where_somebody_types_is_painted_without_waiting_for_the_clock(monkeypatch) -> None:
    painted: list[frozenset[Region]] = []
    paint = SparseCompositor.render_partial_update

    def watched(self: SparseCompositor) -> PaintedRows | None:
        painted.append(frozenset(self._dirty_regions))
        return paint(self)

    app = PagedChatApp(FakeEngineLink(), UiOptions(), PromptHistory())
    async with app.run_test(size=(100, 30)) as pilot:
        await pilot.pause(0.1)
        app.screen._update_timer.stop()
        monkeypatch.setattr(SparseCompositor, "render_partial_update", watched)
        await pilot.press("x")  # and no `pause`: that would paint
        assert app.focused is not None
        assert any(area.overlaps(app.focused.region) for areas in painted for area in areas)


async def test_a_terminal_that_is_behind_gets_no_frame_and_then_one_with_everything(monkeypatch) -> None:
    app, painted, terminal = CornersApp(), list[PaintedRows | None](), Terminal()
    paint = SparseCompositor.render_partial_update

    def watched(self: SparseCompositor) -> PaintedRows | None:
        painted.append(paint(self))
        return painted[-1]

    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause(1 / 60)
        terminal.lines = [list(line) for line in whole(app)]
        monkeypatch.setattr(app._driver, "is_behind", True, raising=False)
        monkeypatch.setattr(SparseCompositor, "render_partial_update", watched)
        for number in range(3):
            for box in app.screen.query(Static):
                box.update(f"n{number}")
            await asyncio.sleep(2 / 60)
        assert painted == []
        monkeypatch.setattr(app._driver, "is_behind", False)
        await asyncio.sleep(3 / 60)
        [update] = filter(None, painted)
        terminal.take(update)
        assert ["".join(line) for line in terminal.lines] == whole(app)
        assert any("n2" in line for line in whole(app))


async def test_what_was_typed_meanwhile_comes_before_all_else(monkeypatch) -> None:
    app, painted = CornersApp(), list[frozenset[Region]]()
    paint = SparseCompositor.render_partial_update

    def watched(self: SparseCompositor) -> PaintedRows | None:
        painted.append(frozenset(self._dirty_regions))
        return paint(self)

    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause(1 / 60)
        monkeypatch.setattr(app._driver, "is_behind", True, raising=False)
        monkeypatch.setattr(SparseCompositor, "render_partial_update", watched)
        first, second = (box for box in app.screen.query(Static) if box.region.right <= SIZE[0])
        assert isinstance(app.screen, SparseScreen)
        for box in (first, second):
            box.refresh()
        app.screen.hurry(second)
        await asyncio.sleep(2 / 60)
        monkeypatch.setattr(app._driver, "is_behind", False)
        await asyncio.sleep(4 / 60)
        assert [areas for areas in painted if areas] == [{second.region}, {first.region}]
