"""Pictures of tables, sharing, lit text and the past; new ones: `pytest tests/tui --snapshot-update`."""

from collections.abc import Callable

import pytest
from textual.pilot import Pilot

from pagedchat.tui.chat.composer import Composer
from pagedchat.tui.inspector.sharing.sharing_panel import SharingPanel
from pagedchat.tui.inspector.tables.block_tables import BlockTables
from tests.scripted_reports import ScriptedEngine, story
from tests.tui.chat.test_selection import GridApp, past_of
from tests.tui.widget_app import WidgetApp

SnapCompare = Callable[..., bool]
WORDS = ("The ", "boat ", "left ", "before ", "dawn", ", and ", "nobody ", "on the ", "quay ", "looked up.\n")


def told_story() -> ScriptedEngine:
    engine = story()
    engine.view.token_texts = {token: WORDS[token % len(WORDS)].encode() for token in range(5000)}
    return engine


@pytest.mark.parametrize("text", [False, True])
def test_tables(snap_compare: SnapCompare, text: bool) -> None:
    engine = told_story()
    engine.view.highlighted = frozenset({25, 26, 27})
    app = WidgetApp(BlockTables(engine.view))

    async def run_before(pilot: Pilot[None]) -> None:
        tables = app.widget
        assert isinstance(tables, BlockTables)
        tables.refresh_view()
        if text:
            tables.toggle_token_text()
        tables.lines.focus()
        await pilot.press("down", "down", "right")
        if text:
            await pilot.press("pagedown", "pagedown")
        await pilot.pause()

    assert snap_compare(app, terminal_size=(64, 24), run_before=run_before)


def test_sharing(snap_compare: SnapCompare) -> None:
    engine = told_story()
    engine.ask(5, [1000 + i for i in range(60)], max_tokens=4)
    engine.run(3)
    engine.core.close(3)
    engine.flush()
    engine.view.labels[5] = "5 pasted"
    app = WidgetApp(SharingPanel(engine.view))

    async def run_before(pilot: Pilot[None]) -> None:
        await pilot.pause()
        assert isinstance(app.widget, SharingPanel)
        app.widget.refresh_view()
        app.widget.lines.focus()
        await pilot.press("down")
        await pilot.pause()

    assert snap_compare(app, terminal_size=(64, 16), run_before=run_before)


@pytest.mark.parametrize("past", [False, True])
def test_lit_text_and_the_past(snap_compare: SnapCompare, monkeypatch: pytest.MonkeyPatch, past: bool) -> None:
    monkeypatch.setattr(Composer, "cursor_blink", False)
    app = GridApp()

    async def run_before(pilot: Pilot[None]) -> None:
        await pilot.pause()
        if past:
            app.view.show_past(past_of(app.engine, 3))
        for pane in app.grid.panes:
            pane.light_block(app.table()[1])
        app.grid.refresh_view()
        await pilot.pause()

    assert snap_compare(app, terminal_size=(110, 14), run_before=run_before)
