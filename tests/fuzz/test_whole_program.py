"""The whole program with hostile replies in one of two panes: what it writes leaves the rest alone."""

from random import Random

import pytest
from textual._compositor import CompositorUpdate

from pagedchat.chat.prompt_history import PromptHistory
from pagedchat.events import RequestStarted, TextDelta
from pagedchat.tui.app import PagedChatApp, UiOptions
from pagedchat.tui.chat.chat_pane import ChatPane
from tests.fakes_tui import READY, FakeEngineLink, finished
from tests.tui.whole_app import settle
from tools.fuzz.terminal.emulator import Terminal
from tools.fuzz.terminal.hostile_text import hostile_output

SIZE = 130, 30
REPLIES = [
    ["a\u200db" * 60, "c"],
    ["🏻" * 90, "c"],
    ["\x1b]0;ti", "tle\x07"],
    *map(hostile_output, map(Random, range(9))),
]


class Watched:
    """The program on a terminal, with the engine in the hands of a test."""

    def __init__(self, terminal: Terminal) -> None:
        self.terminal = terminal
        self.link = FakeEngineLink()
        self.app = PagedChatApp(self.link, UiOptions(sessions=2), PromptHistory())
        self.app._display = self._written  # type: ignore[method-assign]  # a program without a screen writes nothing

    def _written(self, _screen: object, renderable: object) -> None:
        if isinstance(renderable, CompositorUpdate):
            self.terminal.show(renderable.render_segments(self.app.console).encode())

    def beside_the_pane(self) -> list[tuple[str, str]]:
        """Row by row what the terminal shows to the right of the first pane and below it, and what is meant."""
        region = self.app.screen.query(ChatPane).first().region
        assert region.right < SIZE[0]
        rows = []
        for y, strip in enumerate(self.app.screen._compositor.render_strips()):
            start = region.right if y < region.bottom else 0
            shown = "".join(self.terminal.buffer[y][x].data for x in range(start, SIZE[0]))
            rows.append((shown, strip.crop(start, SIZE[0]).text))
        return rows


@pytest.mark.parametrize("clusters", [False, True], ids=["by-code-point", "by-cluster"])
async def test_replies_stay_in_their_pane(clusters: bool) -> None:
    watched = Watched(Terminal(*SIZE, pane=(0, 0, *SIZE)))
    watched.terminal.clusters = clusters
    async with watched.app.run_test(size=SIZE) as pilot:
        watched.link.say(READY)
        for pieces in REPLIES:
            watched.app.desk.submit(watched.app.desk.chats[0], "Once")
            asked = watched.link.generates()[-1]
            ids = asked.session_id, asked.request_id
            watched.link.say(RequestStarted(*ids, 10, 0))
            for piece in pieces:
                watched.link.say(TextDelta(*ids, piece, 1))
                await settle(pilot)
            assert [shown for shown, meant in watched.beside_the_pane() if shown != meant] == []
            watched.link.say(finished(asked))
    assert watched.terminal.answers == []
    assert watched.terminal.title == ""
