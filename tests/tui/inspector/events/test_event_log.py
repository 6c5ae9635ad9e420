"""The event log: filters by kind and text, a cursor that leads on, newest lines unless somebody reads."""

from collections.abc import Callable

import pytest
from textual.geometry import Size
from textual.pilot import Pilot
from textual.widgets import Input, SelectionList

from pagedchat.events import EngineDied
from pagedchat.tui.inspector.events.event_kinds import EventKindsScreen
from pagedchat.tui.inspector.events.event_log import EventLog
from pagedchat.tui.inspector.events.event_rows import EventLines
from pagedchat.tui.messages import BlockOpened, StepOpened
from pagedchat.view.engine_view import EngineView
from pagedchat.view.sentences.event_filter import CHOSEN, FILTERS, EventFilter
from pagedchat.view.sentences.event_lines import GROUPS, MEANINGS, EventLine
from tests.scripted_reports import ScriptedEngine, pressed, story
from tests.tui.widget_app import WidgetApp, drawn

SnapCompare = Callable[..., bool]


class LogApp(WidgetApp):
    def __init__(self, view: EngineView, *, plain: bool = False) -> None:
        super().__init__(EventLog(view))
        self.ascii = plain
        self.asked: list[tuple[str, int]] = []

    @property
    def log_panel(self) -> EventLog:
        assert isinstance(self.widget, EventLog)
        return self.widget

    @property
    def lines(self) -> EventLines:
        return self.log_panel.lines

    def kinds(self) -> set[str]:
        return {line.kind for line in self.lines.shown}

    def on_block_opened(self, message: BlockOpened) -> None:
        self.asked.append(("block", message.block_id))

    def on_step_opened(self, message: StepOpened) -> None:
        self.asked.append(("step", message.step))


async def opened(app: LogApp, pilot: Pilot[None]) -> None:
    app.log_panel.refresh_view()
    app.lines.focus()
    await pilot.pause()


async def test_the_newest_lines_are_at_the_bottom() -> None:
    app = LogApp(story().view)
    async with app.run_test(size=(70, 5)) as pilot:
        await opened(app, pilot)
        assert drawn(app.lines) == [
            '   19 MISS    4 notes differs at token 0: "#4000" not "#3000" (block…',
            "   19 ALLOC   4 notes +6: 033 034 035 036 …",
            "   19 RUN     4 notes enters the batch",
            "   20 PARK    3 code (length), keeps its blocks",
            "   26 ALLOC   4 notes +1: 039",
        ]


# --- kinds and text -----------------------------------------------------------------------------------


async def test_kinds_cycle_through_all_groups() -> None:
    app = LogApp(story().view)
    async with app.run_test(size=(70, 5)) as pilot:
        await opened(app, pilot)
        seen = {}
        for name in FILTERS:
            assert app.lines.filter.name == name
            assert f"· {name} (e E)" in str(app.log_panel.border_title)
            seen[name] = app.kinds()
            app.log_panel.cycle_kinds()
            await pilot.pause()
        assert app.lines.filter.name == "changes"
    assert seen["steps"] == {"STEP"}
    assert seen["blocks"] >= {"ALLOC", "COW"}
    assert seen["sequences"] == {"OPEN", "EXTEND", "RUN", "PARK", "FORK"}
    assert seen["changes"] == seen["blocks"] | seen["sequences"]
    assert seen["all"] == seen["changes"] | {"STEP"}


async def test_each_kind_can_be_switched_in_a_menu() -> None:
    app = LogApp(story().view)
    async with app.run_test(size=(70, 30)) as pilot:
        await opened(app, pilot)
        app.log_panel.choose_kinds()
        await pilot.pause()
        assert isinstance(app.screen, EventKindsScreen)
        options = app.screen.query_one(SelectionList)
        assert str(options.get_option_at_index(list(GROUPS).index("FORK")).prompt).split()[:2] == ["FORK", "1"]
        await pilot.press("a", "a", *["down"] * list(GROUPS).index("FORK"), "space", "escape")
        await pilot.pause()
        assert app.kinds() == {"FORK"}
        assert len(app.screen_stack) == 1
        assert app.lines.filter.name == CHOSEN
        app.log_panel.cycle_kinds()
        assert app.lines.filter.name == FILTERS[0]


async def test_a_text_filter_is_typed_counted_kept_and_dropped() -> None:
    app = LogApp(story().view)
    async with app.run_test(size=(70, 6)) as pilot:
        await opened(app, pilot)
        number = len(app.lines.shown)
        app.log_panel.start_filter()
        await pilot.press(*"Cow")
        await pilot.pause()
        assert app.kinds() == {"COW"}
        assert "“cow” 1 line" in str(app.log_panel.border_title)
        await pilot.press("enter")
        assert app.lines.has_focus
        assert app.log_panel.query_one(Input).display
        assert app.kinds() == {"COW"}
        await pilot.press("escape")
        await pilot.pause()
        assert len(app.lines.shown) == number
        assert not app.log_panel.query_one(Input).display


