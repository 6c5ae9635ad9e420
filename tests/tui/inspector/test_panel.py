"""The panel as a whole: places, one panel alone, what its keys ask for, where lines and columns lead."""

from collections.abc import Callable
from functools import partial

import pytest
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Input

from pagedchat.events import RunState
from pagedchat.tui.inspector.goto import Destination, GotoScreen, read_destination
from pagedchat.tui.inspector.panel import InspectorPanel
from pagedchat.tui.inspector.panels import panel_text
from pagedchat.tui.inspector.pool.block_detail import BlockDetail
from pagedchat.tui.inspector.screen import InspectorScreen
from pagedchat.tui.inspector.timeline.step_detail import StepDetail
from pagedchat.tui.messages import PaceRequested, PauseToggled, StepChosen, StepRequested
from pagedchat.view.engine_view import EngineView
from tests.scripted_reports import ScriptedEngine, pressed, story

SnapCompare = Callable[..., bool]


class PanelApp(App[None]):
    """Keeps what the panel asks for."""

    def __init__(self, view: EngineView) -> None:
        super().__init__()
        self.view = view
        self.ascii = False
        self.animation_level = "none"
        self.asked: list[object] = []

    def on_mount(self) -> None:
        self.push_screen(InspectorScreen(self.view))

    def on_pause_toggled(self, message: PauseToggled) -> None:
        self.asked.append("pause")

    def on_step_requested(self, message: StepRequested) -> None:
        self.asked.append("step")

    def on_pace_requested(self, message: PaceRequested) -> None:
        self.asked.append(("pace", message.seconds))
        self.view.apply(RunState(paused=False, pace=message.seconds))

    def on_step_chosen(self, message: StepChosen) -> None:
        self.asked.append(("go", message.step))

    @property
    def panel(self) -> InspectorPanel:
        assert isinstance(self.screen, InspectorScreen)
        return self.screen.panel

    def seen(self) -> list[str]:
        """The panels on the screen."""
        return [type(part).__name__ for part in self.panel.panels.every if part.display]


async def ready(app: PanelApp, pilot: Pilot[None]) -> None:
    await pilot.pause()
    app.panel.refresh_view()
    await pilot.pause()


async def press(pilot: Pilot[None], *keys: str) -> None:
    for key in keys:
        await pilot.press(key)
        await pilot.pause()


# --- places -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "names"),
    [
        ((120, 40), ["BlockMap", "BlockTables", "BatchTimeline", "EventLog"]),
        ((60, 40), ["BlockMap", "BlockTables", "BatchTimeline", "EventLog"]),
        ((60, 20), ["BlockMap", "BlockTables"]),
    ],
)
async def test_panels_that_there_is_room_for(size: tuple[int, int], names: list[str]) -> None:
    app = PanelApp(story().view)
    async with app.run_test(size=size) as pilot:
        await ready(app, pilot)
        assert app.seen() == names
        lefts = {part.region.x for part in app.panel.panels.every if part.display}
        assert len(lefts) == (2 if size[0] > 100 else 1)
        assert app.panel.scrub_bar.region.bottom == app.panel.region.bottom


async def test_sharing_and_tables_take_turns() -> None:
    app = PanelApp(story().view)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(app, pilot)
        await press(pilot, "s")
        assert app.seen() == ["BlockMap", "SharingPanel", "BatchTimeline", "EventLog"]
        await press(pilot, "s")
        assert app.seen() == ["BlockMap", "BlockTables", "BatchTimeline", "EventLog"]


async def test_one_panel_has_all_the_room_until_escape() -> None:
    app = PanelApp(story().view)
    async with app.run_test(size=(60, 20)) as pilot:
        await ready(app, pilot)
        await press(pilot, "f")
        assert app.seen() == ["BlockMap"]
        await press(pilot, "3")
        assert app.seen() == ["BatchTimeline"]
        assert app.panel.timeline.size.height > 10
        assert app.panel.timeline.lines.has_focus
        await press(pilot, "escape")
        assert app.seen() == ["BlockMap", "BlockTables"]
        assert isinstance(app.screen, InspectorScreen)
        await press(pilot, "escape")
        assert not isinstance(app.screen, InspectorScreen)


async def test_numbers_give_the_keys_to_a_panel() -> None:
    app = PanelApp(story().view)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(app, pilot)
        panels = app.panel.panels
        for key, part in (("2", panels.block_tables), ("3", panels.timeline), ("4", panels.event_log)):
            await press(pilot, key)
            assert panels.focused_panel() is part
        await press(pilot, "s", "2")
        assert panels.focused_panel() in (panels.sharing, panels.event_log)
        await press(pilot, "1")
        assert panels.focused_panel() is panels.block_map


