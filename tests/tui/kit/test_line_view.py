"""Lines that are longer than their widget is wide."""

from rich.segment import Segment
from rich.style import Style
from textual.app import App
from textual.strip import Strip

from pagedchat.tui.kit.line_view import LineBar, LineView

LONG = Strip([Segment("plain "), Segment("and red, too long by far", Style(color="red"))])
SHORT = Strip([Segment("plain" + " " * 20)])


class Two(App[None]):
    def compose(self):
        bar = LineBar(2)
        bar.strips = [LONG, SHORT]
        yield bar
        yield Lines()


class Lines(LineView):
    def __init__(self):
        super().__init__()
        self.num_lines = 2

    def build_line(self, index):
        return (LONG, SHORT)[index]


async def test_a_line_that_is_cut_ends_with_an_ellipsis_in_its_colour():
    app = Two()
    async with app.run_test(size=(12, 8)) as pilot:
        await pilot.pause()
        for widget in (app.query_one(LineBar), app.query_one(Lines)):
            drawn = widget.render_line(0)
            assert drawn.text == "plain and r…"
            assert list(drawn)[-1].style.color.name == "red"
            assert widget.render_line(1).text == "plain       "


async def test_wide_characters_are_never_cut_in_two():
    app = Two()
    async with app.run_test(size=(12, 8)) as pilot:
        await pilot.pause()
        bar = app.query_one(LineBar)
        bar.show([Strip([Segment("日本語日本語日本語")]), SHORT])
        assert bar.render_line(0).text == "日本語日本 …"
        assert bar.render_line(0).cell_length == 12
