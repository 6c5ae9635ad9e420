"""The line that shows and sets the step: what it says, and where keys, clicks and drags lead."""

import pytest
from textual.app import App, ComposeResult

from pagedchat.tui.inspector.scrub_bar import ScrubBar
from pagedchat.tui.messages import StepChosen
from pagedchat.view.past.time_travel import TimeTravel
from tests.trace.recorded import RecordedEngine
from tests.tui.whole_app import toasts, until


class BarApp(App[None]):
    """Does what the bar asks for, and notes it."""

    def __init__(self, bar: ScrubBar, *, ascii_only: bool = False) -> None:
        super().__init__()
        self.bar = bar
        self.ascii = ascii_only
        self.asked: list[int | None] = []

    def compose(self) -> ComposeResult:
        yield self.bar

    def on_step_chosen(self, message: StepChosen) -> None:
        self.asked.append(message.step)
        travel = self.bar.view.travel
        assert travel is not None
        if message.step is None:
            travel.live()
        else:
            travel.goto(message.step)
        self.bar.refresh_view()


@pytest.fixture
def run() -> RecordedEngine:
    """40 steps of one chat; 16 tokens fill a block, so the last event is the one at step 1."""
    run = RecordedEngine(num_blocks=64)
    run.ask(1, 20)
    run.run(40)
    TimeTravel(run.view, lambda: run.recorder.recording)
    return run


def shown(bar: ScrubBar) -> str:
    return bar.render().plain


async def test_live_and_past_are_told_apart(run: RecordedEngine) -> None:
    bar = ScrubBar(run.view)
    app = BarApp(bar)
    async with app.run_test(size=(60, 3)) as pilot:
        await pilot.pause()
        assert shown(bar) == f"LIVE ► 40 ├{'─' * 40}●┤ 0–40"
        bar.action_step_back(20)
        await pilot.pause()
        assert shown(bar).startswith("PAST ◄ 20 of 40 (1.0 s ago) ├")
        assert shown(bar).endswith("┤ 0–40")
        track = shown(bar).partition("├")[2].partition("┤")[0]
        assert track.index("●") == round((len(track) - 1) / 2)
        assert len(shown(bar)) == 58


async def test_the_bar_follows_the_engine(run: RecordedEngine) -> None:
    bar = ScrubBar(run.view)
    async with BarApp(bar).run_test(size=(60, 3)) as pilot:
        await pilot.pause()
        run.run(5)
        bar.refresh_view()
        await pilot.pause()
        assert shown(bar).startswith("LIVE ► 45 ")


async def test_keys_lead_to_steps(run: RecordedEngine) -> None:
    bar = ScrubBar(run.view)
    app = BarApp(bar)
    async with app.run_test(size=(60, 3)) as pilot:
        for move in (
            bar.action_step_back,
            bar.action_step_back,
            bar.action_step_forward,
            bar.action_previous_event,
            bar.action_first,
            bar.action_next_event,
            bar.action_live,
            bar.action_step_forward,
        ):
            move()
            await pilot.pause()
        assert app.asked == [39, 38, 39, 1, 0, 1, None, None]


async def test_keys_faster_than_steps_lose_nothing(run: RecordedEngine) -> None:
    bar = ScrubBar(run.view)
    app = BarApp(bar)
    async with app.run_test(size=(60, 3)) as pilot:
        for move in (
            bar.action_step_back,
            bar.action_step_back,
            bar.action_previous_event,
            bar.action_step_forward,
        ):
            move()
        await pilot.pause()
        assert app.asked == [39, 38, 1, 2]
        bar.action_step_back()
        await pilot.pause()
        assert app.asked[-1] == 1


async def test_a_move_to_nowhere_is_explained(run: RecordedEngine) -> None:
    bar = ScrubBar(run.view)
    app = BarApp(bar)
    async with app.run_test(size=(60, 12)) as pilot:
        bar.action_next_event()
        await pilot.pause()
        assert app.asked == []
        assert toasts(app) == ["No event is recorded after step 40. Steps 0 to 40 are recorded."]


async def test_click_and_drag(run: RecordedEngine) -> None:
    bar = ScrubBar(run.view)
    app = BarApp(bar)
    async with app.run_test(size=(60, 3)) as pilot:
        await pilot.pause()
        left, right = bar._track.start + 1, bar._track.stop  # the widget's padding is one cell
        await pilot.click(bar, offset=(left, 0))
        await until(pilot, lambda: app.asked == [0])
        await pilot.mouse_down(bar, offset=(bar._track.start + 1 + len(bar._track) // 2, 0))
        await pilot.hover(bar, offset=(59, 0))
        await until(pilot, lambda: app.asked[-1] is None)
        await pilot.mouse_up(bar, offset=(right, 0))
        await pilot.pause(0.1)
        asked = list(app.asked)
        await pilot.hover(bar, offset=(20, 0))
        await pilot.pause(0.1)
        assert app.asked == asked


async def test_small_places_and_empty_recordings(run: RecordedEngine) -> None:
    bar = ScrubBar(run.view)
    async with BarApp(bar).run_test(size=(24, 3)) as pilot:
        await pilot.pause()
        assert shown(bar) == "LIVE ► 40"
        await pilot.click(bar, offset=(5, 0))
        TimeTravel(run.view, lambda: None)
        bar.refresh_view()
        assert shown(bar) == "nothing recorded yet"
        bar.action_step_back()
        run.view.travel = None
        assert shown(bar) == "nothing recorded yet"


async def test_ascii_and_replay(run: RecordedEngine) -> None:
    TimeTravel(run.view, lambda: run.recorder.recording, has_live=False).goto(40)
    bar = ScrubBar(run.view)
    app = BarApp(bar, ascii_only=True)
    async with app.run_test(size=(70, 3)) as pilot:
        await pilot.pause()
        assert shown(bar).startswith("REPLAY < 40 of 40 (0.0 s before the end) [----")
        assert shown(bar).endswith("O] 0-40")
        assert shown(bar).isascii()
        bar.action_step_forward()
        bar.action_live()
        await pilot.pause()
        assert app.asked == [40, 40]
