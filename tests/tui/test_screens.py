"""From the chats to the inspector, to help and back; in a terminal that is too small; pause and step."""

import pytest
from textual.widgets import TextArea

from pagedchat.events import RunState
from pagedchat.service.commands import Pause, Resume, StepOnce
from pagedchat.tui.help import HelpScreen
from pagedchat.tui.kit.front_screens import TooSmallScreen
from tests.fakes_tui import READY, prefill
from tests.tui.whole_app import WIDE, drawn, pane, settle


@pytest.mark.parametrize("size", [(20, 5), (5, 2), (39, 40), (120, 9)])
async def test_tiny_terminal_says_so_and_recovers(make_app, size):
    app = make_app()
    async with app.run_test(size=size) as pilot:
        await pilot.pause()
        assert isinstance(app.screen, TooSmallScreen)
        await pilot.resize_terminal(80, 24)
        await pilot.pause()
        assert app.screen is app.chats
        await pilot.press("a")
        assert pane(app, 1).composer.text == "a"


def test_too_small(snap_compare, make_still_app):
    assert snap_compare(make_still_app(), terminal_size=(20, 5))


async def test_pause_and_step(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await settle(pilot)
        await pilot.press("f4")
        assert link.sent[-1] == Pause()
        link.say(RunState(True))
        await settle(pilot)
        assert "║ paused" in drawn(app.chats._header)
        await pilot.press("f5", "f4")
        assert link.sent[-2:] == [StepOnce(1), Resume()]


async def test_help_opens_and_closes(make_app):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("f1")
        assert isinstance(app.screen, HelpScreen)
        await pilot.press("escape")
        assert app.screen is app.chats


async def test_inspector_beside_the_chats_or_in_front_of_them(make_app, link):
    app = make_app()
    async with app.run_test(size=(160, 40)) as pilot:
        link.say(READY, prefill(1, 0, 3))
        await settle(pilot)
        await pilot.press("f3")
        await settle(pilot)
        assert app.screen is app.chats
        assert len(app.screen.query("InspectorPanel")) == 1
        await pilot.press("tab", "tab")
        assert not isinstance(app.focused, TextArea)
        await pilot.press("f4", "alt+full_stop")
        await settle(pilot)
        assert Pause() in link.sent
        await pilot.resize_terminal(*WIDE)
        await settle(pilot)
        assert len(app.screen.query("InspectorPanel")) == 0
        await pilot.press("f3")
        await settle(pilot)
        assert app.screen is not app.chats
        await pilot.press("f2")
        assert app.screen is app.chats
