"""One step looked at closely: its neighbours, going there, and how it looks."""

from collections.abc import Callable

import msgspec
from textual.app import App
from textual.pilot import Pilot

from pagedchat.events import StepReport
from pagedchat.tui.inspector.timeline.step_detail import StepDetail
from pagedchat.view.engine_view import EngineView
from pagedchat.view.timeline.step_story import find_report
from tests.scripted_reports import pressed, story
from tests.tui.widget_app import drawn

SnapCompare = Callable[..., bool]


class DetailApp(App[None]):
    def __init__(self, view: EngineView, step: int, *, plain: bool = False) -> None:
        super().__init__()
        self.view, self.step, self.ascii = view, step, plain
        self.animation_level = "none"
        self.went: list[int | None] = []

    def on_mount(self) -> None:
        self.push_screen(StepDetail(self.view, self.step), self.went.append)

    @property
    def detail(self) -> StepDetail:
        assert isinstance(self.screen, StepDetail)
        return self.screen


async def test_comma_and_full_stop_turn_to_the_neighbours() -> None:
    app = DetailApp(story().view, 19)
    async with app.run_test(size=(110, 40)) as pilot:
        await pilot.pause()
        await pilot.press("comma", "left")
        assert app.detail.step == 17
        await pilot.press("full_stop", "right", "l", "full_stop")
        assert app.detail.step == 21


async def test_there_is_no_step_past_the_last_or_before_the_first() -> None:
    app = DetailApp(story().view, 28)
    async with app.run_test(size=(110, 40)) as pilot:
        await pilot.press(*["full_stop"] * 4)
        assert app.detail.step == 30
    app = DetailApp(story().view, 3)
    async with app.run_test(size=(110, 40)) as pilot:
        await pilot.press(*["comma"] * 4)
        assert app.detail.step == 1
        assert drawn(app.detail._phases)[1] == "■ forward 3.1  ■ sample .4"


async def test_g_asks_to_go_there_and_escape_for_nothing() -> None:
    for key, went in (("g", 19), ("escape", None), ("q", None)):
        app = DetailApp(story().view, 19)
        async with app.run_test(size=(110, 40)) as pilot:
            await pilot.pause()
            await pilot.press(key)
            await pilot.pause()
            assert app.went == [went]


async def test_y_copies_the_report_as_json() -> None:
    app = DetailApp(story().view, 19)
    async with app.run_test(size=(110, 40)) as pilot:
        await pilot.pause()
        await pilot.press("y")
        assert msgspec.json.decode(app.clipboard, type=StepReport) == find_report(app.view, 19)


async def test_a_forgotten_step_says_so() -> None:
    app = DetailApp(story().view, 4000)
    async with app.run_test(size=(110, 40)) as pilot:
        await pilot.pause()
        assert str(app.detail._text.render()) == "This step is no longer kept."
        await pilot.press("comma")
        assert app.detail.step == 30


async def test_a_terminal_without_glyphs_gets_ascii_only() -> None:
    engine = story()
    engine.view.token_texts[7] = b" sea"
    app = DetailApp(engine.view, 19, plain=True)
    async with app.run_test(size=(110, 40)) as pilot:
        await pilot.pause()
        assert str(app.detail._text.render()).isascii()
        assert "".join(drawn(app.detail._phases)).isascii()


def test_a_step_looks(snap_compare: SnapCompare) -> None:
    engine = pressed("swap")
    engine.view.token_texts.update({7: b" sea", 2000: b"def"})

    async def settle(pilot: Pilot[None]) -> None:
        await pilot.pause()

    assert snap_compare(DetailApp(engine.view, 14), terminal_size=(110, 34), run_before=settle)
