"""What befalls one session stays with it: an error that nobody expected ends its request and no other."""

import logging
from collections.abc import Callable

import pytest

from pagedchat import events as ev
from pagedchat.errors import IntegrityError, RequestError
from pagedchat.service import commands as cmd
from tests.fakes import FakeModelRunner, byte_tokenizer, reciting
from tests.faulty_tokenizer import FaultyTokenizer, PanicException
from tests.service.engine_rig import EngineRig, ask
from tests.service.fake_engine import BLOCK_SIZE

TOKENIZER = byte_tokenizer()
ERRORS = [KeyError("lost"), RuntimeError("a defect"), MemoryError(), PanicException("index out of range")]


def rig_with(tokenizer: FaultyTokenizer) -> EngineRig:
    """Session 1 asks for "bad" and gets a Z; whoever asks for anything else gets none."""
    recite_bad = reciting(TOKENIZER, "fine so farZ and on</s>")
    recite_good = reciting(TOKENIZER, "all well here, all well</s>")
    bad = TOKENIZER.encode("bad", add_special_tokens=False).ids

    def next_token(token_ids: list[int]) -> int:
        marked = any(token_ids[i : i + 3] == bad for i in range(len(token_ids)))
        return (recite_bad if marked else recite_good)(token_ids)

    return EngineRig(FakeModelRunner(next_token, BLOCK_SIZE), tokenizer=tokenizer)


def assert_only_the_first_failed(rig: EngineRig, said: str) -> None:
    (failed,) = rig.of(ev.RequestFailed)
    assert (failed.session_id, failed.request_id) == (1, 10)
    assert failed.message.startswith("This reply ended by an error of pagedchat's own")
    assert said in failed.message
    assert "log" in failed.hint
    assert rig.of(ev.RequestFinished, 10) == []
    assert rig.text(20) == "all well here, all well"
    assert rig.finished(20).reason == "stop"
    rig.core.check_integrity()
    assert set(rig.core.sequences) == set(rig.mirror().sequences) == {2}


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_tokens_that_cannot_become_text_end_their_own_reply(error, caplog):
    rig = rig_with(FaultyTokenizer("Z", error))
    rig.send(ask(1, 10, "bad"), ask(2, 20, "good"))
    rig.run_dry()
    assert_only_the_first_failed(rig, str(error) or type(error).__name__)
    assert "fine so far".startswith(rig.text(10) or "nothing")
    assert any(record.exc_info for record in caplog.records if record.levelno == logging.ERROR)


def test_a_panic_while_a_prompt_is_encoded_ends_that_request_alone():
    rig = rig_with(FaultyTokenizer("bad", PanicException("overflow"), decodes=False, encodes=True))
    rig.send(ask(2, 20, "good"), ask(1, 10, "bad"))
    rig.run_dry()
    assert_only_the_first_failed(rig, "overflow")


def test_a_prompt_that_fails_between_its_verbs_leaves_no_sequence_behind(monkeypatch):
    rig = rig_with(FaultyTokenizer("never", KeyError()))
    rig.send(ask(2, 20, "good"))
    rig.step()
    monkeypatch.setattr(rig.loop.chats._text_model.__class__, "request", failing_for(1, RuntimeError("half way")))
    rig.send(ask(1, 10, "bad"))
    monkeypatch.undo()
    rig.run_dry()
    assert_only_the_first_failed(rig, "half way")


def failing_for(session_id: int, error: Exception) -> Callable[..., object]:
    def request(_text_model: object, command: cmd.Generate, *_rest: object) -> object:
        assert command.session_id == session_id
        raise error

    return request


def test_a_session_that_failed_asks_again_and_is_answered():
    rig = rig_with(FaultyTokenizer("Z", KeyError("lost")))
    rig.send(ask(1, 10, "bad"))
    rig.run_dry()
    rig.send(ask(1, 11, "ok"))
    rig.run_dry()
    assert rig.text(11) == "all well here, all well"
    rig.core.check_integrity()


def test_a_session_that_failed_may_be_stopped_forked_and_closed():
    rig = rig_with(FaultyTokenizer("Z", KeyError("lost")))
    rig.send(ask(1, 10, "bad"))
    rig.run_dry()
    rig.send(cmd.Stop(1), cmd.Fork(1, 2, 20), cmd.Focus(1), cmd.Close(1), cmd.Close(2))
    assert rig.finished(20).num_tokens == 0
    assert len(rig.of(ev.RequestFailed)) == 1
    assert rig.core.sequences == {}


