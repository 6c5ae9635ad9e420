"""What tests of the whole program do with it: let events through, write, find panes, read what is drawn."""

import asyncio
import time

from pagedchat.tui.chat.chat_pane import ChatPane
from tests.fakes_tui import READY, FakeEngineLink, prefill

STORY = (
    "The boat left before dawn, and nobody on the quay looked up. 海の上で 🌊 it rained; the bells rang for others."
)
WIDE = (120, 40)


async def settle(pilot):
    """Let events through and have them drawn, without waiting for the timer."""
    await pilot.pause()
    await heard(pilot.app)
    for _ in range(30):
        await asyncio.sleep(0)
    pilot.app.redraw()
    await pilot.pause(1 / 60)  # Textual paints at most this often


async def write(pilot, text):
    pilot.app.focused.insert(text)
    await pilot.pause()


def panes(app):
    return [pane for pane in app.screen.query(ChatPane) if pane.display]


def pane(app, number):
    return next(pane for pane in app.chats.query(ChatPane) if pane.session.session_id == number)


def drawn(widget):
    """What a widget has on the screen, as text."""
    region = widget.region
    lines = [strip.text for strip in widget.app.screen._compositor.render_strips()]
    return "\n".join(
        line[region.x : region.right] for line in lines[region.y : region.bottom]
    )  # the texts of these tests are one cell a character


def toasts(app):
    """Every notice an app has given (`notices_are_kept` of conftest.py), those that left the screen too."""
    return [notice.message for notice in getattr(app._notifications, "given", ())]


async def heard(app):
    """Wait until an app has taken in all that its engines have said."""
    for group in getattr(app, "groups", ()):
        if isinstance(group.link, FakeEngineLink):
            await group.link.heard()


async def until(pilot, holds, patience=20):
    """Wait for something that a thread or a clock brings about, and let it be drawn."""
    deadline = time.monotonic() + patience
    while not holds():
        assert time.monotonic() < deadline, drawn(pilot.app.screen)
        await pilot.pause(0.01)


async def draw(pilot):
    await heard(pilot.app)
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
