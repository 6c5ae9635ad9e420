"""The batching panel: marks under marks, figures below, a cursor that stands on a step and leads to it."""

from collections.abc import Callable

import pytest

from pagedchat.events import RunState
from pagedchat.tui.inspector.timeline.batch_timeline import BatchTimeline
from pagedchat.tui.messages import StepChosen, StepOpened
from pagedchat.view.engine_view import EngineView
from tests.scripted_reports import ScriptedEngine, pressed, story
from tests.tui.widget_app import WidgetApp, drawn

SnapCompare = Callable[..., bool]


class TimelineApp(WidgetApp):
    def __init__(self, view: EngineView, *, plain: bool = False) -> None:
        super().__init__(BatchTimeline(view))
        self.ascii = plain
        self.asked: list[tuple[str, int]] = []

    @property
    def timeline(self) -> BatchTimeline:
        assert isinstance(self.widget, BatchTimeline)
        return self.widget

    def foot(self) -> list[str]:
        return drawn(self.timeline.foot)

    def on_step_opened(self, message: StepOpened) -> None:
        self.asked.append(("open", message.step))

    def on_step_chosen(self, message: StepChosen) -> None:
        self.asked.append(("go", message.step))


def swapping() -> ScriptedEngine:
    """Two sequences in a pool that has room for one and a half."""
    engine = ScriptedEngine(
        num_blocks=6, block_size=4, num_host_blocks=8, preemption_mode="swap", max_num_batched_tokens=16
    )
    engine.ask(1, 9, max_tokens=9)
    engine.ask(2, 7, max_tokens=9)
    engine.run(6)
    return engine


# --- what stands there --------------------------------------------------------------------------------


async def test_marks_stand_under_each_other_with_figures_below() -> None:
    app = TimelineApp(story().view)
    async with app.run_test(size=(60, 12)) as pilot:
        app.timeline.refresh_view()
        await pilot.pause()
        assert drawn(app.timeline.lines)[:4] == [
            "1 tale   PPp" + "•" * 27,
            "2 tale»a" + " " * 18 + "f" + "•" * 12,
            "3 code" + " " * 15 + "p•••••••",
            "4 notes" + " " * 20 + "p" + "•" * 11,
        ]
        assert app.foot() == [
            "tok/step ██▓░░░░░░░░░▓░░░░░▓░░░░░░░░░░░",
            "free     ▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓▓",
            "ms/step  " + "▓" * 18 + "█" + "▓" * 11,
            "P prefill  p its last part  • decode  f fork",
            "step 30 · batch 3 · 3 tok · 1 tale 1 · 2 tale»a 1 · 4 notes…",
        ]
        assert drawn(app.timeline.phases) == ["3.5 ms " + "█" * 53, "■ forward 3.1  ■ sample .4"]


async def test_only_the_last_columns_that_fit_are_shown() -> None:
    app = TimelineApp(story().view)
    async with app.run_test(size=(20, 12)) as pilot:
        app.timeline.refresh_view()
        await pilot.pause()
        assert drawn(app.timeline.lines)[0] == "1 tale   " + "•" * 11
        assert app.foot()[3] == "• decode"


async def test_preemption_swap_and_pause_have_marks_in_the_legend() -> None:
    engine = swapping()
    engine.view.apply(RunState(paused=True))
    app = TimelineApp(engine.view)
    async with app.run_test(size=(80, 12)) as pilot:
        app.timeline.refresh_view()
        await pilot.pause()
        assert drawn(app.timeline.lines)[:2] == ["seq 1    p•••••║", "seq 2    p•••▼s║"]
        assert app.foot()[3] == "p its last part  • decode  ▼ preempted  s swapped  ║ paused"
        assert str(app.timeline.border_title) == "Batching · a column = a step · ║ paused at 6"


async def test_before_the_first_step_it_says_so() -> None:
    app = TimelineApp(ScriptedEngine(num_blocks=4).view)
    async with app.run_test(size=(60, 12)) as pilot:
        app.timeline.refresh_view()
        await pilot.pause()
        assert app.foot()[-1] == "no step has run yet"
        assert str(app.timeline.border_title).endswith("► live at 0")


@pytest.mark.parametrize(
    ("height", "firsts"),
    [
        (2, ["step"]),
        (4, ["tok/step", "step"]),
        (6, ["step", "3.5"]),
        (8, ["tok/step", "step", "3.5"]),
        (20, ["tok/step", "free", "ms/step", "P", "step", "3.5"]),
    ],
)
async def test_the_foot_shows_what_matters_most_where_there_is_little_room(height: int, firsts: list[str]) -> None:
    app = TimelineApp(story().view)
    async with app.run_test(size=(60, height)) as pilot:
        app.timeline.refresh_view()
        await pilot.pause()
        phases = drawn(app.timeline.phases)[:1] if app.timeline.phases.display else []
        assert [line.split()[0] for line in (*app.foot(), *phases)] == firsts


async def test_nothing_is_drawn_again_without_news() -> None:
    engine = pressed()
    app = TimelineApp(engine.view)
    async with app.run_test(size=(60, 12)) as pilot:
        app.timeline.refresh_view()
        await pilot.pause()
        before = app.timeline.lines.columns
        app.timeline.refresh_view()
        assert app.timeline.lines.columns is before
        engine.run()
        app.timeline.refresh_view()
        assert app.timeline.lines.columns is not before


