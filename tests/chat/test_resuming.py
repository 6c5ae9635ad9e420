"""A chat of the history and what a server says of it, in all states in which a terminal may have died."""

import pytest

from pagedchat.chat.resuming import fill, resume
from pagedchat.chat.session import ChatSession
from pagedchat.chat.turns import Entry, Turn
from pagedchat.events import ReplyKept, RequestFinished

ASKED = [("user", "one"), ("assistant", "eins"), ("user", "two")]
FIGURES = RequestFinished(1, 70, "stop", 9, 0, 4, 0.1, 0.2)


def chat(*texts: str, ending: str = "complete") -> ChatSession:
    """Turns of user and assistant; the last one ended so."""
    session = ChatSession(1)
    entries = [Entry(Turn("assistant" if place % 2 else "user", text)) for place, text in enumerate(texts)]
    if entries:
        entries[-1] = Entry(entries[-1].turn, ending, entries[-1].turn_id)
    session.entries = entries
    session.tree.add_path(entries)
    return session


def kept(text: str = "zwei und", *, finished: bool = False, turns=ASKED) -> ReplyKept:
    return ReplyKept(1, 70, 5, turns, text, finished)


def told(session: ChatSession, text: str) -> list[str]:
    """The request's events follow; all texts then."""
    session.start()
    session.append(text, 4)
    session.finish("stop", FIGURES)
    return [entry.turn.text for entry in session.entries]


def test_a_reply_that_was_cut_short_goes_on_as_the_same_turn():
    session = chat("one", "eins", "two", "zwei", ending="interrupted")
    cut = session.entries[-1].turn_id
    assert resume(session, kept()) == "resumed"
    assert session.busy
    assert session.open_text == "zwei"
    assert told(session, "zwei und drei") == ["one", "eins", "two", "zwei und drei"]
    assert session.entries[-1].turn_id == cut
    assert session.entries[-1].ending == "complete"
    assert session.branch == (1, 1)
    assert [entry.turn.text for entry, _ in session.tree.all_turns()][-1] == "zwei und drei"


def test_a_prompt_that_went_back_to_be_edited_is_asked_again_by_nobody():
    session = chat("one", "eins")
    asked = Entry(Turn("user", "two"))
    session.tree.add(asked, session.entries[-1].turn_id)
    session.return_prompt("a draft")
    session.return_prompt("two")
    assert resume(session, kept()) == "resumed"
    assert session.returned == "a draft"
    assert session.entries[-1].turn_id == asked.turn_id
    assert told(session, "zwei und drei")[-1] == "zwei und drei"


def test_a_prompt_that_the_history_never_had_is_there():
    session = chat("one", "eins")
    assert resume(session, kept()) == "resumed"
    assert told(session, "zwei") == ["one", "eins", "two", "zwei"]


def test_turns_that_were_left_out_are_not_looked_for():
    session = chat("zero", "null", "one", "eins", "two", "zw", ending="interrupted")
    session.num_left_out = 2
    assert resume(session, kept()) == "resumed"
    assert told(session, "zwei") == ["zero", "null", "one", "eins", "two", "zwei"]


def test_the_very_first_prompt_is_taken_up():
    session = chat()
    session.return_prompt("one")
    assert resume(session, kept("ei", turns=[("system", "Be brief."), ("user", "one")])) == "resumed"
    assert session.returned == ""
    assert told(session, "eins") == ["one", "eins"]


@pytest.mark.parametrize(
    "session",
    [
        chat("one", "eins", "two", "zwei"),
        chat("one", "eins", "two", "zwei", "three", "drei"),
        chat("one", "eins", "two", "something else"),
    ],
    ids=["all of it", "gone on", "asked again"],
)
def test_a_chat_that_has_it_all_is_left_alone(session):
    before = list(session.entries)
    assert resume(session, kept("zwei", finished=True)) == "known"
    assert session.entries == before
    assert not session.busy


def test_who_went_back_on_purpose_is_not_brought_forward_again():
    session = chat("one", "eins", "two", "zwei")
    session.go_back(2)
    assert resume(session, kept("zwei", finished=True)) == "known"
    assert len(session.entries) == 2


def test_a_chat_about_something_else_stays_as_it_is():
    session = chat("other", "anders")
    assert resume(session, kept()) == "apart"
    assert [entry.turn.text for entry in session.entries] == ["other", "anders"]


def test_a_request_that_the_chat_waits_for_is_its_own():
    session = chat("one", "eins")
    session.ask("two", 70)
    assert resume(session, kept()) == "resumed"
    assert len(session.entries) == 3


def test_a_chat_that_is_asked_something_new_is_not_disturbed():
    session = chat("one", "eins")
    session.ask("three", 1)
    assert resume(session, kept()) == "known"


def test_a_new_chat_gets_all_that_the_server_has():
    session = ChatSession(3)
    fill(session, kept(turns=[("system", "Be brief."), *ASKED]))
    assert (session.chat_id, session.system, session.busy) == (5, "Be brief.", True)
    assert told(session, "zwei") == ["one", "eins", "two", "zwei"]


@pytest.mark.parametrize(
    "turns", [[], [("user", "a"), ("user", "b")], [("assistant", "a")], [("tool", "a")], [("system", "a")]]
)
def test_turns_that_make_no_chat_change_nothing(turns):
    session = chat("one", "eins")
    assert resume(session, kept(turns=turns)) == "known"
    assert len(session.entries) == 2


GOES_ON = [*ASKED, ("assistant", "zwei")]
"""A request to go on with a reply."""


def test_a_reply_that_was_being_gone_on_with_is_told_again_once():
    session = chat("one", "eins", "two", "zwei", ending="stopped")
    assert session.go_on(70)
    session.start()
    session.append(" und", 1)
    assert resume(session, kept(" und", turns=GOES_ON)) == "resumed"
    assert told(session, " und drei") == ["one", "eins", "two", "zwei und drei"]


@pytest.mark.parametrize(("text", "ending"), [("zwei und", "interrupted"), ("zwei", "stopped"), ("zwei", "length")])
def test_what_a_dead_terminal_was_going_on_with_goes_on(text, ending):
    session = chat("one", "eins", "two", text, ending=ending)
    assert resume(session, kept(" und", turns=GOES_ON)) == "resumed"
    assert told(session, " und drei") == ["one", "eins", "two", "zwei und drei"]


def test_all_of_what_was_gone_on_with_is_known():
    session = chat("one", "eins", "two", "zwei und")
    assert resume(session, kept(" und", finished=True, turns=GOES_ON)) == "known"


def test_a_connection_that_was_lost_has_a_whole_reply_told_again_once():
    session = chat("one", "eins")
    session.ask("two", 70)
    session.start()
    session.append("zwei", 1)
    assert resume(session, kept("zwei")) == "resumed"
    assert told(session, "zwei und drei")[-1] == "zwei und drei"


@pytest.mark.parametrize(
    ("kept_before", "left"),
    [("two", ""), ("two\n\ntwo", ""), ("two\n\nthree", "three"), ("two halves", "two halves"), ("", "")],
)
def test_a_draft_of_the_prompt_that_is_being_answered_is_no_draft(kept_before, left):
    session = chat("one", "eins", "two", "zwei", ending="interrupted")
    session.return_prompt(kept_before)
    assert resume(session, kept()) == "resumed"
    assert session.returned == left
    assert session.take_taken_up() == "two"