def test_the_last_text_of_a_session_that_is_closed_may_fail():
    rig = rig_with(FaultyTokenizer("fin", KeyError("lost")))
    rig.send(ask(2, 20, "good"), ask(1, 10, "bad"))
    rig.step(2)
    rig.core.step()  # a token that has not become text yet
    rig.send(cmd.Close(1))
    rig.run_dry()
    (failed,) = rig.of(ev.RequestFailed)
    assert failed.request_id == 10
    assert set(rig.core.sequences) == {2}
    rig.core.check_integrity()


@pytest.mark.parametrize("command", [cmd.Stop(1), cmd.Close(1), cmd.Focus(1)], ids=lambda c: type(c).__name__)
@pytest.mark.parametrize("error", [KeyError("lost"), RequestError("There is no sequence 1.")])
def test_command_that_fails_ends_the_request_of_its_session_alone(monkeypatch, command, error):
    rig = rig_with(FaultyTokenizer("never", KeyError()))
    rig.send(ask(2, 20, "good"), ask(1, 10, "bad"))
    rig.step(3)
    for verb in ("stop", "set_priority"):
        monkeypatch.setattr(rig.core, verb, raiser(error))
    rig.send(command)
    monkeypatch.undo()
    rig.run_dry()
    assert_only_the_first_failed(rig, "lost" if isinstance(error, KeyError) else "no sequence 1")


def raiser(error: Exception) -> Callable[..., None]:
    def verb(*_: object) -> None:
        raise error

    return verb


def test_broken_books_are_no_ones_own_error():
    rig = rig_with(FaultyTokenizer("Z", IntegrityError("block 3 is owned twice")))
    rig.send(ask(1, 10, "bad"))
    with pytest.raises(IntegrityError):
        rig.run_dry()
    assert rig.of(ev.RequestFailed) == []


def test_a_listener_that_is_gone_is_no_requests_error(monkeypatch):
    rig = rig_with(FaultyTokenizer("never", KeyError()))
    monkeypatch.setattr(rig.publisher, "_send", raise_gone)
    with pytest.raises(BrokenPipeError):
        rig.send(ask(1, 10, "hi"))


def raise_gone(_event: ev.EngineEvent) -> None:
    raise BrokenPipeError


def test_a_token_that_cannot_be_told_ends_no_reply(monkeypatch):
    rig = rig_with(FaultyTokenizer("never", KeyError()))
    monkeypatch.setattr(rig.loop.chats.feed._tokens, "_bytes_of", {}.__getitem__)
    rig.send(ask(2, 20, "good"))
    rig.run_dry()
    assert rig.text(20) == "all well here, all well"
    assert {text for told in rig.of(ev.TokenTexts) for text in told.texts} == {b""}


def test_a_step_that_fails_for_one_session_ends_its_reply_alone(caplog):
    bad, recite = (
        TOKENIZER.encode("bad", add_special_tokens=False).ids,
        reciting(TOKENIZER, "all well here, all well</s>"),
    )

    def next_token(token_ids: list[int]) -> int:
        if any(token_ids[i : i + 3] == bad for i in range(len(token_ids))):
            raise OverflowError("top_k is too large")
        return recite(token_ids)

    rig = EngineRig(FakeModelRunner(next_token, BLOCK_SIZE))
    rig.send(ask(1, 10, "bad"), ask(2, 20, "good"))
    rig.run_dry()
    assert_only_the_first_failed(rig, "top_k is too large")
    assert any(record.exc_info for record in caplog.records)
    rig.send(ask(1, 11, "fine"))
    rig.run_dry()
    assert rig.finished(11).reason == "stop"


def test_the_fork_of_a_chat_at_rest_is_told_the_figures_of_its_source():
    rig = EngineRig()
    rig.send(ask(1, 10, "Hello!", max_tokens=4))
    rig.run_dry()
    rig.send(cmd.Fork(1, 2, 20))
    source, fork = rig.finished(10), rig.finished(20)
    assert source.num_prompt_tokens > 0
    assert (fork.num_prompt_tokens, fork.num_tokens) == (source.num_prompt_tokens, source.num_tokens)
