import pytest

from pagedchat.chat.session import ChatSession, Notice
from pagedchat.chat.turns import Turn
from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.events import ToldToken, packed


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


# --- how sure the model was -------------------------------------------------------------------------------


def told(start, end, token_id, rank=1):
    return ToldToken(start, end, rank, [token_id, token_id, 99], [b"x", b"x", b"y"], packed([-0.5, -0.5, -1.0]))


def test_what_is_told_of_tokens_belongs_to_the_reply():
    session = ChatSession(1)
    session.ask("Hi", 1)
    session.start()
    session.append("ab", 2, [told(0, 1, 5), told(1, 2, 6)], 0)
    session.append("c", 3, [told(2, 3, 7)], 2)
    assert [token.token_ids[0] for token in session.open_told] == [5, 6, 7]
    session.finish("stop")
    assert [token.token_ids[0] for token in session.entries[-1].told] == [5, 6, 7]
    assert session.open_told == []


def test_tokens_behind_the_text_are_not_kept_but_the_one_that_ended_it():
    session = ChatSession(1)
    session.ask("Hi", 1)
    session.append("ab", 4, [told(0, 1, 5), told(1, 3, 6), told(3, 4, 7), told(2, 2, 8)], 0)
    session.finish("stop")
    assert [token.token_ids[0] for token in session.entries[-1].told] == [5, 6, 8]


def test_what_is_told_after_a_gap_is_left_out():
    session = ChatSession(1)
    session.ask("Hi", 1)
    session.append("abc", 3, [told(2, 3, 7)], 2)
    assert session.open_told == []


def test_a_fork_in_a_reply_has_it_up_to_the_token_and_learns_where_that_ends():
    session = ChatSession(1)
    session.ask("Hi", 1)
    session.append("abc", 3, [told(0, 1, 5), told(1, 2, 6), told(2, 3, 7)], 0)
    session.finish("stop")
    chosen = told(1, 1, 99, rank=2)
    child = session.fork_in_reply(2, 8, 1, [session.entries[1].told[0], chosen])
    assert (child.open_text, child.num_prompts, child.busy) == ("a", 1, True)
    assert child.origin is not None
    child.start()
    given = ToldToken(1, 4, 0, [99], [b"y"], b"")
    child.append("ayyy", 2, [ToldToken(0, 1, 0, [5], [b"x"], b""), given], 0)
    assert (child.open_told[1].start, child.open_told[1].end, child.open_told[1].rank) == (1, 4, 2)
    assert child.open_told[1].logprobs == chosen.logprobs
    child.append("z", 3, [told(4, 5, 11)], 2)
    child.finish("stop")
    assert len(child.entries[-1].told) == 3
    assert session.tree is child.tree
    assert len(session.tree.siblings(child.entries[-1].turn_id)) == 2, "it is another reply in this one's place"


def test_of_a_reply_that_is_gone_on_with_all_tokens_have_their_places():
    session = ChatSession(1)
    session.ask("Hi", 1)
    session.append("ab", 2, [told(0, 1, 5), told(1, 2, 6)], 0)
    session.finish("length")
    assert session.go_on(2)
    session.start()
    session.append("c", 1, [told(0, 1, 7)], 0)
    session.finish("stop")
    assert [(token.token_ids[0], token.start, token.end) for token in session.entries[-1].told] == [
        (5, 0, 1), (6, 1, 2), (7, 2, 3)
    ]  # fmt: skip


def test_of_one_whose_first_part_nobody_knows_nothing_is_told():
    session = ChatSession(1)
    session.ask("Hi", 1)
    session.append("ab", 2)
    session.finish("length")
    assert session.go_on(2)
    session.append("c", 1, [told(0, 1, 7)], 0)
    session.finish("stop")
    assert session.entries[-1].told == ()


def test_a_reply_that_is_told_anew_takes_the_place_of_what_was_there():
    session = ChatSession(1)
    session.ask("Hi", 1)
    session.append("The sea", 2, anew=True)
    session.append("A boat", 2, anew=True)
    assert session.open_text == "A boat"
    session.append(" left", 3)
    assert session.open_text == "A boat left"


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


def test_the_fork_of_a_reply_that_goes_on_has_its_text_once():
    session = ChatSession(1)
    cut_short(session)
    assert session.go_on(2)
    session.start()
    session.append("a time ", 2)
    child = session.fork(7, 3)
    assert child.open_text == "Once upon a time "
    child.start()
    child.append("a time ", 2)
    child.append("there was", 4)
    assert child.open_text == "Once upon a time there was"
