"""What is written as JSON is read again as it was."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedchat.chat.formats.own_json import from_json, to_json
from pagedchat.chat.formats.saved_chat import FormatError, SavedChat, saved, title_of
from pagedchat.chat.session import ChatSession
from pagedchat.chat.turns import Entry, Turn
from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.view.chats.desk import ChatDesk
from pagedchat.view.options import UiOptions

TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
ENDINGS = st.sampled_from(["complete", "stopped", "interrupted", "length"])
SAMPLING = st.fixed_dictionaries({}, optional={
    "temperature": st.floats(0, 2), "top_p": st.floats(0, 1, exclude_min=True),
    "top_k": st.integers(-1, 2**31 - 1),
    "max_tokens": st.integers(1, 1000), "seed": st.integers(0, 2**60), "stop": st.lists(st.text(
        st.characters(exclude_categories=["Cs"]), min_size=1), max_size=3),
})  # fmt: skip


@st.composite
def chats(draw):
    pairs = draw(st.lists(st.tuples(TEXTS, TEXTS, ENDINGS), max_size=4))
    entries = [entry for prompt, reply, ending in pairs
               for entry in (Entry(Turn("user", prompt)), Entry(Turn("assistant", reply), ending))]  # fmt: skip
    system = draw(st.none() | TEXTS)
    return SavedChat(draw(TEXTS), system, draw(SAMPLING), tuple(entries), draw(TEXTS))


@given(chats())
def test_a_chat_that_is_written_is_read_as_it_was(chat):
    text = to_json(chat)
    assert from_json(json.loads(text)) == chat
    assert not any(char < " " and char != "\n" for char in text)


@given(chats())
def test_a_chat_that_is_imported_is_exported_as_it_was(chat):
    desk = ChatDesk(lambda _: None, UiOptions())
    session = desk.take_in(chat)
    assert session.take_returned() == chat.unanswered
    again = saved(session)
    assert (again.title, again.system, again.entries) == (title_of(chat.title), chat.system, chat.entries)
    assert saved(desk.take_in(again)) == again
    assert SamplingOverrides(**again.sampling) == SamplingOverrides(**chat.sampling)


def test_a_reply_that_is_being_written_is_exported_up_to_here():
    session = ChatSession(1, name="tale")
    session.ask("Tell", 1)
    session.append("Once", 1)
    assert saved(session).entries == (Entry(Turn("user", "Tell")), Entry(Turn("assistant", "Once"), "stopped"))
    assert saved(session).last(1).entries == (Entry(Turn("assistant", "Once"), "stopped"),)


def test_the_last_turns_alone_may_begin_with_a_reply_and_are_read_again():
    chat = SavedChat("t", None, {}, (Entry(Turn("user", "a")), Entry(Turn("assistant", "b")),
                                     Entry(Turn("user", "c")), Entry(Turn("assistant", "d")))).last(3)  # fmt: skip
    read = from_json(json.loads(to_json(chat)))
    assert [entry.turn.text for entry in read.entries] == ["(The chat begins with a reply.)", "b", "c", "d"]


OWN = {"format": "pagedchat chat", "version": 1, "title": "t", "turns": []}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"version": 2}, "Its version is 2; this pagedchat reads version 1."),
        ({"turns": None}, "It has no list of turns."),
        ({"turns": [{"role": "user"}]}, "Turn 1 is not one with"),
        ({"turns": [{"role": "robot", "text": ""}]}, "Turn 1 is not one with"),
        ({"turns": [{"role": "user", "text": "", "ending": "late"}]}, "Turn 1 is not one with"),
        ({"turns": [3]}, "Turn 1 is not one with"),
        ({"title": 3}, "Its title and its system prompt must be texts."),
        ({"system": []}, "Its title and its system prompt must be texts."),
        ({"sampling": {"warmth": 1}}, "Its sampling has settings that nobody knows."),
        ({"sampling": {"top_p": 9}}, "Its sampling cannot be: top_p is 9."),
        ({"sampling": []}, "Its sampling has settings that nobody knows."),
    ],
)
def test_a_file_of_ours_that_cannot_be_is_one_sentence(change, message):
    with pytest.raises(FormatError) as caught:
        from_json(OWN | change)
    assert caught.value.message.startswith(message)


def test_halves_of_characters_become_whole_ones():
    chat = from_json(OWN | {"turns": [{"role": "user", "text": "a\ud800"}, {"role": "assistant", "text": "b"}]})
    assert chat.entries[0].turn.text == "a\ufffd"
