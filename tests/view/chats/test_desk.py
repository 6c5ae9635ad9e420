import pytest

from pagedchat.chat.turns import Turn
from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.events import EngineDied, RequestFailed, RequestFinished, RequestStarted, TextDelta
from pagedchat.service.commands import Close, Focus, Fork, Generate, Stop
from pagedchat.view.chats.desk import ChatDesk
from pagedchat.view.options import UiOptions
from tests.fakes_tui import READY, finished


@pytest.fixture
def sent():
    return []


@pytest.fixture
def desk(sent):
    desk = ChatDesk(sent.append, UiOptions(overrides=SamplingOverrides(temperature=0.5), system="Be brief."))
    desk.apply(READY)
    return desk


def reply(desk, generate, text):
    ids = generate.session_id, generate.request_id
    desk.apply(RequestStarted(*ids, 5, 0))
    desk.apply(TextDelta(*ids, text, 1))


def test_submit_sends_all_turns(desk, sent):
    chat = desk.new()
    desk.submit(chat, "Tell me a sea story.")
    turns = [Turn("system", "Be brief."), Turn("user", "Tell me a sea story.")]
    assert sent == [Generate(1, 1, turns, SamplingOverrides(temperature=0.5), False)]
    assert chat.label == "1 sea story"


def test_queued_prompt_is_sent_after_the_reply(desk, sent):
    chat = desk.new()
    for prompt in ("one", "two", "three"):
        desk.submit(chat, prompt)
    assert len(sent) == 1
    for index in range(3):
        reply(desk, sent[index], "answer")
        desk.apply(finished(sent[index]))
    assert [command.turns[-1].text for command in sent] == ["one", "two", "three"]
    assert [len(command.turns) for command in sent] == [2, 4, 6]


def test_events_of_a_request_that_is_over_change_nothing(desk, sent):
    chat = desk.new()
    desk.submit(chat, "one")
    desk.stop(chat)
    assert sent[1:] == [Stop(1)]
    version = chat.version
    reply(desk, sent[0], "late")
    desk.apply(finished(sent[0]))
    assert (chat.version, chat.entries) == (version, [])


def test_numbers_are_reused(desk, sent):
    first, second = desk.new(), desk.new()
    desk.close(first)
    assert sent == [Close(1)]
    assert [chat.session_id for chat in (desk.new(), second)] == [1, 2]


def test_fork_stands_to_the_right_and_has_a_name_of_its_own(desk, sent):
    chat, other = desk.new(), desk.new()
    desk.submit(chat, "tale")
    child = desk.fork(chat)
    grandchild = desk.fork(child)
    assert desk.chats == [chat, child, grandchild, other]
    assert [item.name for item in desk] == ["tale", "tale»a", "tale»b", ""]
    assert sent[1:] == [Fork(1, 3, 2), Fork(3, 4, 3)]


def test_many_forks_stand_in_the_order_of_their_numbers(desk):
    chat, other = desk.new(), desk.new()
    desk.submit(chat, "tale")
    last = chat
    for _ in range(3):
        last = desk.fork(chat, after=last)
    assert [item.session_id for item in desk] == [1, 3, 4, 5, 2]
    assert other is desk.chats[-1]


@pytest.mark.parametrize(
    ("prompt", "name"),
    [
        ("Tell me a story about a fox.", "story fox"),
        ("Tell me a story about the sea", "story sea"),
        ("Please write a poem of autumn", "poem autumn"),
        ("What is a KV cache?", "KV cache"),
        ("And then?", "And then?"),
        ("Erzähl mir vom Meer", "Erzähl mir vom"),
        ("Donaudampfschifffahrt", "Donaudampfsch…"),
        ("(why) [do] cats purr?!", "cats purr"),
        ("  Hello,\n world!  ", "Hello world"),
        ("what is it", "what is it"),
        ("!?", "!?"),
    ],
)
def test_a_chat_is_named_by_what_its_first_prompt_is_about(desk, prompt, name):
    chat = desk.new()
    desk.submit(chat, prompt)
    assert chat.name == name


def test_fork_in_mid_reply_takes_the_engine_s_word_for_its_text(desk, sent):
    chat = desk.new()
    desk.submit(chat, "tale")
    reply(desk, sent[0], "The boat")
    child = desk.fork(chat)
    desk.apply(TextDelta(1, 1, " left", 3))
    desk.apply(RequestStarted(2, 2, 5, 5))
    desk.apply(TextDelta(2, 2, "The boat left", 3))
    desk.apply(TextDelta(2, 2, " at dawn", 5))
    assert (chat.open_text, child.open_text) == ("The boat left", "The boat left at dawn")


def test_fork_of_a_refused_request_gives_the_prompt_back(desk):
    chat = desk.new()
    desk.submit(chat, "tale")
    child = desk.fork(chat)
    desk.apply(RequestFailed(1, 1, "Too long.", ""))
    desk.apply(RequestFinished(2, 2, "stop", 0, 0, 0, 0.0, 0.0))
    assert (child.entries, child.take_returned()) == ([], "tale")


def test_a_prompt_reaches_every_chat_it_is_sent_to(desk, sent):
    for _ in range(3):
        desk.new()
    for chat in desk.chats:
        desk.submit(chat, "hello")
    assert [(command.session_id, command.turns[-1].text) for command in sent] == [(n, "hello") for n in (1, 2, 3)]