async def test_the_number_of_matches_follows_the_engine() -> None:
    engine = story()
    app = LogApp(engine.view)
    async with app.run_test(size=(70, 6)) as pilot:
        await opened(app, pilot)
        app.log_panel.start_filter()
        await pilot.press(*"4 notes")
        await pilot.pause()
        before = len(app.lines.shown)
        assert f"{before} lines" in str(app.log_panel.border_title)
        engine.core.close(4)
        engine.flush()
        app.log_panel.refresh_view()
        assert len(app.lines.shown) > before
        assert f"{len(app.lines.shown)} lines" in str(app.log_panel.border_title)


async def test_an_empty_filter_goes_away_on_enter() -> None:
    app = LogApp(story().view)
    async with app.run_test(size=(70, 6)) as pilot:
        app.log_panel.start_filter()
        await pilot.press("enter")
        await pilot.pause()
        assert not app.log_panel.query_one(Input).display


# --- the cursor ---------------------------------------------------------------------------------------


async def test_j_and_k_choose_a_line_and_its_keys_lead_to_block_and_step() -> None:
    app = LogApp(story().view)
    async with app.run_test(size=(70, 5)) as pilot:
        await opened(app, pilot)
        await pilot.press("enter", "b", "s")
        assert app.asked == []
        await pilot.press("k", "enter", "k", "s", "k", "k", "j", "b", "enter")
        assert app.lines.chosen is not None
        assert app.lines.chosen.kind == "RUN"
        assert app.asked == [("block", 39), ("step", 20), ("step", 19)]


async def test_a_line_without_blocks_leads_to_its_step() -> None:
    app = LogApp(story().view)
    async with app.run_test(size=(70, 5)) as pilot:
        await opened(app, pilot)
        await pilot.press("up", "up", "up", "enter")
        assert app.asked == [("step", 19)]


async def test_the_chosen_line_stays_in_sight_and_the_view_still_until_escape() -> None:
    engine = story()
    app = LogApp(engine.view)
    async with app.run_test(size=(70, 5)) as pilot:
        await opened(app, pilot)
        await pilot.press(*["k"] * 9)
        before, chosen = drawn(app.lines), app.lines.chosen
        assert str(chosen).split()[:2] == before[0].split()[:2]
        engine.core.close(3)
        engine.flush()
        app.log_panel.refresh_view()
        await pilot.pause()
        assert (drawn(app.lines), app.lines.chosen) == (before, chosen)
        await pilot.press("escape")
        await pilot.pause()
        assert app.lines.chosen is None
        assert drawn(app.lines)[-1] == "   30 CLOSE   3 code"


async def test_a_click_chooses_a_line_and_a_second_one_opens_it() -> None:
    app = LogApp(story().view)
    async with app.run_test(size=(70, 5)) as pilot:
        await opened(app, pilot)
        await pilot.click(app.lines, offset=(10, 4))
        assert app.lines.chosen is not None
        assert app.lines.chosen.kind == "ALLOC"
        await pilot.click(app.lines, offset=(10, 4), times=2)
        assert app.asked == [("block", 39)]


# --- following ----------------------------------------------------------------------------------------


async def test_new_lines_follow_only_while_the_end_is_in_sight() -> None:
    engine = story()
    app = LogApp(engine.view)
    async with app.run_test(size=(70, 5)) as pilot:
        await opened(app, pilot)
        engine.core.close(3)
        engine.flush()
        app.log_panel.refresh_view()
        await pilot.pause()
        assert drawn(app.lines)[-1] == "   30 CLOSE   3 code"
        await pilot.press("home")
        await pilot.pause()
        top = drawn(app.lines)
        engine.core.close(4)
        engine.flush()
        app.log_panel.refresh_view()
        await pilot.pause()
        assert drawn(app.lines) == top
        await pilot.press("end")
        await pilot.pause()
        assert drawn(app.lines)[-1] == "   30 CLOSE   4 notes"


async def test_the_newest_line_stays_in_sight_when_the_panel_changes_its_size() -> None:
    app = LogApp(story().view)
    async with app.run_test(size=(70, 8)) as pilot:
        await opened(app, pilot)
        for height in (5, 12, 3):
            await pilot.resize_terminal(70, height)
            await pilot.pause()
            assert drawn(app.lines)[-1] == "   26 ALLOC   4 notes +1: 039"


async def test_another_moment_shows_its_own_lines() -> None:
    engine = story()
    app = LogApp(engine.view)
    async with app.run_test(size=(70, 5)) as pilot:
        await opened(app, pilot)
        await pilot.press("k")
        past = pressed().view.live
        assert past is not None
        engine.view.show_past(past)
        app.log_panel.refresh_view()
        await pilot.pause()
        assert app.lines.chosen is None
        assert drawn(app.lines)[-1] == "   15 ALLOC   3 tale» +1: 010"


