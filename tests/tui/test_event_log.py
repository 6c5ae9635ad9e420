"""The event log: filters by kind and text, sticks to the newest line, stays put while somebody reads."""

from textual.widgets import Input

from pagedchat.events import EngineDied
from pagedchat.tui.engine_view import EngineView
from pagedchat.tui.widgets.event_log import FILTERS, EventLog
from tests.scripted_reports import ScriptedEngine, story
from tests.tui.inspector_app import WidgetApp, drawn


class LogApp(WidgetApp):
    def __init__(self, view: EngineView) -> None:
        super().__init__(EventLog(view))

    @property
    def log_panel(self) -> EventLog:
        assert isinstance(self.widget, EventLog)
        return self.widget

    def kinds(self) -> set[str]:
        return {line.kind for line in self.log_panel.lines.shown}


async def test_the_newest_lines_are_at_the_bottom() -> None:
    app = LogApp(story().view)
    async with app.run_test(size=(70, 5)) as pilot:
        app.log_panel.refresh_view()
        await pilot.pause()
        assert drawn(app.log_panel.lines) == [
            "   19 RUN     2 tale⑂a enters the batch",
            "   19 ALLOC   4 notes +6: 033 034 035 036 …",
            "   19 RUN     4 notes enters the batch",
            "   20 PARK    3 code (length), keeps its blocks",
            "   26 ALLOC   4 notes +1: 039",
        ]


async def test_kinds_cycle_through_all_groups() -> None:
    app = LogApp(story().view)
    async with app.run_test(size=(70, 5)) as pilot:
        app.log_panel.refresh_view()
        await pilot.pause()
        seen = {}
        for name in FILTERS:
            assert app.log_panel.lines.kinds == name
            assert f"· {name} (e)" in str(app.log_panel.border_title)
            seen[name] = app.kinds()
            app.log_panel.cycle_kinds()
            await pilot.pause()
        assert app.log_panel.lines.kinds == "changes"
    assert seen["steps"] == {"STEP"}
    assert seen["blocks"] == {"ALLOC", "COW"}
    assert seen["sequences"] == {"OPEN", "EXTEND", "RUN", "PARK", "FORK"}
    assert seen["changes"] == seen["blocks"] | seen["sequences"]
    assert seen["all"] == seen["changes"] | {"STEP"}


async def test_new_lines_follow_only_while_the_end_is_in_sight() -> None:
    engine = story()
    app = LogApp(engine.view)
    async with app.run_test(size=(70, 5)) as pilot:
        app.log_panel.refresh_view()
        await pilot.pause()
        engine.core.close(3)
        engine.flush()
        app.log_panel.refresh_view()
        await pilot.pause()
        assert drawn(app.log_panel.lines)[-1] == "   30 CLOSE   3 code"
        app.log_panel.lines.focus()
        await pilot.press("home")
        await pilot.pause()
        top = drawn(app.log_panel.lines)
        engine.core.close(4)
        engine.flush()
        app.log_panel.refresh_view()
        await pilot.pause()
        assert drawn(app.log_panel.lines) == top
        await pilot.press("end")
        await pilot.pause()
        assert drawn(app.log_panel.lines)[-1] == "   30 CLOSE   4 notes"


async def test_a_text_filter_is_typed_kept_and_dropped() -> None:
    app = LogApp(story().view)
    async with app.run_test(size=(70, 6)) as pilot:
        app.log_panel.refresh_view()
        await pilot.pause()
        number = len(app.log_panel.lines.shown)
        app.log_panel.start_filter()
        await pilot.press("C", "o", "w")
        await pilot.pause()
        assert app.kinds() == {"COW"}
        assert "“cow”" in str(app.log_panel.border_title)
        await pilot.press("enter")
        assert app.log_panel.lines.has_focus
        assert app.log_panel.query_one(Input).display
        assert app.kinds() == {"COW"}
        await pilot.press("escape")
        await pilot.pause()
        assert len(app.log_panel.lines.shown) == number
        assert not app.log_panel.query_one(Input).display


async def test_an_empty_filter_goes_away_on_enter() -> None:
    app = LogApp(story().view)
    async with app.run_test(size=(70, 6)) as pilot:
        app.log_panel.start_filter()
        await pilot.press("enter")
        await pilot.pause()
        assert not app.log_panel.query_one(Input).display


async def test_labels_are_text_never_markup_or_escapes() -> None:
    engine = ScriptedEngine(num_blocks=4)
    engine.view.labels = {1: "1 [b]x[/]\x1b[31m\ny"}
    engine.ask(1, 3, max_tokens=1)
    engine.run()
    app = LogApp(engine.view)
    async with app.run_test(size=(70, 6)) as pilot:
        app.log_panel.refresh_view()
        await pilot.pause()
        assert drawn(app.log_panel.lines)[0] == "    1 OPEN    1 [b]x[/] y"


async def test_another_engine_begins_an_empty_log() -> None:
    engine = story()
    app = LogApp(engine.view)
    async with app.run_test(size=(70, 6)) as pilot:
        app.log_panel.refresh_view()
        engine.view.apply(EngineDied(1, "", restarting=True))
        app.log_panel.refresh_view()
        await pilot.pause()
        assert app.log_panel.lines.shown == []


async def test_old_lines_are_forgotten() -> None:
    engine = ScriptedEngine(num_blocks=4)
    app = LogApp(engine.view)
    async with app.run_test(size=(70, 6)) as pilot:
        app.log_panel.refresh_view()
        for number in range(30):
            for seq_id in range(100):
                engine.core.open(1000 * number + seq_id + 1)
                engine.core.close(1000 * number + seq_id + 1)
            engine.flush()
            app.log_panel.refresh_view()
        await pilot.pause()
        assert len(app.log_panel.lines.shown) == 5000
        assert engine.view.num_lines == 6000
        assert drawn(app.log_panel.lines)[-1] == "    0 CLOSE   seq 29100"
