"""A chat whose context is nearly full: said, made room in, or gone on with in a new chat."""

import pytest

from pagedchat.chat.session import ChatSession
from pagedchat.chat.turns import Entry, Turn
from pagedchat.events import RequestFinished, RequestStarted, TextDelta
from pagedchat.service.commands import Generate
from pagedchat.view.chats.chat_rows import ChatRows
from pagedchat.view.chats.desk import ChatDesk
from pagedchat.view.chats.full_context import turns_to_leave_out, warning
from pagedchat.view.chats.reading import Reading
from pagedchat.view.markdown.pieces import text_of
from pagedchat.view.options import UiOptions
from tests.fakes_tui import READY

LIMIT = READY.max_model_len
"""2048 tokens; the fake engine counts a token for every four characters."""


@pytest.fixture
def sent():
    return []


def desk_of(sent, **options):
    desk = ChatDesk(sent.append, UiOptions(**options))
    desk.apply(READY)
    return desk


def talk(desk, sent, chat, prompt, reply, reason="stop"):
    desk.submit(chat, prompt)
    answer(desk, sent, reply, reason)


def answer(desk, sent, reply, reason="stop"):
    request = [command for command in sent if isinstance(command, Generate)][-1]
    ids = request.session_id, request.request_id
    num_prompt = sum(len(turn.text) for turn in request.turns) // 4
    desk.apply(RequestStarted(*ids, num_prompt, 0))
    desk.apply(TextDelta(*ids, reply, 1))
    desk.apply(RequestFinished(*ids, reason, num_prompt, 0, len(reply) // 4, 0.1, 0.2))


def filled_chat(desk, sent, rounds=4):
    """A chat of so many rounds of 400 tokens."""
    chat = desk.new("tale")
    for number in range(rounds):
        talk(desk, sent, chat, f"{number}" * 800, "r" * 800)
    return chat


def prompts(request):
    return [turn.text[:1] for turn in request.turns if turn.role == "user"]


# --- stop -------------------------------------------------------------------------------------------------


def test_nothing_is_left_out_unless_that_was_chosen(sent):
    desk = desk_of(sent)
    chat = filled_chat(desk, sent, 6)
    assert prompts(sent[-1]) == ["0", "1", "2", "3", "4", "5"]
    assert not desk.needs_successor(chat, "more")


def test_a_reply_that_ends_for_want_of_room_says_what_can_be_done(sent):
    desk = desk_of(sent)
    chat = filled_chat(desk, sent, 4)
    desk.submit(chat, "x" * 800)
    chat.enqueue("later")
    answer(desk, sent, "r" * 1000, "length")
    assert chat.notice.message == "The context is full: 2050 of 2048 tokens."
    assert chat.notice.hint == "Start a new chat with ^N, or type /set full drop or /set full summary."
    assert chat.take_returned() == "later"


# --- drop -------------------------------------------------------------------------------------------------


def test_the_oldest_turns_are_no_longer_sent_and_stay_in_the_chat(sent):
    desk = desk_of(sent, when_full="drop", system="Be brief.")
    chat = filled_chat(desk, sent, 4)
    assert chat.num_left_out == 0
    talk(desk, sent, chat, "4" * 800, "r" * 800)
    assert prompts(sent[-1]) == ["2", "3", "4"]
    assert sent[-1].turns[0] == Turn("system", "Be brief.")
    assert (chat.num_left_out, len(chat.entries)) == (4, 10)
    desk.submit(chat, "5" * 400)
    assert prompts(sent[-1]) == ["2", "3", "4", "5"]  # there is room for some time


def test_that_turns_were_left_out_is_said_and_drawn(sent):
    desk = desk_of(sent, when_full="drop")
    chat = filled_chat(desk, sent, 4)
    desk.submit(chat, "4" * 800)
    assert chat.notice.message == "The context was nearly full: the model no longer sees the oldest 4 turns."
    shown = ChatRows()
    shown.update(chat, 80, "", "", Reading(markdown=False, thoughts_open=False))
    rows = [text_of(row.pieces) for row in shown.rows]
    place = rows.index("the model no longer sees the 4 turns above")
    assert rows[:place].count("1" * 74) > 0
    assert "2" * 74 in rows[place:]
    assert "1" * 74 not in rows[place:]


def test_a_fork_leaves_out_the_same(sent):
    desk = desk_of(sent, when_full="drop")
    chat = filled_chat(desk, sent, 5)
    child = desk.fork(chat)
    assert child.turns == chat.turns
    assert child.when_full == "drop"


def test_a_prompt_that_is_too_long_by_itself_leaves_nothing_out(sent):
    desk = desk_of(sent, when_full="drop")
    chat = filled_chat(desk, sent, 2)
    desk.submit(chat, "x" * 9000)
    assert chat.num_left_out == 0


def test_what_is_queued_goes_on_where_turns_are_left_out(sent):
    desk = desk_of(sent, when_full="drop")
    chat = filled_chat(desk, sent, 4)
    desk.submit(chat, "4" * 100)
    chat.enqueue("later")
    answer(desk, sent, "r" * 3000, "length")
    assert sent[-1].turns[-1] == Turn("user", "later")


@pytest.mark.parametrize("pairs", range(8))
def test_pairs_are_left_out_and_never_a_half(pairs):
    chat = ChatSession(1)
    for number in range(pairs):
        chat.entries += [Entry(Turn("user", "x" * 900)), Entry(Turn("assistant", "y" * (number * 100)))]
    chat.tokens_per_character = 0.5
    left_out = turns_to_leave_out(chat, "z" * 300, LIMIT)
    assert left_out % 2 == 0
    kept = sum(len(entry.turn.text) for entry in chat.entries[left_out:]) + 300
    assert kept * 0.5 <= LIMIT - 256


def test_the_last_turns_are_not_left_out_where_they_fit():
    chat = ChatSession(1)
    for size in (900, 2400):
        chat.entries += [Entry(Turn("user", "x" * size)), Entry(Turn("assistant", "y"))]
    chat.tokens_per_character = 0.5
    assert turns_to_leave_out(chat, "z" * 900, LIMIT) == 2
    assert turns_to_leave_out(chat, "z" * 1500, LIMIT) == 4
    assert turns_to_leave_out(chat, "z" * 4000, LIMIT) == 0


# --- summary ----------------------------------------------------------------------------------------------


def test_a_new_chat_sums_up_the_old_one_and_then_answers(sent):
    desk = desk_of(sent, when_full="summary", system="Be brief.")
    chat = filled_chat(desk, sent, 4)
    assert not desk.needs_successor(chat, "a")
    assert desk.needs_successor(chat, "4" * 800)
    before = list(chat.entries)
    child = desk.succeed(chat, "4" * 800)
    request = sent[-1]
    assert (child.name, desk.chats, chat.entries) == ("tale 2", [chat, child], before)
    assert (request.session_id, request.overrides.max_tokens) == (child.session_id, 256)
    assert prompts(request)[:-1] == ["1", "2", "3"]  # as many as leave room for the summary
    assert request.turns[-1].text.startswith('The context of the chat "1 tale" is nearly full')
    assert child.notice.message.endswith("Its oldest 2 turns did not fit and are not in it.")
    answer(desk, sent, "They spoke of boats.")
    assert [turn.text for turn in sent[-1].turns[1:]] == [
        request.turns[-1].text, "They spoke of boats.", "4" * 800,
    ]  # fmt: skip
    assert sent[-1].overrides.max_tokens is None
    assert child.turns[0] == Turn("system", "Be brief.")


def test_a_summary_is_asked_for_again_of_the_same_turns(sent):
    desk = desk_of(sent, when_full="summary")
    chat = filled_chat(desk, sent, 4)
    child = desk.succeed(chat, "later")
    first = sent[-1].turns
    child.clear_queue()
    answer(desk, sent, "They spoke of boats.")
    assert desk.regenerate(child)
    assert sent[-1].turns == first
    answer(desk, sent, "Of boats.")
    assert child.tokens_per_character == chat.tokens_per_character
    desk.submit(child, "later")
    assert [turn.text for turn in sent[-1].turns][1:] == ["Of boats.", "later"]


def test_of_a_summary_that_is_stopped_the_prompt_comes_back_and_not_the_question(sent):
    desk = desk_of(sent, when_full="summary")
    child = desk.succeed(filled_chat(desk, sent, 4), "later")
    desk.stop(child)
    assert (child.take_returned(), child.entries) == ("later", [])


def test_names_of_new_chats_count_on(sent):
    desk = desk_of(sent, when_full="summary")
    chat = filled_chat(desk, sent, 4)
    names = [desk.succeed(chat, "x").name, desk.succeed(chat, "x").name]
    chat.name = "year 1999"
    assert [*names, desk.succeed(chat, "x").name] == ["tale 2", "tale 3", "year 2000"]


def test_text_that_is_only_completed_is_not_summed_up(sent):
    desk = desk_of(sent, when_full="summary", raw=True)
    assert not desk.needs_successor(filled_chat(desk, sent, 5), "more")


def test_what_is_queued_returns_where_a_new_chat_is_needed(sent):
    desk = desk_of(sent, when_full="summary")
    chat = filled_chat(desk, sent, 4)
    desk.submit(chat, "short")
    chat.enqueue("5" * 800)
    answer(desk, sent, "fine")
    assert (chat.notice.message, chat.take_returned()) == ("The context is nearly full.", "5" * 800)
    assert not chat.busy


# --- said before ------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("how", "used", "words"),
    [
        ("stop", 1740, ""),
        ("stop", 1741, "context 1,741 of 2,048, 307 tokens left: then the reply ends (/set full drop or summary)"),
        ("drop", 2000, "context 2,000 of 2,048, 48 tokens left: the oldest turns will be left out"),
        ("summary", 2048, "context 2,048 of 2,048, 0 tokens left: a new chat will go on with a summary"),
    ],
)
def test_a_context_that_is_nearly_full_is_said_before(how, used, words):
    chat = ChatSession(1)
    chat.when_full = how
    assert warning(chat, used, 2048) == words
    assert warning(chat, used, 0) == ""