def test_full_context_is_said_and_nothing_more_is_sent(desk, sent):
    chat = desk.new()
    desk.submit(chat, "one")
    desk.submit(chat, "two")
    reply(desk, sent[0], "long")
    desk.apply(RequestFinished(1, 1, "length", 2000, 0, 48, 0.1, 1.0))
    assert chat.notice.message == "The context is full: 2048 of 2048 tokens."
    assert len(sent) == 1
    assert (list(chat.queue), chat.take_returned()) == ([], "two")


def test_dead_engine_interrupts_what_was_running(desk, sent):
    running, idle = desk.new(), desk.new()
    desk.submit(running, "one")
    reply(desk, sent[0], "half")
    desk.apply(EngineDied(-9, "", True))
    assert (running.state, idle.state) == ("interrupted", "idle")
    desk.apply(READY)
    desk.submit(running, "go on")
    assert [turn.text for turn in sent[-1].turns] == ["Be brief.", "one", "half", "go on"]


@pytest.mark.parametrize(("restarting", "state"), [(True, "queued"), (False, "interrupted")])
def test_a_prompt_the_engine_had_not_begun_with_waits_for_the_next_engine(desk, sent, restarting, state):
    chat = desk.new()
    desk.submit(chat, "one")
    desk.apply(EngineDied(-9, "", restarting=restarting))
    assert chat.state == state
    reply(desk, sent[0], "answer")
    assert (chat.open_text == "answer") == restarting


def test_focus_is_told_once(desk, sent):
    chat = desk.new()
    desk.focus(chat)
    desk.focus(chat)
    assert sent == [Focus(1)]


def test_prompts_queued_behind_a_fork_of_a_refused_request_are_given_back(desk):
    chat = desk.new()
    desk.submit(chat, "much too long")
    fork = desk.fork(chat)
    desk.submit(fork, "and then?")
    desk.apply(RequestFinished(fork.session_id, fork.request_id, "stop", 0, 0, 0, 0.0, 0.0))
    assert not fork.queue
    assert fork.take_returned() == "much too long\n\nand then?"


def test_a_fork_at_an_earlier_turn_shares_blocks_and_has_the_turns_up_to_there(desk, sent):
    chat = desk.new()
    for prompt in ("a", "b"):
        desk.submit(chat, prompt)
        reply(desk, sent[-1], prompt.upper())
        desk.apply(finished(sent[-1]))
    sent.clear()
    child = desk.fork_at(chat, 1)
    assert [entry.turn.text for entry in child.entries] == ["a", "A"]
    assert sent == [Fork(1, 2, 3)]
    desk.submit(child, "c")
    assert [turn.text for turn in sent[-1].turns[1:]] == ["a", "A", "c"]
    desk.submit(chat, "d")
    sent.clear()
    desk.fork_at(chat, 1)
    assert sent == []  # a fork of what is being written would go on with it


def test_other_replies_to_a_prompt_are_asked_for_in_forks_and_one_is_kept(desk, sent):
    chat = desk.new()
    assert desk.reply_besides(chat) is None
    chat.set_sampling("seed", 7)
    desk.submit(chat, "a")
    assert desk.reply_besides(chat) is None
    reply(desk, sent[-1], "A")
    desk.apply(finished(sent[-1]))
    first = desk.reply_besides(chat)
    second = desk.reply_besides(chat, after=first)
    assert [item.session_id for item in desk] == [1, 2, 3]
    assert [command.overrides.seed for command in sent if isinstance(command, Generate)] == [7, None, None]
    for number, command in enumerate(sent[-3::2]):
        reply(desk, command, f"other {number}")
        desk.apply(finished(command))
    assert {other.session_id for other in desk.rivals(first)} == {1, 3}
    assert chat.branch == (1, 3)
    desk.submit(second, "on")  # who has gone on is no rival any more
    assert {other.session_id for other in desk.rivals(first)} == {1}


def test_what_is_taken_back_is_still_a_branch(desk, sent):
    chat = desk.new()
    for prompt in ("a", "b", "c"):
        desk.submit(chat, prompt)
        reply(desk, sent[-1], prompt.upper())
        desk.apply(finished(sent[-1]))
    assert desk.take_back(chat, 1) == ["b", "c"]
    desk.submit(chat, "d")
    assert [turn.text for turn in sent[-1].turns[1:]] == ["a", "A", "d"]
    assert desk.take_back(chat, 0) == []  # a reply is being written
    reply(desk, sent[-1], "D")
    desk.apply(finished(sent[-1]))
    desk.go_through(chat, chat.sibling(-1))
    assert [turn.text for turn in chat.turns[1:]] == ["a", "A", "b", "B", "c", "C"]


def test_the_engine_s_last_words_on_a_closed_chat_have_its_name(desk):
    first = desk.new("tale")
    desk.close(first)
    assert desk.labels[first.session_id] == first.label
    again = desk.new("code", session_id=first.session_id)
    assert desk.labels == {again.session_id: again.label}, "the number may be another's by then"
    for _ in range(100):
        desk.close(desk.new("many"))
    assert len(desk.labels) < 30
