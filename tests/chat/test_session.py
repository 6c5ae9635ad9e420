import pytest

from pagedchat.chat.session import ChatSession, Notice
from pagedchat.chat.turns import Turn
from pagedchat.engine.sampling_params import SamplingOverrides


@pytest.fixture
def session():
    return ChatSession(1, name="tale")


def answered(session, prompt="hello", reply="hi", request_id=1):
    session.ask(prompt, request_id)
    session.start()
    session.append(reply, 1)
    session.finish("stop")


def test_prompt_and_reply_become_turns(session):
    session.ask("hello", 1)
    assert (session.state, session.busy) == ("queued", True)
    session.start()
    session.append("hi", 1)
    session.append(" there", 2)
    assert (session.state, session.open_text, session.num_open_tokens) == ("running", "hi there", 2)
    session.finish("stop")
    assert session.turns == [Turn("user", "hello"), Turn("assistant", "hi there")]
    assert (session.state, session.busy, session.open_text) == ("idle", False, "")


def test_system_prompt_is_the_first_turn():
    session = ChatSession(1, system="Be brief.")
    session.ask("hello", 1)
    assert session.turns == [Turn("system", "Be brief."), Turn("user", "hello")]


def test_every_change_grows_the_version(session):
    versions = [session.version]
    for change in (
        lambda: session.ask("a", 1),
        session.start,
        lambda: session.append("b", 1),
        lambda: session.enqueue("c"),
        session.unqueue,
        session.clear_queue,
        lambda: session.set_system("Be brief."),
        lambda: session.set_sampling("top_k", 3),
        session.stop,
        lambda: session.finish("abort"),
        lambda: session.notify(Notice("n")),
        session.dismiss,
    ):
        change()
        versions.append(session.version)
    assert versions == sorted(set(versions))


def test_stop_keeps_the_partial_text(session):
    session.ask("hello", 1)
    session.start()
    session.append("half a", 2)
    assert session.stop()
    assert session.busy
    assert not session.stop(), "asked for once"
    session.append(" reply", 3)
    session.finish("abort")
    assert session.entries[-1].turn == Turn("assistant", "half a reply")
    assert (session.entries[-1].ending, session.state) == ("stopped", "stopped")


def test_stop_before_the_engine_began_gives_the_prompt_back(session):
    session.ask("hello", 1)
    assert session.stop()
    assert (session.entries, session.busy) == ([], False)
    assert session.take_returned() == "hello"
    assert session.take_returned() == ""


def test_stop_without_a_request_does_nothing(session):
    assert not session.stop()
    assert session.state == "idle"


def test_stop_gives_queued_prompts_back_after_the_prompt_itself(session):
    session.ask("one", 1)
    session.enqueue("two")
    session.enqueue("three")
    session.stop()
    assert session.take_returned() == "one\n\ntwo\n\nthree"
    assert not session.queue


def test_queued_prompts_can_be_taken_back_last_first(session):
    session.enqueue("two")
    session.enqueue("three")
    assert [session.unqueue(), session.unqueue(), session.unqueue()] == ["three", "two", None]


def test_queued_prompts_that_are_dropped_do_not_come_back(session):
    session.ask("one", 1)
    session.start()
    session.enqueue("two")
    session.clear_queue()
    session.stop()
    session.append("half", 1)
    session.finish("abort")
    assert session.take_returned() == ""


def test_settings_are_for_the_next_request_and_none_follows_the_model(session):
    session.set_sampling("temperature", 0.5)
    session.set_sampling("top_k", 3)
    session.set_sampling("temperature", None)
    assert session.overrides == SamplingOverrides(top_k=3)
    session.set_system("Be brief.")
    assert session.turns == [Turn("system", "Be brief.")]
    session.set_system(None)
    assert session.turns == []


def test_refused_prompt_goes_back_and_leaves_a_notice(session):
    answered(session)
    session.ask("far too long", 2)
    session.fail("The prompt is too long.", "Shorten it.")
    assert [turn.text for turn in session.turns] == ["hello", "hi"]
    assert session.take_returned() == "far too long"
    assert session.notice == Notice("The prompt is too long.", "Shorten it.")
    session.ask("short", 3)
    assert session.notice is None


def test_interrupt_keeps_what_was_written(session):
    session.ask("hello", 1)
    session.append("half", 1)
    session.enqueue("next")
    session.interrupt()
    assert (session.entries[-1].turn.text, session.entries[-1].ending) == ("half", "interrupted")
    assert (session.state, session.busy) == ("interrupted", False)
    assert session.take_returned() == "next"


