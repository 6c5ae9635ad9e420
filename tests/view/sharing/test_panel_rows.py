"""What the sharing panel says."""

from pagedchat.view.sharing.panel_rows import ASCII, UNICODE, Chats, advice_rows, saving_rows
from pagedchat.view.sharing.savings import Saving, Twins


def words(rows: object) -> list[str]:
    return ["".join(text for text, _ in row) for row in rows]  # type: ignore[attr-defined]


def test_advice_and_miscounts_are_said_in_words() -> None:
    chats = Chats({1: "1 tale", 2: "2 code"}, lambda seq_id: seq_id)
    assert words(advice_rows(Twins((1, 2), 31), chats)) == [
        "fork instead of paste saves 31 blocks: chats 1 2 hold equal beginnings apart"
    ]
    assert words(advice_rows(None, chats)) == []
    wrong = Saving(entries=10, used=7, refs=11, hits=50, queries=200)
    assert words(saving_rows(wrong, 1024, 60, UNICODE)) == [
        "saves 3 blocks = 3 KiB · 11 refs but 10 entries ‼",
        "prefix cache ██▌░░░░░░░ 25% of 200 tokens found",
    ]
    assert words(saving_rows(wrong, 1024, 34, UNICODE)) == [
        "saves 3 blocks = 3 KiB",
        "11 refs but 10 entries ‼",
        "prefix cache ██▌░░░░░░░ 25% of 200",
    ]
    assert all(text.isascii() for text in words(saving_rows(wrong, 1024, 60, ASCII)))
