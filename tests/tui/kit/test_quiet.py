"""Widgets that change often lay out nothing but themselves, and paint no more than what looks different."""

import pytest
from rich.segment import Segment
from textual.app import App, ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.geometry import Region
from textual.strip import Strip

from pagedchat.tui.kit.line_view import LineView
from pagedchat.tui.kit.quiet import QuietBorder


class Numbers(LineView):
    """Line 7 says 7."""

    def __init__(self) -> None:
        super().__init__()
        self.built: list[int] = []

    def build_line(self, index: int) -> Strip:
        self.built.append(index)
        return Strip([Segment(str(index))])


class Framed(QuietBorder):
    """Counts the rows inside its border that it is asked for."""

    DEFAULT_CSS = "Framed { height: 6; border: round white; }"

    def __init__(self) -> None:
        super().__init__()
        self.asked = 0

    def render_line(self, y: int) -> Strip:
        self.asked += 1
        return Strip.blank(self.size.width)


class QuietApp(App[None]):
    def __init__(self) -> None:
        super().__init__()
        self.numbers, self.framed = Numbers(), Framed()
        self.layouts = 0

    def compose(self) -> ComposeResult:
        yield self.framed
        yield self.numbers

    def on_mount(self) -> None:
        self.screen.screen_layout_refresh_signal.subscribe(self.numbers, self.count_layout)

    def count_layout(self, screen: object) -> None:
        self.layouts += 1

    def drawn(self) -> list[str]:
        return [strip.text.rstrip() for strip in self.screen._compositor.render_strips()]


async def test_only_a_scroll_bar_that_comes_or_goes_lays_the_screen_out() -> None:
    app = QuietApp()
    async with app.run_test(size=(20, 16)) as pilot:
        app.numbers.set_lines(3)
        await pilot.pause()
        laid_out = []
        for count in (9, 11, 12, 40, 10, 4):
            before = app.layouts
            app.numbers.set_lines(count)
            await pilot.pause()
            await pilot.pause()
            laid_out.append(app.layouts > before)
        assert laid_out == [False, True, False, False, True, False]
        assert not app.numbers.show_vertical_scrollbar


@pytest.mark.parametrize("at_end", [True, False])
async def test_the_scroll_bar_stands_where_one_painted_anew_would(at_end: bool) -> None:
    app = QuietApp()
    async with app.run_test(size=(20, 16)) as pilot:
        app.numbers.set_lines(11)
        await pilot.pause()
        for count in (12, 13, 14, 30, 31, 200, 12, 50):
            app.numbers.set_lines(count)
            app.numbers.scroll_to(y=app.numbers.max_scroll_y if at_end else 1, animate=False, immediate=True)
            await pilot.pause(1 / 60)
            quiet = app.drawn()
            app.numbers.vertical_scrollbar.window_virtual_size = count
            app.screen.refresh(layout=True)
            app.numbers.vertical_scrollbar.refresh()
            await pilot.pause(1 / 60)
            assert app.drawn() == quiet


async def test_lines_added_at_the_end_leave_the_others_as_they_are() -> None:
    app = QuietApp()
    async with app.run_test(size=(20, 16)) as pilot:
        app.numbers.set_lines(4)
        await pilot.pause(1 / 60)
        app.numbers.built.clear()
        app.numbers.add_lines(2)
        await pilot.pause(1 / 60)
        assert app.numbers.built == [4, 5]
        assert app.drawn()[6:13] == ["0", "1", "2", "3", "4", "5", ""]


async def test_other_words_in_a_border_paint_that_row_only() -> None:
    app = QuietApp()
    async with app.run_test(size=(20, 16)) as pilot:
        await pilot.pause(1 / 60)
        asked = app.framed.asked
        app.framed.set_title(Content("above"))
        app.framed.set_subtitle(Content("below"))
        await pilot.pause(1 / 60)
        assert "above" in app.drawn()[0]
        assert "below" in app.drawn()[5]
        assert app.framed.asked == asked


class Box(QuietBorder, Vertical):
    """Has others inside."""

    DEFAULT_CSS = "Box { height: 9; width: 20; border: round white; padding: 1 2 0 1; background: red 30%; }"


class BoxApp(App[None]):
    def compose(self) -> ComposeResult:
        with Box():
            yield Numbers()


@pytest.mark.parametrize(("x", "width"), [(0, 20), (0, 1), (3, 9), (19, 1)])
async def test_rows_between_the_edges_are_one_and_what_textual_makes_of_each(x: int, width: int) -> None:
    app = BoxApp()
    async with app.run_test(size=(40, 20)) as pilot:
        await pilot.pause()
        box = app.query_one(Box)
        box.set_title(Content("above"))
        box.set_subtitle(Content("below"))
        assert (
            len({id(strip) for strip in box.render_lines(Region(x, 0, width, 9))}) == 4
        )  # edges, padding, the rest
        for top in range(9):
            for height in range(1, 10 - top):
                crop = Region(x, top, width, height)
                assert box.render_lines(crop) == Vertical.render_lines(box, crop)