async def test_a_terminal_without_glyphs_gets_ascii_only() -> None:
    engine = swapping()
    engine.view.labels = {1: "1 tale", 2: "2 tale»a"}
    app = TimelineApp(engine.view, plain=True)
    async with app.run_test(size=(80, 14)) as pilot:
        app.timeline.lines.focus()
        await pilot.press("left")
        timeline = app.timeline
        lines = [*drawn(timeline.lines), *app.foot(), *drawn(timeline.phases)]
        title = str(timeline.border_title) + str(timeline.border_subtitle)
        assert "".join([*lines, title]).isascii()
        assert lines[0] == "1 tale   p....."


# --- the cursor ---------------------------------------------------------------------------------------


async def test_left_and_right_choose_a_step_that_the_foot_tells() -> None:
    app = TimelineApp(story().view)
    async with app.run_test(size=(60, 14)) as pilot:
        app.timeline.refresh_view()
        app.timeline.lines.focus()
        await pilot.press("left", "left")
        assert app.foot()[-1].startswith("step 29 · batch 3")
        assert str(app.timeline.border_title).endswith("► step 29")
        await pilot.press(*["h"] * 10)
        assert app.foot()[-1].startswith("step 19 · batch 4 · 93 tok · 1 tale 1")
        assert drawn(app.timeline.phases)[1] == "■ copy .2  ■ forward 3.1  ■ sample .4"
        await pilot.press("l", "end")
        assert app.foot()[-1].startswith("step 30")
        assert str(app.timeline.border_title).endswith("► live at 30")


async def test_columns_out_of_sight_come_back_with_the_cursor() -> None:
    app = TimelineApp(story().view)
    async with app.run_test(size=(20, 12)) as pilot:
        app.timeline.refresh_view()
        app.timeline.lines.focus()
        await pilot.press("home")
        assert drawn(app.timeline.lines)[0] == "1 tale   PPp" + "•" * 8
        assert app.foot()[-1].startswith("step 1 ·")


async def test_the_cursor_stays_on_its_step_while_the_engine_runs() -> None:
    engine = story()
    app = TimelineApp(engine.view)
    async with app.run_test(size=(30, 12)) as pilot:
        app.timeline.refresh_view()
        app.timeline.lines.focus()
        await pilot.press("left", "left", "left")
        before = drawn(app.timeline.lines)
        engine.run(5)
        app.timeline.refresh_view()
        await pilot.pause()
        assert app.timeline.told is not None
        assert app.timeline.told.step == 28
        assert drawn(app.timeline.lines) == before


async def test_enter_opens_the_step_and_g_goes_there() -> None:
    app = TimelineApp(story().view)
    async with app.run_test(size=(60, 14)) as pilot:
        app.timeline.refresh_view()
        app.timeline.lines.focus()
        await pilot.press("enter", "g", "left", "left", "enter", "g", "escape", "g")
        assert app.asked == [("open", 30), ("open", 29), ("go", 29)]


async def test_a_click_chooses_a_step_and_a_second_one_opens_it() -> None:
    app = TimelineApp(story().view)
    async with app.run_test(size=(60, 14)) as pilot:
        app.timeline.refresh_view()
        await pilot.pause()
        await pilot.click(app.timeline.lines, offset=(9 + 4, 1))
        assert app.foot()[-1].startswith("step 5 ·")
        await pilot.click(app.timeline.lines, offset=(9 + 4, 1), times=2)
        assert app.asked[-1] == ("open", 5)
        await pilot.click(app.timeline.lines, offset=(2, 1))
        assert app.foot()[-1].startswith("step 5 ·")


async def test_another_moment_has_no_cursor() -> None:
    engine = story()
    app = TimelineApp(engine.view)
    async with app.run_test(size=(60, 14)) as pilot:
        app.timeline.refresh_view()
        app.timeline.lines.focus()
        await pilot.press("left", "left")
        past = pressed().view.live
        assert past is not None
        engine.view.show_past(past)
        app.timeline.refresh_view()
        await pilot.pause()
        assert app.timeline.lines.chosen is None
        assert str(app.timeline.border_title).endswith("◄ past at 16")
        assert str(app.timeline.border_subtitle).startswith("space back to the present")
        assert drawn(app.timeline.lines)[0].startswith("1 tale   Pp•")


# --- how it looks -------------------------------------------------------------------------------------


def many_marks() -> ScriptedEngine:
    """Prefill, decode, fork, preemption by swap and by dropping, waiting: every mark."""
    engine = pressed("swap")
    engine.core.stop(2)
    engine.ask(4, 30, max_tokens=6)
    engine.run(8)
    engine.view.apply(RunState(paused=True))
    return engine


def test_every_mark_looks(snap_compare: SnapCompare) -> None:
    app = TimelineApp(many_marks().view)

    async def choose(pilot: object) -> None:
        app.timeline.refresh_view()
        app.timeline.lines.focus()
        app.timeline.lines.action_move_column(-6)

    assert snap_compare(app, terminal_size=(70, 14), run_before=choose)
