"""One block looked at closely: the keys, what it follows, and how it looks."""

import json
from collections.abc import Callable

from textual.app import App
from textual.pilot import Pilot
from textual.widgets import Input, Static

from pagedchat.cache_events import BlockPinned
from pagedchat.events import EngineDied
from pagedchat.tui.inspector.pool.block_detail import BlockDetail
from pagedchat.view.engine_view import EngineView
from tests.scripted_reports import ScriptedEngine, story
from tests.view.blocks.test_page import tell, told_story

SnapCompare = Callable[..., bool]


class DetailApp(App[None]):
    """Keeps what the screen asks for."""

    ascii = False

    def __init__(self, view: EngineView, block_id: int) -> None:
        super().__init__()
        self.animation_level = "none"
        self.detail = BlockDetail(view, block_id)
        self.asked: list[tuple[str, int, bool]] = []

    def on_mount(self) -> None:
        self.push_screen(self.detail)

    def on_block_detail_pin_toggled(self, message: BlockDetail.PinToggled) -> None:
        self.asked.append(("pin", message.block_id, message.pinned))

    def on_block_detail_evict_requested(self, message: BlockDetail.EvictRequested) -> None:
        self.asked.append(("evict", message.block_id, False))

    @property
    def text(self) -> str:
        return str(self.detail.query_one(Static).content)


async def test_keys_walk_by_id_along_the_chat_and_among_the_owners_blocks() -> None:
    app = DetailApp(story().view, 22)
    async with app.run_test(size=(120, 40)) as pilot:
        seen = []
        for key in ("l", "right", "h", "j", "k", "s", "s", "left", "left"):
            await pilot.press(key)
            seen.append(app.detail.block_id)
        assert seen == [23, 24, 23, 32, 23, 0, 1, 0, 0]
        assert app.text.startswith("state    in use · ref 2")


async def test_g_asks_for_a_number_and_refuses_one_beyond_the_pool() -> None:
    app = DetailApp(story().view, 22)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("g", *"256", "enter")
        assert "There is no block 256: the pool has 0 to 255." in [
            str(static.content) for static in app.screen.query(Static)
        ]
        app.screen.query_one(Input).value = "41"
        await pilot.press("enter")
        await pilot.pause()
        assert app.screen is app.detail
        assert app.detail.block_id == 41
        assert app.text.startswith("state    free")


async def test_b_and_x_ask_for_pins_and_evictions_in_the_present_only() -> None:
    engine = story()
    app = DetailApp(engine.view, 0)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("b", "x")
        tell(engine, BlockPinned(0))
        await pilot.press("b")
        asked = [("pin", 0, True), ("evict", 0, False), ("pin", 0, False)]
        assert app.asked == asked
        assert engine.view.live is not None
        engine.view.show_past(engine.view.live)
        await pilot.press("b", "x")
        assert app.asked == asked


async def test_y_copies_json() -> None:
    app = DetailApp(story().view, 32)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("y")
        assert json.loads(app.clipboard)["block_id"] == 32


async def test_the_page_follows_the_engine_and_the_past_and_closes_with_it() -> None:
    engine, past = story(), ScriptedEngine(num_blocks=256)
    app = DetailApp(engine.view, 33)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert "ref 1" in app.text
        engine.core.close(4)
        engine.flush()
        app.detail._show()
        assert "cached · ref 0 (was 1)" in app.text
        assert past.view.live is not None
        engine.view.show_past(past.view.live)
        app.detail._show()
        assert app.text.startswith("state    free · ref 0")
        engine.view.apply(EngineDied(1, "", restarting=True))
        app.detail._show()
        await pilot.pause()
        assert app.screen is not app.detail


async def test_an_engine_that_dies_while_a_number_is_asked_for_closes_nothing_else() -> None:
    engine = story()
    app = DetailApp(engine.view, 33)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("g")
        asking = app.screen
        engine.view.apply(EngineDied(1, "", restarting=True))
        app.detail._show()
        app.detail._show()
        assert app.screen is asking
        await pilot.press("escape")
        app.detail._show()
        app.detail._show()
        await pilot.pause()
        assert app.screen is app.screen_stack[0]


async def test_markup_in_names_and_tokens_is_text() -> None:
    engine = story()
    engine.view.labels = {1: "1 [red]x[/red]", 2: "2 [/]"}
    engine.view.token_texts = {7: b"[bold]"}
    app = DetailApp(engine.view, 32)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert "1 [red]x[/red] · logical 24" in app.text
        assert '0 "[bold]"' in app.text


def test_a_block_looks(snap_compare: SnapCompare) -> None:
    assert snap_compare(DetailApp(told_story().view, 23), terminal_size=(120, 30), run_before=_settle)


def test_a_block_in_ascii_and_a_small_terminal_looks(snap_compare: SnapCompare) -> None:
    app = DetailApp(told_story().view, 32)
    app.ascii = True
    assert snap_compare(app, terminal_size=(60, 16), run_before=_settle)


async def _settle(pilot: Pilot[None]) -> None:
    await pilot.pause()
    await pilot.pause()