async def test_another_engine_begins_an_empty_log() -> None:
    engine = story()
    app = LogApp(engine.view)
    async with app.run_test(size=(70, 6)) as pilot:
        await opened(app, pilot)
        engine.view.apply(EngineDied(1, "", restarting=True))
        app.log_panel.refresh_view()
        await pilot.pause()
        assert app.lines.shown == []


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
        assert len(app.lines.shown) == 5000
        assert engine.view.num_lines == 6000
        assert drawn(app.lines)[-1] == "    0 CLOSE   seq 29100"


# --- text is text -------------------------------------------------------------------------------------


async def test_labels_are_text_never_markup_or_escapes() -> None:
    engine = ScriptedEngine(num_blocks=4)
    engine.view.labels = {1: "1 [b]x[/]\x1b[31m\ny"}
    engine.ask(1, 3, max_tokens=1)
    engine.run()
    app = LogApp(engine.view)
    async with app.run_test(size=(70, 6)) as pilot:
        await opened(app, pilot)
        assert drawn(app.lines)[0] == "    1 OPEN    1 [b]x[/] y"


async def test_a_filter_text_is_never_markup_in_the_title() -> None:
    app = LogApp(story().view)
    async with app.run_test(size=(70, 6)) as pilot:
        app.log_panel.start_filter()
        await pilot.press("left_square_bracket", "b", "right_square_bracket")
        await pilot.pause()
        assert app.log_panel._border_title is not None
        assert "“[b]” 0 lines" in app.log_panel._border_title.plain


async def test_a_terminal_without_glyphs_gets_ascii_only() -> None:
    app = LogApp(pressed().view, plain=True)
    async with app.run_test(size=(90, 30)) as pilot:
        await opened(app, pilot)
        title = app.log_panel._border_title
        assert title is not None
        assert "".join([*drawn(app.lines), title.plain]).isascii()


# --- how it looks -------------------------------------------------------------------------------------


def test_every_kind_looks(snap_compare: SnapCompare) -> None:
    view = pressed("swap").view
    for number, kind in enumerate(GROUPS):
        view.lines.append(EventLine(number, kind, f"what a line of this kind looks like: {MEANINGS[kind]}"))
    app = LogApp(view)

    async def choose(pilot: Pilot[None]) -> None:
        app.log_panel.set_filter(EventFilter(frozenset(GROUPS)))
        await opened(app, pilot)
        await pilot.press("k", "k", "k")

    assert snap_compare(app, terminal_size=(90, 24), run_before=choose)


def test_the_menu_of_kinds_looks(snap_compare: SnapCompare) -> None:
    app = LogApp(pressed("swap").view)

    async def choose(pilot: Pilot[None]) -> None:
        app.log_panel.choose_kinds()
        await pilot.pause()
        await pilot.press("down", "space")

    assert snap_compare(app, terminal_size=(90, 26), run_before=choose)


# --- long lines ---------------------------------------------------------------------------------------


async def test_long_lines_end_with_an_ellipsis_or_go_on_below() -> None:
    app = LogApp(story().view)
    async with app.run_test(size=(50, 20)) as pilot:
        await opened(app, pilot)
        rows = drawn(app.lines)
        cut = [row for row in rows if row.endswith("…")]
        assert cut
        room = app.lines.scrollable_content_region.width  # without the scroll bar's column
        assert all(app.lines.build_line(row).cell_length <= room for row in range(app.lines.num_lines))
        app.lines.show_whole(True)
        await pilot.pause()
        everything = [app.lines.build_line(row).text for row in range(app.lines.num_lines)]
        words = " ".join(" ".join(everything).split())
        assert app.lines.num_lines > len(app.lines.shown)
        for line in app.lines.shown:
            assert " ".join(line.text.split()) in words
        app.lines.action_move_line(-1)
        app.lines.action_move_line(-1)
        assert app.lines.chosen is app.lines.shown[-2]


async def test_a_line_cut_in_ascii_ends_with_an_ascii_sign() -> None:
    app = LogApp(story().view, plain=True)
    async with app.run_test(size=(50, 20)) as pilot:
        await opened(app, pilot)
        assert any(row.endswith("~") for row in drawn(app.lines))
        assert all(row.isascii() for row in drawn(app.lines))


async def test_a_line_can_be_drawn_in_another_width_before_it_is_laid_out(monkeypatch: pytest.MonkeyPatch) -> None:
    app = LogApp(story().view)
    async with app.run_test(size=(44, 20)) as pilot:
        await opened(app, pilot)
        app.lines.show_whole(True)
        num_rows = app.lines.num_lines
        monkeypatch.setattr(EventLines, "size", property(lambda _: Size(200, 20)))
        assert all(app.lines.build_line(row).text for row in range(num_rows))
