"""A chat's rows kept from look to look are those of a chat looked at for the first time."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagedchat.chat.session import ChatSession, ForkOrigin
from pagedchat.view.chats import chat_rows
from pagedchat.view.chats.chat_rows import ChatRows
from pagedchat.view.chats.chat_tokens import Passage
from pagedchat.view.chats.reading import Reading
from pagedchat.view.chats.row_spans import passages, spans_by_row
from pagedchat.view.chats.transcript_rows import PENDING

MARKDOWN = Reading(markdown=True)
PIECES = ["# a\n", "text **b** ", "\n\n", "- c\n", "```\nd\n", "```\n", "<think>\n", "</think>\n", "| e |\n|---|\n"]
STEPS = st.lists(
    st.sampled_from(["ask", "stop", "finish", "regenerate", "marker", "width", "reading", "thought", "past"])
    | st.lists(st.sampled_from(PIECES), min_size=1).map("".join),
    max_size=25,
)


def texts(rows):
    return [row.text for row in rows]


def take(session, step, number):
    """One thing that happens to a chat."""
    if step == "ask" and not session.busy:
        session.ask(f"prompt {number}", number)
        session.start()
    elif step == "stop":
        session.stop()
        session.finish("abort") if session.busy else None
    elif step == "finish" and session.busy:
        session.finish("stop")
    elif step == "regenerate" and not session.busy:
        session.regenerate(number) and session.start()
    elif step not in ("ask", "finish", "regenerate") and session.busy:
        session.append(step, number)


@given(STEPS, st.booleans())
@settings(max_examples=300, deadline=None)
def test_rows_kept_are_rows_made_anew(steps, forked):
    session, chat = long_chat(2), ChatRows()
    session.origin = ForkOrigin(2, "2 other", 1, 1) if forked else None
    shown, marker, width, reading = [], "from 2", 40, MARKDOWN
    for number, step in enumerate(steps, 1):
        if step == "marker":
            marker = f"from 2, {number} blocks shared"
        elif step == "width":
            width = 70 - width + 20
        elif step == "reading":
            reading = Reading(not reading.markdown, thoughts_open=number % 2 == 0)
        elif step == "thought":
            row = chat.last_thought()
            if row is not None:
                assert chat.toggle_thought(row)
                chat.update(session, width, marker, "", reading)
                assert chat.toggle_thought(chat.last_thought())
        elif step == "past":
            shown[chat.show_past("so it was", width) :] = chat.rows
        else:
            take(session, step, number)
        first = chat.update(session, width, marker, "", reading)
        shown[first:] = chat.rows[first:]
        fresh = ChatRows()
        fresh.update(session, width, marker, "", reading)
        assert chat.rows == fresh.rows
        assert [(part.turn, part.first, part.num_rows) for part in chat.parts] == [
            (part.turn, part.first, part.num_rows) for part in fresh.parts
        ]
        if step not in ("thought", "past"):
            assert shown == chat.rows or step in ("width", "reading")
        shown = list(chat.rows)


def long_chat(num_turns, text="line **one**\nline two\n"):
    session = ChatSession(1)
    for number in range(num_turns):
        session.ask(f"prompt {number}", number + 1)
        session.append(text, 1)
        session.finish("stop")
    return session


def test_a_fork_marker_that_changes_makes_no_turn_anew(monkeypatch):
    session, chat = long_chat(5), ChatRows()
    session.origin = ForkOrigin(2, "2 other", 2, 1)
    chat.update(session, 60, "3 blocks shared", "", MARKDOWN)
    monkeypatch.setattr(chat_rows, "document", pytest.fail)
    before = texts(chat.rows)
    chat.update(session, 60, "2 blocks shared", "", MARKDOWN)
    assert texts(chat.rows) == [text.replace("3 blocks", "2 blocks") for text in before]


def test_the_end_of_a_reply_makes_nothing_anew(monkeypatch):
    session, chat = long_chat(2), ChatRows()
    session.ask("more", 9)
    session.append("one\n\ntwo\n\nthree", 3)
    chat.update(session, 60, "", "", MARKDOWN)
    monkeypatch.setattr(chat_rows, "document", pytest.fail)
    session.finish("length")
    first = chat.update(session, 60, "", "", MARKDOWN)
    assert texts(chat.rows)[first:] == ["three", "cut at the token limit"]


def test_of_a_very_long_chat_only_what_is_looked_at_is_made(monkeypatch):
    monkeypatch.setattr(chat_rows, "MAX_AT_ONCE", 100)
    session, chat, whole = long_chat(50), ChatRows(), ChatRows()
    chat.update(session, 60, "", "", MARKDOWN)
    assert chat.rows.count(PENDING) == len(chat.rows)
    before = len(chat.rows)
    made = chat.make(40, 50)
    assert len(chat.rows) - before == sum(splice.num_rows - splice.num_before for splice in made)
    assert 0 < len(chat.rows) - chat.rows.count(PENDING) < 30
    while chat.make(0, len(chat.rows)):
        pass
    monkeypatch.setattr(chat_rows, "MAX_AT_ONCE", 10**9)
    whole.update(session, 60, "", "", MARKDOWN)
    assert chat.rows == whole.rows
    assert [(part.first, part.num_rows) for part in chat.parts] == [
        (part.first, part.num_rows) for part in whole.parts
    ]


# --- rows and passages ------------------------------------------------------------------------------

REPLY = "# Title\n\nSome **bold** and `code`.\n\n```py\nx = 1\n```\n"


@pytest.fixture
def chat():
    made = ChatRows()
    made.update(long_chat(1, REPLY), 60, "", "", MARKDOWN)
    return made


def lit(chat, start, end):
    """What is lit for some characters of the reply."""
    found = spans_by_row(chat, [Passage(1, start, end)])
    return [chat.rows[row].text[low:high] for row, spans in sorted(found.items()) for low, high in spans]


def test_characters_light_what_shows_them(chat):
    at = REPLY.index("bold")
    assert lit(chat, at, at + 4) == ["bold"]
    assert lit(chat, at - 5, at + 9) == ["me ", "bold", " an"]
    at = REPLY.index("x = 1")
    assert lit(chat, at, at + 5) == ["x = ", "1"]


def test_markup_alone_lights_what_stands_behind_it(chat):
    assert lit(chat, REPLY.index("**"), REPLY.index("**") + 2) == ["b"]
    assert lit(chat, 0, 1) == ["T"]
    assert lit(chat, len(REPLY) - 3, len(REPLY)) == []


def test_what_is_chosen_is_the_source_from_its_first_to_its_last_character(chat):
    row = texts(chat.rows).index("Some bold and code.")

    def chosen(index, _):
        return (5, 18) if index == row else None

    assert list(passages(chat, 0, len(chat.rows), chosen)) == [
        Passage(1, REPLY.index("bold"), REPLY.index("code") + 4)
    ]
    (_, everything) = passages(chat, 0, len(chat.rows), lambda _, row: (0, len(row.text)))
    assert everything == Passage(1, REPLY.index("Title"), REPLY.index("x = 1") + 5)