def test_turns_alternate_after_an_interrupt_without_text(session):
    session.ask("hello", 1)
    session.interrupt()
    session.ask("again", 2)
    assert [turn.role for turn in session.turns] == ["user"]


def test_length_is_marked(session):
    session.ask("hello", 1)
    session.append("cut", 1)
    session.finish("length")
    assert (session.entries[-1].ending, session.state) == ("length", "idle")


def test_an_empty_reply_is_a_turn(session):
    session.ask("hello", 1)
    session.finish("stop")
    assert session.turns[-1] == Turn("assistant", "")


def test_regenerate_replaces_the_last_reply(session):
    answered(session)
    assert session.regenerate(2)
    assert session.turns == [Turn("user", "hello")]
    session.append("other", 1)
    session.finish("stop")
    assert session.turns[-1] == Turn("assistant", "other")


def test_stopped_regenerate_without_text_brings_the_old_reply_back(session):
    answered(session)
    session.regenerate(2)
    session.stop()
    assert session.turns[-1] == Turn("assistant", "hi")
    assert session.take_returned() == ""


def test_nothing_to_regenerate(session):
    assert not session.regenerate(1)
    session.ask("hello", 1)
    assert not session.regenerate(2), "busy"


def test_fork_has_the_same_turns_and_goes_its_own_way(session):
    session.overrides = SamplingOverrides(temperature=0.5)
    answered(session)
    child = session.fork(2, 9)
    assert (child.turns, child.busy, child.overrides) == (session.turns, False, session.overrides)
    assert (child.origin.session_id, child.origin.num_entries, child.origin.num_prompts) == (1, 2, 1)
    answered(child, "more", "less")
    assert len(session.turns) == 2


def test_fork_in_mid_reply_writes_on(session):
    session.ask("hello", 1)
    session.append("half", 1)
    child = session.fork(2, 9)
    assert (child.open_text, child.request_id, child.state) == ("half", 9, "running")
    child.start()
    assert child.open_text == "half", "kept on the screen until the engine tells it all"
    child.append("half a", 2)
    child.append(" word", 3)
    assert child.open_text == "half a word"
    assert session.open_text == "half"


def test_last_reply(session):
    assert session.last_reply is None
    answered(session)
    assert session.last_reply == "hi"
    session.ask("more", 2)
    session.append("new", 1)
    assert session.last_reply == "new"


# --- a reply that was cut short -----------------------------------------------------------------------


def cut_short(session):
    session.ask("Tell me.", 1)
    session.start()
    session.append("Once upon ", 2)
    session.fail("It is gone.", "Try again.")


def test_an_error_in_the_middle_keeps_the_text_as_interrupted(session):
    cut_short(session)
    assert (session.state, session.entries[-1].ending, session.can_go_on) == ("interrupted", "interrupted", True)
    assert session.notice == Notice("It is gone.", "Try again.")
    assert session.returned == ""


def test_a_reply_is_gone_on_with_in_one_turn_and_its_part_stays_a_branch(session):
    cut_short(session)
    assert session.go_on(2)
    assert session.open_text == "Once upon "
    session.start()
    session.append("a time.", 2)
    session.finish("stop")
    assert [turn.text for turn in session.turns] == ["Tell me.", "Once upon a time."]
    assert session.branch == (2, 2)
    assert not session.go_on(3)


def test_going_on_in_vain_leaves_what_there_was(session):
    cut_short(session)
    for end in (lambda: session.fail("No.", ""), session.interrupt, lambda: session.finish("abort"), session.cut):
        assert session.go_on(2)
        end()
        assert [turn.text for turn in session.turns] == ["Tell me.", "Once upon "]
        assert session.can_go_on
        assert session.branch == (1, 1)


def test_a_stopped_and_a_limited_reply_can_be_gone_on_with_and_none_while_one_is_written(session):
    for reason in ("abort", "length"):
        session.ask("More.", 1)
        assert not session.go_on(2)
        session.append("a", 1)
        session.finish(reason)
        assert session.can_go_on
    assert not ChatSession(2).go_on(1)


def test_cutting_ends_at_once_and_gives_a_prompt_without_reply_back(session):
    session.ask("Tell me.", 1)
    session.enqueue("And then?")
    session.cut()
    assert (session.busy, session.entries, session.take_returned()) == (False, [], "Tell me.\n\nAnd then?")
    session.cut()
    assert not session.busy


def test_why_nothing_comes_is_known_until_something_does(session):
    session.ask("Tell me.", 1)
    session.wait("waits for an answer")
    assert session.progress == "waits for an answer"
    session.start()
    session.append("Now", 1)
    assert session.progress == ""
