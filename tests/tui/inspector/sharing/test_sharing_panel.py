"""The sharing panel as it is drawn, its cursor, and when it looks at the cache again."""

import pytest

from pagedchat.tui.inspector.sharing.sharing_panel import SharingPanel
from pagedchat.tui.messages import BlockOpened
from pagedchat.view.engine_view import EngineView
from tests.scripted_reports import ScriptedEngine, story
from tests.tui.widget_app import WidgetApp, drawn


def told_story() -> ScriptedEngine:
    engine = story()
    engine.view.token_texts = {token: f" w{token % 100}".encode() for token in range(5000)}
    return engine


def panel_of(app: WidgetApp) -> SharingPanel:
    assert isinstance(app.widget, SharingPanel)
    return app.widget


async def test_the_matrix_the_saving_and_the_tree() -> None:
    app = WidgetApp(SharingPanel(told_story().view))
    async with app.run_test(size=(60, 14)) as pilot:
        await pilot.pause()
        panel_of(app).refresh_view()
        lines = drawn(panel_of(app).lines)
    assert lines[:7] == [
        "           1   2   3   4",
        "1 tale     1  24   ·   ·",
        "2 tale»a  24   1   ·   ·",
        "3 code     ·   ·   7   ·",
        "4 notes    ·   ·   ·   7",
        "saves 24 blocks = 13.5 MiB · 64 refs = 64 entries √",
        "prefix cache ░░░░░░░░░░ 0% of 556 tokens found",
    ]
    assert lines[8].startswith('" w0 w1')
    assert lines[8].endswith('…" 24 blk  1 2')


async def test_the_cursor_highlights_a_prefix_and_leaves_it() -> None:
    engine = told_story()
    app = WidgetApp(SharingPanel(engine.view))
    told: list[object] = []
    async with app.run_test(size=(60, 14), message_hook=told.append) as pilot:
        await pilot.pause()
        panel = panel_of(app)
        panel.refresh_view()
        panel.lines.focus()
        await pilot.pause()
        assert engine.view.highlighted == set(range(24))
        await pilot.press("down")
        await pilot.pause()
        assert engine.view.highlighted == set(range(24, 30))
        await pilot.press("enter")
        await pilot.click(panel.lines, offset=(4, 8))
        assert engine.view.highlighted == set(range(24))
        app.set_focus(None)
        await pilot.pause()
        assert engine.view.highlighted == frozenset()
    opened = {message.block_id for message in told if isinstance(message, BlockOpened)}
    assert opened == {24}


async def test_it_looks_again_only_when_blocks_changed_hands(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = told_story()
    app = WidgetApp(SharingPanel(engine.view))
    async with app.run_test(size=(60, 14)) as pilot:
        await pilot.pause()
        panel = panel_of(app)
        panel.refresh_view()
        panel._drawn_at = 0.0
        looks: list[int] = []
        draw = panel._draw
        monkeypatch.setattr(panel, "_draw", lambda mirror: (looks.append(mirror.num_reports), draw(mirror)))
        engine.run()
        assert not engine.reports[-1].events
        panel.refresh_view()
        assert looks == []
        while not engine.reports[-1].events:
            engine.run()
        panel._drawn_at = 0.0
        panel.refresh_view()
        panel.refresh_view()
        assert looks == [len(engine.reports)]


async def test_another_moment_is_drawn_at_once() -> None:
    live, other = told_story(), ScriptedEngine(num_blocks=8)
    app = WidgetApp(SharingPanel(live.view))
    async with app.run_test(size=(60, 14)) as pilot:
        await pilot.pause()
        panel = panel_of(app)
        panel.refresh_view()
        assert other.view.live is not None
        live.view.show_past(other.view.live)
        panel.refresh_view()
        assert drawn(panel.lines)[0] == "saves 0 blocks = 0 B · 0 refs = 0 entries √"
        live.view.show_live()
        panel.refresh_view()
        assert drawn(panel.lines)[1].startswith("1 tale")


async def test_without_an_engine_and_without_chats() -> None:
    app = WidgetApp(SharingPanel(EngineView()))
    async with app.run_test(size=(60, 14)) as pilot:
        panel_of(app).refresh_view()
        panel_of(app).lines.focus()
        await pilot.press("down", "enter")
        assert drawn(panel_of(app).lines)[0] == ""


async def test_ascii_only() -> None:
    app = WidgetApp(SharingPanel(told_story().view))
    app.ascii = True  # type: ignore[attr-defined]
    async with app.run_test(size=(60, 14)) as pilot:
        await pilot.pause()
        panel_of(app).refresh_view()
        lines = drawn(panel_of(app).lines)
    assert all(line.isascii() for line in lines)
    assert lines[2].startswith("2 tale>a")
