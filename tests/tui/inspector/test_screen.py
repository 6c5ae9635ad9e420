"""The whole inspector: four panels, keys that become messages, block details, and how it looks."""

from collections.abc import Callable

import pytest
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Static

from pagedchat.events import EngineFailed, LoadProgress, RunState
from pagedchat.tui.inspector.panel import InspectorPanel
from pagedchat.tui.inspector.screen import InspectorScreen
from pagedchat.tui.messages import PauseToggled, StepRequested
from pagedchat.view.blocks.kinds import COLOR_MODES
from pagedchat.view.engine_view import EngineView
from pagedchat.view.sentences.engine_words import waiting_words
from tests.scripted_reports import ScriptedEngine, pressed, story

SnapCompare = Callable[..., bool]


class InspectorApp(App[None]):
    """Keeps the messages that the inspector posts."""

    def __init__(self, view: EngineView) -> None:
        super().__init__()
        self.view = view
        self.animation_level = "none"
        self.asked: list[object] = []

    def on_mount(self) -> None:
        self.push_screen(InspectorScreen(self.view))

    def on_pause_toggled(self, message: PauseToggled) -> None:
        self.asked.append("pause")

    def on_step_requested(self, message: StepRequested) -> None:
        self.asked.append("step")

    @property
    def panel(self) -> InspectorPanel:
        assert isinstance(self.screen, InspectorScreen)
        return self.screen.panel


async def refresh(app: InspectorApp, pilot: Pilot[None]) -> None:
    assert isinstance(app.screen, InspectorScreen)
    app.screen.refresh_view()
    await pilot.pause()


# --- keys ---------------------------------------------------------------------------------------------


async def test_space_asks_for_a_pause_and_then_to_run_on() -> None:
    app = InspectorApp(story().view)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("space")
        app.view.apply(RunState(paused=True))
        await pilot.press("space", "full_stop")
        assert app.asked == ["pause", "pause", "step"]


async def test_letters_work_from_every_panel() -> None:
    app = InspectorApp(story().view)
    async with app.run_test(size=(120, 40)) as pilot:
        await refresh(app, pilot)
        for part in (app.panel.block_tables.lines, app.panel.timeline.lines, app.panel.event_log.lines):
            part.focus()
            await pilot.pause()
            await pilot.press("c", "e")
        assert app.panel.block_map.grid.mode == COLOR_MODES[3]
        assert app.panel.event_log.lines.filter.name == "sequences"


async def test_plus_and_minus_zoom_the_map() -> None:
    app = InspectorApp(story().view)
    async with app.run_test(size=(120, 40)) as pilot:
        await refresh(app, pilot)
        styles = []
        for key in ("plus", "minus", "minus"):
            await pilot.press(key)
            picture = app.panel.block_map.grid.picture
            assert picture is not None
            styles.append(picture.layout.style)
        assert styles == ["tile", "pair", "cell"]


async def test_letters_go_into_the_filter_while_it_is_typed() -> None:
    app = InspectorApp(story().view)
    async with app.run_test(size=(120, 40)) as pilot:
        await refresh(app, pilot)
        await pilot.press("slash", "c", "o", "w", "space", "l")
        assert app.panel.event_log.lines.filter.text == "cow l"
        assert app.panel.block_map.grid.mode == "owner"
        assert app.asked == []


async def test_escape_and_q_leave() -> None:
    for key in ("escape", "q"):
        app = InspectorApp(story().view)
        async with app.run_test(size=(120, 40)) as pilot:
            await pilot.press(key)
            await pilot.pause()
            assert not isinstance(app.screen, InspectorScreen)


# --- with and without an engine -----------------------------------------------------------------------


def test_what_stands_there_without_an_engine() -> None:
    view = EngineView()
    assert waiting_words(view) == "The engine is starting."
    view.apply(LoadProgress("import", "importing torch"))
    assert waiting_words(view) == "The engine is loading.\nimporting torch"
    view.apply(LoadProgress("download", "model.safetensors", 512 * 1024**2, 1024**3, "B"))
    assert waiting_words(view) == "The engine is loading.\nmodel.safetensors · 512 MiB of 1 GiB"
    view.apply(LoadProgress("weights", "reading weights", 3, 12, "tensors"))
    assert waiting_words(view) == "The engine is loading.\nreading weights · 3 of 12 tensors"
    view.apply(EngineFailed("There is no model here.", "Check the path."))
    assert waiting_words(view) == "There is no model here.\nCheck the path."


async def test_the_panels_appear_when_the_engine_is_ready() -> None:
    view = EngineView()
    app = InspectorApp(view)
    async with app.run_test(size=(120, 40)) as pilot:
        await refresh(app, pilot)
        assert app.panel.query_one("#inspector-waiting", Static).display
        assert not app.panel.query_one("#inspector-panels").display
        engine = ScriptedEngine(view, num_blocks=8)
        await refresh(app, pilot)
        assert app.panel.query_one("#inspector-panels").display
        assert not app.panel.query_one("#inspector-waiting").display
        engine.ask(1, 3)
        engine.run(2)
        await refresh(app, pilot)
        assert str(app.panel.timeline.border_title).endswith("live at 2")


async def test_a_refresh_while_the_inspector_is_being_opened_does_no_harm() -> None:
    app = InspectorApp(story().view)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("escape")
        screen = InspectorScreen(app.view)
        screen.refresh_view()
        app.push_screen(screen)
        screen.refresh_view()
        await pilot.pause()
        assert len(screen.panel.event_log.lines.shown) > 20
        assert screen.panel.block_map.grid.picture is not None


@pytest.mark.parametrize("size", [(20, 5), (60, 12), (80, 24), (240, 67)])
async def test_any_terminal_shows_something(size: tuple[int, int]) -> None:
    engine = pressed()
    app = InspectorApp(engine.view)
    async with app.run_test(size=size) as pilot:
        await refresh(app, pilot)
        engine.run()
        await refresh(app, pilot)
        assert app.panel.block_map.display


async def test_a_narrow_panel_stacks_and_a_short_one_drops_the_lower_half() -> None:
    app = InspectorApp(story().view)
    async with app.run_test(size=(60, 40)) as pilot:
        await refresh(app, pilot)
        assert app.panel.event_log.region.y > app.panel.block_tables.region.y
        await pilot.resize_terminal(60, 20)
        await pilot.pause()
        assert not app.panel.event_log.display
        await pilot.resize_terminal(120, 20)
        await pilot.pause()
        assert app.panel.event_log.region.y == app.panel.timeline.region.y


# --- how it looks -------------------------------------------------------------------------------------


async def _settle(pilot: Pilot[None]) -> None:
    app = pilot.app
    assert isinstance(app, InspectorApp)
    await pilot.pause()
    await refresh(app, pilot)


def test_fork_and_copy_look(snap_compare: SnapCompare) -> None:
    assert snap_compare(InspectorApp(story().view), terminal_size=(120, 40), run_before=_settle)


def test_pressure_looks(snap_compare: SnapCompare) -> None:
    engine = pressed("swap")
    engine.run(2)
    engine.view.apply(RunState(paused=True))
    assert snap_compare(InspectorApp(engine.view), terminal_size=(120, 40), run_before=_settle)


def test_a_large_pool_in_a_small_terminal_looks(snap_compare: SnapCompare) -> None:
    assert snap_compare(InspectorApp(story(8000).view), terminal_size=(80, 24), run_before=_settle)
