"""What is painted bit by bit is in the end what is there."""

import asyncio
import random
import time
from typing import Any

import pytest
from textual import events
from textual._compositor import ChopsUpdate, Compositor, ReflowResult
from textual.app import App, ComposeResult
from textual.containers import Horizontal, Vertical
from textual.geometry import Region, Size
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Static

from pagedchat.chat.prompt_history import PromptHistory
from pagedchat.tui.app import PagedChatApp
from pagedchat.tui.kit.sparse_painting import (
    MOST_WAIT,
    SparseCompositor,
    SparseScreen,
    UncoveredCells,
    changed_rows,
)
from pagedchat.view.options import UiOptions
from tests.fakes_tui import FakeEngineLink

SIZE = (40, 12)


class Terminal:
    """The cells that a terminal has after each update; as many columns as characters."""

    def __init__(self) -> None:
        width, height = SIZE
        self.lines = [[" "] * width for _ in range(height)]

    def take(self, update: ChopsUpdate | None) -> None:
        for y, start, stop in update.spans if update else ():
            painted = set()
            for x, strip in update.chops[y].items():
                for column, char in enumerate(strip.text if strip is not None else "", x):
                    if start <= column < stop:
                        self.lines[y][column] = char
                        painted.add(column)
            assert painted == set(range(start, stop))  # a cell that nobody paints keeps what was there


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

    def watched(self: SparseCompositor) -> ChopsUpdate | None:
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


async def test_a_whole_frame_is_textual_s_and_asks_nobody_for_rows_that_others_have(monkeypatch) -> None:
    app = PagedChatApp(FakeEngineLink(), UiOptions(sessions=3), PromptHistory())
    async with app.run_test(size=(160, 50)) as pilot:
        await pilot.press("f3")
        await pilot.pause(0.1)
        asked: list[Region] = []
        behind = app.chats._grids[0]
        draw = behind.render_lines
        monkeypatch.setattr(behind, "render_lines", lambda crop: asked.append(crop) or draw(crop))
        ours = app.screen._compositor.render_strips()
        assert asked == []
        monkeypatch.setattr(SparseCompositor, "_get_renders", Compositor._get_renders)
        assert app.screen._compositor.render_strips() == ours
        assert asked


def test_cells_are_taken_once_and_rows_of_which_none_is_left_are_not_given() -> None:
    uncovered = UncoveredCells(Size(10, 6))
    assert uncovered.take(Region(2, 1, 3, 3)) == [Region(2, 1, 3, 3)]
    assert uncovered.take(Region(2, 2, 3, 1)) == []
    assert uncovered.take(Region(2, 0, 3, 6)) == [Region(2, 0, 3, 1), Region(2, 4, 3, 2)]
    assert uncovered.take(Region(4, 1, 2, 2)) == [Region(4, 1, 2, 2)]  # of each row a cell
    assert uncovered.take(Region(0, 0, 10, 6)) == [Region(0, 0, 10, 6)]
    assert uncovered.take(Region(0, 0, 10, 6)) == []
    assert uncovered.take(Region(3, 3, 0, 0)) == []


def test_only_rows_that_a_change_lies_in_are_asked_for_neighbours_in_one_piece() -> None:
    region = Region(10, 5, 20, 10)
    assert changed_rows(region, [Region(0, 0, 40, 7)]) == [Region(10, 5, 20, 2)]
    apart = [Region(29, 12, 5, 9), Region(12, 6, 1, 1)]
    assert changed_rows(region, apart) == [Region(10, 6, 20, 1), Region(10, 12, 20, 3)]
    assert changed_rows(region, [*apart, Region(0, 6, 20, 6)]) == [Region(10, 6, 20, 9)]
    assert changed_rows(region, [Region(0, 0, 40, 9), Region(0, 6, 40, 1)]) == [Region(10, 5, 20, 4)]
    assert not changed_rows(region, [Region(0, 5, 10, 3), Region(30, 5, 3, 3)])


async def test_where_somebody_types_is_painted_without_waiting_for_the_clock(monkeypatch) -> None:
    painted: list[frozenset[Region]] = []
    paint = SparseCompositor.render_partial_update

    def watched(self: SparseCompositor) -> ChopsUpdate | None:
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


