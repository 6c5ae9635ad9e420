"""Pictures of the screen; after a wanted change: `pytest tests/tui --snapshot-update`."""

import pytest

from pagedchat.chat.prompt_history import PromptHistory
from pagedchat.events import EngineFailed, LoadProgress
from pagedchat.tui.app import PagedChatApp, UiOptions
from pagedchat.tui.chat.composer import Composer
from tests.fakes_tui import READY, FakeEngineLink, prefill

STORY = (
    "The boat left before dawn, and nobody on the quay looked up. 海の上で 🌊 it rained; the bells rang for others."
)


@pytest.fixture
def link():
    return FakeEngineLink()


@pytest.fixture
def make_app(link, monkeypatch):
    monkeypatch.setattr(Composer, "cursor_blink", False)

    def make(sessions=2):
        return PagedChatApp(link, UiOptions(sessions=sessions), PromptHistory(), clock=lambda: 100.0)

    return make


async def draw(pilot):
    await pilot.pause(0.05)
    pilot.app.redraw()
    await pilot.pause()


async def stream_two(pilot, link):
    await pilot.pause()
    link.say(READY, prefill(1, 0, 3), prefill(2, 3, 2, step=2))
    await pilot.press(*"tale", "enter", "tab", *"code", "enter")
    first, second = link.generates()
    link.reply(first, STORY, finish=False)
    link.reply(second, "def f():\n\treturn 1\n\nIt returns one.")
    await draw(pilot)


def test_two_panes_stream(snap_compare, make_app, link):
    async def run_before(pilot):
        await stream_two(pilot, link)

    assert snap_compare(make_app(), terminal_size=(120, 40), run_before=run_before)


def test_loading(snap_compare, make_app, link):
    async def run_before(pilot):
        link.say(LoadProgress("weights", "Reading weights", 120 * 1024**2, 240 * 1024**2, "B"))
        await draw(pilot)

    assert snap_compare(make_app(), terminal_size=(120, 40), run_before=run_before)


def test_failed(snap_compare, make_app, link):
    async def run_before(pilot):
        link.say(EngineFailed("There is no model 'x/y' on the hub.", "Check the name, or give a folder."))
        await draw(pilot)

    assert snap_compare(make_app(), terminal_size=(120, 40), run_before=run_before)


def test_help(snap_compare, make_app):
    assert snap_compare(make_app(), terminal_size=(120, 40), press=["f1"])


def test_narrow_with_tabs(snap_compare, make_app, link):
    async def run_before(pilot):
        await stream_two(pilot, link)

    assert snap_compare(make_app(3), terminal_size=(80, 24), run_before=run_before)


def test_too_small(snap_compare, make_app):
    assert snap_compare(make_app(), terminal_size=(20, 5))