async def test_a_hidden_panel_is_not_drawn_and_is_up_to_date_when_it_appears(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = story()
    app = PanelApp(engine.view)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(app, pilot)
        await press(pilot, "f")
        drawn: list[str] = []
        for part in app.panel.panels.every:
            monkeypatch.setattr(part, "refresh_view", partial(drawn.append, type(part).__name__))
        engine.run(3)
        app.panel.refresh_view()
        assert drawn == ["BlockMap"]
        monkeypatch.undo()
        await press(pilot, "f")
        assert str(app.panel.timeline.border_title).endswith("live at 33")


async def test_a_terminal_without_glyphs_gets_plain_frames() -> None:
    app = PanelApp(story().view)
    app.ascii = True
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(app, pilot)
        for part in app.panel.panels.places:
            assert {edge for edge, _ in part.styles.border} == {"ascii"}


async def test_a_refresh_before_mounting_and_after_leaving_does_no_harm() -> None:
    app = PanelApp(story().view)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(app, pilot)
        panel = app.panel
        await press(pilot, "q")
        panel.refresh_view()
        unmounted = InspectorPanel(app.view)
        unmounted.refresh_view()
        assert not unmounted.is_mounted


# --- keys ---------------------------------------------------------------------------------------------


async def test_slow_motion_goes_round() -> None:
    app = PanelApp(story().view)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(app, pilot)
        await press(pilot, "w", "w", "w")
        assert app.asked == [("pace", 0.5), ("pace", 0.1), ("pace", 0.0)]


async def test_in_the_past_space_and_dollar_come_back() -> None:
    engine = story()
    app = PanelApp(engine.view)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(app, pilot)
        await press(pilot, "space")
        past = pressed().view.live
        assert past is not None
        engine.view.show_past(past)
        await press(pilot, "space", "dollar_sign")
        assert app.asked == ["pause", ("go", None), ("go", None)]


async def test_go_to_a_block_or_a_step() -> None:
    app = PanelApp(story().view)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(app, pilot)
        await press(pilot, "g", *"256", "enter")
        assert isinstance(app.screen, GotoScreen)
        await press(pilot, "backspace", "backspace", "backspace", *"41", "enter")
        assert app.panel.block_map.grid.cursor == 41
        await press(pilot, "g", "at", *"12", "enter")
        assert app.asked == [("go", 12)]
        await press(pilot, "g", "escape")
        assert isinstance(app.screen, InspectorScreen)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        (" 41 ", Destination(block_id=41)),
        ("@8100", Destination(step=8100)),
        ("256", "There is no block 256: the pool has 0 to 255."),
        ("-1", "“-1” is not a number. Type a block, or @ and a step: 41 or @8100."),
        ("@", "“@” is not a number. Type a block, or @ and a step: 41 or @8100."),
        ("٣", "“٣” is not a number. Type a block, or @ and a step: 41 or @8100."),
    ],
)
def test_what_can_be_gone_to(typed: str, meant: Destination | str) -> None:
    assert read_destination(typed, 256) == meant


async def test_what_a_panel_shows_is_copied_as_plain_text() -> None:
    app = PanelApp(story().view)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(app, pilot)
        await press(pilot, "4", "y")
        assert "COW     1 tale wrote 031 (ref 2) → 032, 1 slot" in app.clipboard
        assert app.clipboard == panel_text(app.panel.event_log)
        await press(pilot, "3", "y")
        assert app.clipboard.startswith("1 tale   PPp••••")


async def test_the_keys_go_into_the_filter_while_it_is_typed() -> None:
    app = PanelApp(story().view)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(app, pilot)
        await press(pilot, "slash", *"f1w")
        assert app.panel.query_one(Input).value == "f1w"
        assert (app.asked, app.panel.panels.alone) == ([], None)


# --- where things lead --------------------------------------------------------------------------------


async def test_a_column_leads_to_its_step_and_into_the_past() -> None:
    app = PanelApp(story().view)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(app, pilot)
        await press(pilot, "3", "left", "left", "g", "enter")
        assert isinstance(app.screen, StepDetail)
        assert app.screen.step == 29
        await press(pilot, "comma", "g")
        assert app.asked == [("go", 29), ("go", 28)]


async def test_an_event_leads_to_its_block_and_marks_it_everywhere() -> None:
    app = PanelApp(story().view)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(app, pilot)
        await press(pilot, "4", "slash", *"cow", "enter", "k")
        assert app.view.highlighted == {31, 32}
        await press(pilot, "enter")
        assert isinstance(app.screen, BlockDetail)
        assert app.screen.block_id == 32
        await press(pilot, "escape", "s")
        assert isinstance(app.screen, StepDetail)
        assert app.screen.step == 19
        await press(pilot, "escape", "end")
        assert app.view.highlighted == frozenset()


# --- how it looks -------------------------------------------------------------------------------------


def busy() -> ScriptedEngine:
    engine = pressed("swap")
    engine.view.token_texts.update({7: b" sea", **{1000 + i: f" w{i}".encode() for i in range(9)}})
    return engine


def looks(snap_compare: SnapCompare, engine: ScriptedEngine, size: tuple[int, int], *keys: str) -> bool:
    app = PanelApp(engine.view)

    async def settle(pilot: Pilot[None]) -> None:
        await ready(app, pilot)
        await press(pilot, *keys)

    return snap_compare(app, terminal_size=size, run_before=settle)


def test_two_columns_look(snap_compare: SnapCompare) -> None:
    assert looks(snap_compare, busy(), (120, 40), "3", "left", "left", "left")


def test_one_column_looks(snap_compare: SnapCompare) -> None:
    assert looks(snap_compare, busy(), (60, 44))


def test_one_panel_alone_looks(snap_compare: SnapCompare) -> None:
    assert looks(snap_compare, busy(), (100, 24), "4", "f", "k")


def test_the_past_looks(snap_compare: SnapCompare) -> None:
    engine = story()
    past = busy().view.live
    assert past is not None
    engine.view.show_past(past)
    assert looks(snap_compare, engine, (120, 40))
