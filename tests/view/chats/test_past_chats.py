import time

import pytest
from msgspec.structs import replace
from rich.cells import cell_len

from pagedchat.history.records import FoundChat, FoundChats
from pagedchat.view.chats.past_chats import how_long_ago, how_many, name_of, past_chat_row

CHAT = FoundChat(12, 99, "sea", 4, "Tell me a tale.", 1000.0, "toy")
NOW = 1_700_000_000.0


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0, "just now"), (59, "just now"), (60, "1 min ago"), (3599, "59 min ago"), (3600, "1 h ago"),
        (86_400, "1 day ago"), (6 * 86_400, "6 days ago"), (7 * 86_400, "2023-11-07"), (-5, "2023-11-14"),
    ],
)  # fmt: skip
def test_how_long_ago(seconds, words, monkeypatch):
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    assert how_long_ago(NOW - seconds, NOW) == words


@pytest.mark.parametrize("width", [10, 30, 40, 80, 150])
@pytest.mark.parametrize("title", ["sea", "海の上で" * 9, "\x1b[31mred\u202e\n" * 9, ""])
@pytest.mark.parametrize("open_in", [None, 4_000_000])
def test_a_row_is_as_wide_as_there_is_room_and_commands_no_terminal(width, title, open_in):
    chat = replace(CHAT, title=title, open_in=open_in, passage="a\x1b]0;x\x07b" * 30, model="m" * 60)
    row = past_chat_row(chat, width, open_here=False, now=NOW)
    first = row.number + row.title + row.facts
    assert cell_len(first) <= max(width, 10)
    assert cell_len(row.number) + cell_len(row.passage) <= width
    assert (first + row.passage).isprintable()


def test_a_row_says_where_the_chat_is_open():
    assert "open here" in past_chat_row(CHAT, 100, open_here=True, now=NOW).facts
    found = past_chat_row(replace(CHAT, open_in=17), 100, open_here=False, now=NOW)
    assert "open in process 17" in found.facts
    assert "4 turns" in found.facts


def test_a_chat_without_a_name_is_called_by_its_first_words():
    assert name_of(replace(CHAT, title="")) == "Tell me a tale."
    assert name_of(replace(CHAT, title="", opening="")) == "new chat"


def test_the_list_says_what_it_is_of():
    assert how_many(FoundChats((), 0), "x") == "No chat is kept yet."
    assert how_many(FoundChats((CHAT,), 1), "") == "1 chat kept"
    assert how_many(FoundChats((CHAT,), 9), "sea") == "1 of 9 chats found"
    assert how_many(FoundChats((CHAT,), 9), " ").startswith("9 chats kept; the last 1 are listed")
