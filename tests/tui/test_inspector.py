"""The whole inspector: four panels, keys that become messages, block details, and how it looks."""

from collections.abc import Callable

import pytest
from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Static

from pagedchat.events import EngineFailed, LoadProgress, RunState
from pagedchat.tui.block_history import block_history
from pagedchat.tui.engine_view import EngineView
from pagedchat.tui.screens.block_detail import BlockDetail, detail_lines
from pagedchat.tui.screens.inspector import InspectorScreen
from pagedchat.tui.widgets.engine_words import waiting_words
from pagedchat.tui.widgets.inspector_panel import InspectorPanel
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

    def on_inspector_panel_pause_toggled(self, message: InspectorPanel.PauseToggled) -> None:
        self.asked.append(message.paused)

    def on_inspector_panel_step_requested(self, message: InspectorPanel.StepRequested) -> None:
        self.asked.append(message.count)

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
        assert app.asked == [True, False, 1]


async def test_letters_work_from_every_panel() -> None:
    app = InspectorApp(story().view)
    async with app.run_test(size=(120, 40)) as pilot:
        await refresh(app, pilot)
        for part in (app.panel.block_tables.lines, app.panel.timeline.lines, app.panel.event_log.lines):
            part.focus()
            await pilot.pause()
            await pilot.press("c", "e", "l", "j")
        assert app.panel.block_map.grid.mode == "owner"
        assert app.panel.event_log.lines.kinds == "sequences"
        assert app.panel.block_map.grid.cursor == 3 * (1 + 24)


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
        assert app.panel.event_log.lines.text == "cow l"
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
        assert len(screen.panel.event_log.lines.shown) == 21
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


# --- one block ----------------------------------------------------------------------------------------


async def test_enter_opens_the_block_under_the_cursor_and_its_neighbours() -> None:
    app = InspectorApp(story().view)
    async with app.run_test(size=(120, 40)) as pilot:
        await refresh(app, pilot)
        await pilot.press("l", "enter")
        await pilot.pause()
        detail = app.screen
        assert isinstance(detail, BlockDetail)
        assert detail.block_id == 1
        await pilot.press("right", "right", "left")
        assert detail.block_id == 2
        await pilot.press("escape")
        await pilot.pause()
        assert isinstance(app.screen, InspectorScreen)


def test_the_detail_tells_owners_slots_and_history() -> None:
    view = story().view
    assert view.mirror is not None
    assert detail_lines(view, view.mirror, 32) == [
        "state    in use · ref count 1",
        "fill     13 of 16 slots · 576 KiB",
        "hash     none until it is full and findable",
        "owners   1 tale · entry 24 · tokens 384 to 399",
        "tokens   7 7 7 7 7 7 7 7",
        "         7 7 7 7 7 · · ·",
        "history      19  copy of 031 for 1 tale",
    ]


def test_the_detail_of_a_block_nobody_has() -> None:
    view = story().view
    assert view.mirror is not None
    assert detail_lines(view, view.mirror, 200)[-3:] == [
        "owners   nobody",
        "tokens   known to its owners only, and it has none",
        "history  nothing yet",
    ]


def history(engine: ScriptedEngine, block_id: int, limit: int = 20) -> list[tuple[int, str]]:
    view = engine.view
    assert view.mirror is not None
    return [tuple(m) for m in block_history(block_id, view.mirror, reversed(view.history), view.name, limit)]


def test_the_history_of_a_block_knows_forks_that_do_not_name_it() -> None:
    engine = story()
    engine.core.close(1)
    engine.core.close(2)
    engine.flush()
    assert history(engine, 0) == [
        (30, "−ref 2 tale⑂a (dropped)"),
        (30, "−ref 1 tale (dropped)"),
        (19, "+ref 2 tale⑂a (fork of 1 tale)"),
        (1, "full: findable by its hash"),
        (1, "allocated to 1 tale"),
    ]
    assert history(engine, 31, limit=2) == [(30, "−ref 2 tale⑂a (dropped)"), (19, "−ref 1 tale (copied → 032)")]


def test_the_history_of_a_block_through_swap_and_eviction() -> None:
    engine = pressed("swap")
    assert history(engine, 7) == [
        (15, "+ref 3 tale⑂ (swapped in)"),
        (9, "full: findable by its hash"),
        (9, "copy of 005 for 1 tale"),
    ]
    assert history(engine, 5) == [
        (14, "allocated to 1 tale"),
        (14, "−ref 3 tale⑂ (swapped out)"),
        (9, "−ref 1 tale (copied → 007)"),
        (9, "+ref 3 tale⑂ (fork of 1 tale)"),
        (6, "allocated to 1 tale"),
    ]


def test_the_history_of_a_block_through_the_prefix_cache() -> None:
    engine = ScriptedEngine(num_blocks=3, block_size=4)
    engine.ask(1, list(range(9)), max_tokens=1)
    engine.run()
    engine.core.close(1)
    engine.ask(2, list(range(9)), max_tokens=1)
    engine.run()
    engine.core.close(2)
    engine.ask(3, 11, max_tokens=1)
    engine.run()
    assert history(engine, 1) == [
        (3, "full: findable by its hash"),
        (3, "allocated to seq 3"),
        (3, "evicted from the prefix cache"),
        (3, "−ref seq 2 (dropped)"),
        (2, "+ref seq 2 (prefix hit)"),
        (2, "−ref seq 1 (dropped)"),
        (1, "full: findable by its hash"),
        (1, "allocated to seq 1"),
    ]


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


def test_a_block_looks(snap_compare: SnapCompare) -> None:
    async def open_block(pilot: Pilot[None]) -> None:
        await _settle(pilot)
        await pilot.press("j", "l", "enter")
        await pilot.pause()

    assert snap_compare(InspectorApp(story().view), terminal_size=(120, 40), run_before=open_block)