async def test_a_size_that_is_known_is_not_laid_out_for_again(monkeypatch) -> None:
    laid_out: list[Size] = []
    lay_out = SparseCompositor.reflow

    def watched(self: SparseCompositor, parent: Widget, size: Size) -> ReflowResult:
        laid_out.append(size)
        return lay_out(self, parent, size)

    monkeypatch.setattr(SparseCompositor, "reflow", watched)
    app = CornersApp()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause(1 / 30)
        before = len(laid_out)
        app.screen.post_message(events.Resize(Size(*SIZE), Size(*SIZE)))
        await pilot.pause(1 / 30)
        assert laid_out == before * [Size(*SIZE)]
        await pilot.resize_terminal(30, 9)
        await pilot.pause(1 / 30)
        assert set(laid_out[before:]) == {Size(30, 9)}
        assert max(map(len, whole(app))) == 30


async def test_the_first_time_that_a_screen_is_shown_its_styles_are_what_they_would_be_worked_out_anew() -> None:
    app = PagedChatApp(FakeEngineLink(), UiOptions(sessions=3), PromptHistory())
    async with app.run_test(size=(160, 50)) as pilot:
        await pilot.pause()
        nodes = list(app.screen.walk_children(with_self=True))
        assert len(nodes) > 20
        rules = [node.styles.get_rules() for node in nodes]
        app.screen.update_node_styles(animate=False)
        assert [node.styles.get_rules() for node in nodes] == rules


async def test_a_screen_that_was_hidden_gets_its_styles_anew(monkeypatch) -> None:
    app = CornersApp()
    async with app.run_test(size=SIZE) as pilot:
        await pilot.pause()
        worked_out: list[object] = []
        monkeypatch.setattr(app.screen, "update_node_styles", lambda **_: worked_out.append(app.screen))
        app.screen.post_message(events.ScreenResume())
        await pilot.pause()
        assert worked_out == [app.screen]


class Waiting(Corners):
    """Is painted once its boxes have their text."""

    def __init__(self) -> None:
        super().__init__()
        self.texts = [""]
        self.looks = 0

    def on_mount(self) -> None:
        self.paint_when_made(self.is_ready)

    def is_ready(self) -> bool:
        self.looks += 1
        self.texts = ["made"] if self.looks > 5 else self.texts
        return self.texts == ["made"]


class WaitingApp(App[None]):
    def get_default_screen(self) -> Screen[None]:
        return Waiting()


@pytest.mark.parametrize("is_ever_ready", [True, False])
async def test_a_first_frame_waits_for_what_it_is_to_show_but_not_for_long(monkeypatch, is_ever_ready) -> None:
    painted: list[tuple[float, list[str]]] = []
    paint = SparseCompositor.render_update

    def watched(self: SparseCompositor, *args: Any, **options: Any) -> Any:
        painted.append((time.monotonic(), list(app.screen.texts)))
        return paint(self, *args, **options)

    monkeypatch.setattr(SparseCompositor, "render_update", watched)
    if not is_ever_ready:
        monkeypatch.setattr(Waiting, "is_ready", lambda _: False)
    app = WaitingApp()
    began = time.monotonic()
    async with app.run_test(size=SIZE) as pilot:
        while not painted:
            await pilot.pause(0.01)
        when, texts = painted[0]
        assert texts == (["made"] if is_ever_ready else [""])
        assert is_ever_ready or when - began >= MOST_WAIT
        assert "a" in "".join(whole(app))
        app.screen.query_one(Static).update("later")
        before = len(painted)
        await pilot.pause(0.05)
        assert len(painted) > before


async def test_a_terminal_that_is_behind_gets_no_frame_and_then_one_with_everything(monkeypatch) -> None:
    app, painted, terminal = CornersApp(), list[ChopsUpdate | None](), Terminal()
    paint = SparseCompositor.render_partial_update

    def watched(self: SparseCompositor) -> ChopsUpdate | None:
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

    def watched(self: SparseCompositor) -> ChopsUpdate | None:
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
