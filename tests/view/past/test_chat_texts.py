"""The chats' text at an earlier moment as rows."""

from pagedchat.view.past.chat_texts import PastChat, PastRow, past_rows


def test_every_chat_shows_its_end() -> None:
    chats = [PastChat(1, "1 tale", "one two three four five"), PastChat(4, "4 notes", "short")]
    assert past_rows(chats, 9, 6) == [
        PastRow("1 tale", 1), PastRow("three"), PastRow("four five"),
        PastRow("4 notes", 4), PastRow("short"), PastRow(""),
    ]  # fmt: skip


def test_chats_without_room_are_counted() -> None:
    chats = [PastChat(i, f"{i} chat", "text") for i in range(1, 6)]
    rows = past_rows(chats, 20, 7)
    assert [row.text for row in rows] == ["1 chat", "text", "", "2 chat", "text", "", "and 3 more"]
    assert past_rows(chats, 20, 1) == [PastRow("and 4 more")] or len(past_rows(chats, 20, 1)) == 1
    assert past_rows([], 20, 7) == past_rows(chats, 20, 0) == past_rows(chats, 1, 7) == []


def test_a_text_that_is_cut_does_not_begin_with_an_accent() -> None:
    chat = PastChat(1, "one", "e\u0301" * 40 + "x")
    rows = past_rows([chat], 8, 3)
    assert [row.text[:1] for row in rows[1:]] == ["e", "e"]
