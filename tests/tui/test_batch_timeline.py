"""The batching panel: marks under marks, sparklines, and the last step in words."""

from pagedchat.events import RunState
from pagedchat.tui.engine_view import EngineView
from pagedchat.tui.widgets.batch_timeline import BatchTimeline, batch_words, timing_words
from pagedchat.tui.widgets.line_view import LineBar
from tests.scripted_reports import ScriptedEngine, pressed, story
from tests.tui.inspector_app import WidgetApp, drawn


class TimelineApp(WidgetApp):
    def __init__(self, view: EngineView) -> None:
        super().__init__(BatchTimeline(view))

    @property
    def timeline(self) -> BatchTimeline:
        assert isinstance(self.widget, BatchTimeline)
        return self.widget

    def foot(self) -> list[str]:
        return drawn(self.timeline.query_one(LineBar))


async def test_marks_stand_under_each_other_with_sparklines_below() -> None:
    app = TimelineApp(story().view)
    async with app.run_test(size=(60, 12)) as pilot:
        app.timeline.refresh_view()
        await pilot.pause()
        assert drawn(app.timeline.lines)[:4] == [
            "1 tale   PPp" + "•" * 27,
            "2 tale⑂a" + " " * 18 + "f" + "•" * 12,
            "3 code" + " " * 15 + "p•••••••",
            "4 notes" + " " * 20 + "p" + "•" * 11,
        ]
        assert app.foot() == [
            "tok/step ██▇▁▁▁▁▁▁▁▁▁▆▁▁▁▁▁▆▁▁▁▁▁▁▁▁▁▁▁",
            "free     ▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▇▆▆▆▆▆▆▆▆▆▆▆▆",
            "step 30 · batch 3 · 3 tok · 1 tale 1 · 2 tale⑂a 1 · 4 notes",
            "schedule .0 copy .0 forward 3.1 sample .4 update .0 ms",
            "P prefill  p its last part  • decode  f fork",
        ]


async def test_only_the_last_columns_that_fit_are_shown() -> None:
    app = TimelineApp(story().view)
    async with app.run_test(size=(20, 12)) as pilot:
        app.timeline.refresh_view()
        await pilot.pause()
        assert drawn(app.timeline.lines)[0] == "1 tale   " + "•" * 11
        assert app.foot()[4] == "• decode"


async def test_preemption_swap_and_pause_have_marks_in_the_legend() -> None:
    engine = ScriptedEngine(
        num_blocks=6, block_size=4, num_host_blocks=8, preemption_mode="swap", max_num_batched_tokens=16
    )
    engine.ask(1, 9, max_tokens=9)
    engine.ask(2, 7, max_tokens=9)
    engine.run(6)
    engine.view.apply(RunState(paused=True))
    app = TimelineApp(engine.view)
    async with app.run_test(size=(80, 12)) as pilot:
        app.timeline.refresh_view()
        await pilot.pause()
        assert drawn(app.timeline.lines)[:2] == ["seq 1    p•••••‖", "seq 2    p•••✕s‖"]
        assert app.foot()[4] == "p its last part  • decode  ✕ preempted  s swapped  ‖ paused"
        assert str(app.timeline.border_title) == "Batching · a column = a step · ‖ paused at 6"


async def test_before_the_first_step_it_says_so() -> None:
    app = TimelineApp(ScriptedEngine(num_blocks=4).view)
    async with app.run_test(size=(60, 12)) as pilot:
        app.timeline.refresh_view()
        await pilot.pause()
        assert app.foot()[2] == "no step has run yet"
        assert str(app.timeline.border_title).endswith("▶ live at 0")


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


def test_the_last_step_in_words() -> None:
    report = story().reports[18]
    assert batch_words(report) == "step 19 · batch 4 · 93 tok"
    assert timing_words(report) == "schedule .0 copy .2 forward 3.1 sample .4 update .0 ms"
