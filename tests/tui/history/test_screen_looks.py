"""Pictures of the list of past chats."""

import pytest
from textual.app import App

from pagedchat.history.records import FoundChat, FoundChats
from pagedchat.tui.history import chat_list
from pagedchat.tui.history.screen import HistoryScreen

NOW = 1_000_000.0
CHATS = (
    FoundChat(14, 1, "Tell me a⑂a", 4, "Tell me a sea story.", NOW - 30, "pagedchat-toy"),
    FoundChat(12, 2, "Tell me a", 2, "Tell me a sea story.", NOW - 400, "pagedchat-toy", open_in=4711),
    FoundChat(7, 3, "", 6, "海の上で何を見た", NOW - 9_000, "Qwen2.5-0.5B", passage="…the boat left"),
)  # fmt: skip


class Past:
    """Always the same chats, the first of which is open."""

    problem = ""

    def opened(self, chat_id):
        return True if chat_id == 1 else None

    async def find(self, words):
        return FoundChats(CHATS, 40)


class ListApp(App):
    def __init__(self, *, ascii: bool) -> None:
        super().__init__()
        self.ascii = ascii

    def on_mount(self) -> None:
        self.push_screen(HistoryScreen(Past()))


@pytest.mark.parametrize(("size", "ascii"), [((110, 20), False), ((60, 14), True)])
def test_the_list_looks(snap_compare, monkeypatch, size, ascii):
    monkeypatch.setattr(chat_list.time, "time", lambda: NOW)

    async def choose(pilot):
        pilot.app.screen._input.cursor_blink = False
        await pilot.pause(0.1)
        await pilot.press("down")
        await pilot.pause()

    assert snap_compare(ListApp(ascii=ascii), terminal_size=size, run_before=choose)
