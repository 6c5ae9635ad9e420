"""Prompts that take their time to become text: steps go on, and whatever a session does meanwhile is done."""

import queue
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagedchat import events as ev
from pagedchat.chat.model_template import TemplateJob, run_template
from pagedchat.chat.template import ChatTemplate
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.errors import RequestError
from pagedchat.service import commands as cmd
from pagedchat.service.loop import EngineLoop, Received
from pagedchat.service.rendering import RenderAside, Rendered, RenderJob
from pagedchat.service.text_model import TextModel
from pagedchat.service.wire import FrameWriter, event_reader
from tests.fakes import CHAT_TEMPLATE, byte_tokenizer
from tests.service.engine_rig import EngineRig, ask


class LaterRenderer:
    """Keeps every job until the test says what becomes of it."""

    def __init__(self) -> None:
        self.jobs: dict[int, RenderJob] = {}
        """By request."""

    def submit(self, job: RenderJob) -> None:
        self.jobs[job.command.request_id] = job


class LateRig(EngineRig):
    """An engine whose prompts become text when `write` says so."""

    def __init__(self) -> None:
        self.renderer = LaterRenderer()
        super().__init__(renderer=self.renderer)

    def write(self, *request_ids: int, error: BaseException | None = None) -> None:
        for request_id in request_ids:
            job = self.renderer.jobs[request_id]
            self.loop.handle(Received(Rendered(job, f"<|user|>{job.command.turns[-1].text}", error), self.clock()))

    def fate(self, request_id: int) -> list[str]:
        """What was told of a request, in order."""
        kinds = (ev.RequestStarted, ev.RequestFinished, ev.RequestFailed)
        told = [event for event in self.events if isinstance(event, kinds) and event.request_id == request_id]
        return [event.reason if isinstance(event, ev.RequestFinished) else type(event).__name__ for event in told]


@pytest.fixture
def rig() -> LateRig:
    return LateRig()


def test_steps_go_on_while_a_prompt_becomes_text(rig):
    rig.send(ask(2, 20, "good", max_tokens=50))
    rig.write(20)
    rig.step(3)
    rig.send(ask(1, 10, "Hi", max_tokens=4))
    rig.step(5)
    assert (rig.fate(10), rig.loop.chats.awaits_text) == ([], True)
    rig.write(10)
    rig.run_dry()
    assert rig.fate(10) == ["RequestStarted", "length"]
    assert rig.finished(20).num_tokens == 50
    assert not rig.loop.chats.awaits_text


def test_the_reply_before_ends_when_the_next_is_asked_for(rig):
    rig.send(ask(1, 10, "Hi"))
    rig.write(10)
    rig.step(3)
    rig.send(ask(1, 11, "Ho", max_tokens=2))
    assert rig.fate(10) == ["RequestStarted", "abort"]
    rig.write(11)
    rig.run_dry()
    assert rig.fate(11) == ["RequestStarted", "length"]


def test_time_to_the_first_token_counts_from_the_question(rig):
    rig.send(ask(1, 10, "Hi", max_tokens=1))
    rig.clock.advance(1.5)
    rig.write(10)
    rig.run_dry()
    assert 1.5 < rig.finished(10).time_to_first_token < 1.6


def test_stop_ends_a_request_without_text(rig):
    rig.send(ask(1, 10, "Hi"))
    rig.clock.advance(0.5)
    rig.send(cmd.Stop(1), cmd.Stop(1))
    assert rig.fate(10) == ["abort"]
    assert (rig.finished(10).num_tokens, rig.finished(10).duration) == (0, 0.5)
    assert not rig.renderer.jobs[10].wanted
    rig.write(10)
    assert (rig.fate(10), rig.core.sequences, rig.loop.may_step) == (["abort"], {}, False)
    rig.send(ask(1, 11, "Hi", max_tokens=2))
    rig.write(11)
    rig.run_dry()
    assert rig.fate(11) == ["RequestStarted", "length"]


def test_close_ends_it_and_its_text_is_nobodys_even_if_the_number_is_taken_again(rig):
    rig.send(ask(1, 10, "Hi"), cmd.Close(1), ask(1, 11, "Ho", max_tokens=2))
    rig.write(10)
    assert rig.core.sequences == {}
    rig.write(11)
    rig.run_dry()
    assert (rig.fate(10), rig.fate(11)) == (["abort"], ["RequestStarted", "length"])
    assert rig.held_text(1).startswith("<|user|>Ho")


@pytest.mark.parametrize("order", [(10, 11), (11, 10)])
def test_of_two_prompts_of_one_session_the_second_counts(rig, order):
    rig.send(ask(1, 10, "Hi"), ask(1, 11, "Ho", max_tokens=2))
    rig.write(*order)
    rig.run_dry()
    assert (rig.fate(10), rig.fate(11)) == (["abort"], ["RequestStarted", "length"])
    assert rig.held_text(1).startswith("<|user|>Ho")


@pytest.mark.parametrize("history", [False, True])
@pytest.mark.parametrize("order", [(12, 20), (20, 12)])
def test_fork_of_a_session_whose_prompt_is_not_text_yet_is_asked_the_same(rig, history, order):
    if history:
        rig.send(ask(1, 10, "Before", max_tokens=3))
        rig.write(10)
        rig.run_dry()
    rig.send(ask(1, 12, "Hi", max_tokens=9, seed=7), cmd.Fork(1, 2, 20))
    rig.write(*order)
    assert rig.core.sequences[1].seed == 7 != rig.core.sequences[2].seed
    rig.run_dry()
    assert rig.fate(12) == rig.fate(20) == ["RequestStarted", "length"]
    assert rig.held_text(1).startswith("<|user|>Hi")
    assert rig.held_text(2).startswith("<|user|>Hi")
    rig.core.check_integrity()


def test_fork_goes_on_when_its_source_is_stopped_and_ends_alone(rig):
    rig.send(ask(1, 10, "Hi", max_tokens=3), cmd.Fork(1, 2, 20), cmd.Fork(1, 3, 30), cmd.Stop(1), cmd.Close(3))
    rig.write(10, 20, 30)
    rig.run_dry()
    assert [rig.fate(i) for i in (10, 20, 30)] == [["abort"], ["RequestStarted", "length"], ["abort"]]
    assert set(rig.core.sequences) == {2}


def test_focus_while_a_prompt_becomes_text_counts(rig):
    rig.send(ask(1, 10, "Hi"), cmd.Focus(1))
    rig.write(10)
    assert rig.core.sequences[1].priority == 1


def test_prompt_that_gets_no_text_fails_and_the_next_is_served(rig):
    rig.send(ask(1, 10, "Hi"))
    rig.write(10, error=RequestError("The model's chat template did not finish within 2 s.", "Use raw mode."))
    (failed,) = rig.of(ev.RequestFailed)
    assert (failed.request_id, failed.hint) == (10, "Use raw mode.")
    rig.send(ask(1, 11, "Ho"))
    rig.write(11, error=KeyError("a defect"))
    assert "pagedchat's own" in rig.of(ev.RequestFailed, 11)[0].message
    rig.send(ask(1, 12, "Ha", max_tokens=1))
    rig.write(12)
    rig.run_dry()
    assert rig.fate(12) == ["RequestStarted", "length"]


def test_what_an_error_quotes_can_be_sent(rig):
    rig.send(ask(1, 10, "Hi"))
    rig.write(10, error=RequestError("The model's chat template refuses this: \ud800" + "x" * 10_000, "\udfff"))
    (failed,) = rig.of(ev.RequestFailed)
    frame = bytes(FrameWriter().frame(failed))
    assert list(event_reader().feed(frame)) == [failed]
    assert (len(failed.message), failed.message[-2:], failed.hint) == (2000, "x…", "?")


def test_engine_that_crashes_leaves_prompts_without_text_to_the_next_one(rig):
    rig.send(ask(1, 10, "Hi"), ask(2, 20, "Ho"))
    rig.write(20)
    rig.loop.chats.fail_all("The engine crashed.", "Ask again.")
    assert (rig.fate(10), rig.fate(20)) == ([], ["RequestStarted", "RequestFailed"])


def test_spare_work_waits_and_steps_asked_for_are_kept_while_a_prompt_becomes_text(rig):
    def work() -> bool:
        assert rig.fate(10)[-1:] == ["length"]
        rig.inbox.put(Received(cmd.Shutdown(), 0.0))
        return False

    def clock() -> float:
        rig.clock.advance(0.03)
        return rig.clock()

    loop = EngineLoop(rig.core, rig.loop.chats, rig.loop.programs, rig.publisher, rig.inbox, clock, spare_work=work)
    text = threading.Event()

    def write() -> None:  # when the loop waits for it
        text.wait()
        rig.inbox.put(Received(Rendered(rig.renderer.jobs[10], "<|user|>Hi"), 0.0))

    thread = threading.Thread(target=write)
    thread.start()
    for command in (cmd.Pause(), ask(1, 10, "Hi", max_tokens=3), cmd.StepOnce(3)):
        loop.handle(Received(command, 0.0))
    assert loop.seconds_to_step() is None
    text.set()
    loop.run()
    thread.join()
    assert rig.core.stats().steps == 3


SESSIONS = st.integers(1, 3)
ACTIONS = st.lists(
    st.one_of(
        st.tuples(st.just("ask"), SESSIONS, SESSIONS),
        st.tuples(st.just("fork"), SESSIONS, st.integers(1, 5)),
        st.tuples(st.sampled_from(["stop", "close", "focus"]), SESSIONS, SESSIONS),
        st.tuples(st.sampled_from(["write", "fail", "step"]), st.integers(0, 30), SESSIONS),
    ),
    max_size=30,
)


@settings(deadline=None, max_examples=60)
@given(ACTIONS)
def test_every_request_ends_once_whatever_happens_while_prompts_become_text(actions):
    rig, requests = LateRig(), []
    for kind, number, other in actions:
        request_id = 100 + len(requests)
        match kind:
            case "ask":
                requests.append(request_id)
                rig.send(ask(number, request_id, "Hi" * other, max_tokens=other))
            case "fork" if other not in rig.core.sequences and other not in rig.loop.chats._awaited:
                requests.append(request_id)
                rig.send(cmd.Fork(number, other, request_id))
            case "stop" | "close" | "focus":
                rig.send({"stop": cmd.Stop, "close": cmd.Close, "focus": cmd.Focus}[kind](number))
            case "write" | "fail" if 100 + number in rig.renderer.jobs:
                rig.write(100 + number, error=KeyError("a defect") if kind == "fail" else None)
            case "step" if rig.loop.may_step:
                rig.step()
    rig.write(*rig.renderer.jobs)
    rig.run_dry()
    for request_id in requests:
        fate = rig.fate(request_id)
        assert len(fate) in (1, 2)
        assert fate[0] == "RequestStarted" or len(fate) == 1
        assert fate[-1] != "RequestStarted"
    assert not rig.loop.chats.awaits_text
    rig.core.check_integrity()
    assert set(rig.mirror().sequences) == set(rig.core.sequences)


# --- the thread ---------------------------------------------------------------------------------------


def aside(
    run=run_template, source: str | None = CHAT_TEMPLATE
) -> tuple[RenderAside, "queue.SimpleQueue[Rendered]"]:
    answers: queue.SimpleQueue[Rendered] = queue.SimpleQueue()
    text_model = TextModel(byte_tokenizer(), ChatTemplate(source, None, run), SamplingParams())
    return RenderAside(text_model, answers.put), answers


def job(request_id: int, text: str = "Hi", **options) -> RenderJob:
    return RenderJob(ask(1, request_id, text, **options), SamplingParams(), 0.0)


def test_texts_come_in_order():
    renderer, answers = aside()
    jobs = [job(i, f"number {i}") for i in range(5)]
    assert [renderer.submit(each) for each in jobs] == [None] * 5
    told = [answers.get(timeout=20) for _ in jobs]
    assert [rendered.job for rendered in told] == jobs
    assert told[3].text == "<|user|>number 3</s><|assistant|>"


def test_what_needs_no_template_of_a_checkpoint_is_written_at_once():
    renderer, answers = aside()
    assert renderer.submit(job(1, raw=True)) == "Hi"
    plain, _ = aside(source=None)
    assert plain.submit(job(1)) == "User: Hi\nAssistant:"
    assert answers.empty()


@pytest.mark.parametrize("error", [RequestError("It loops."), KeyError("a defect")])
def test_errors_are_answers_and_the_thread_goes_on(error):
    def run(asked: TemplateJob) -> str:
        if asked.messages[0]["content"] != "good":
            raise error
        return "text"

    renderer, answers = aside(run)
    renderer.submit(job(1, "bad"))
    renderer.submit(job(2, "good"))
    assert answers.get(timeout=20).error is error
    assert answers.get(timeout=20).text == "text"


def test_what_is_not_wanted_any_more_is_not_written():
    entered, go_on, written = threading.Event(), threading.Event(), []

    def run(asked: TemplateJob) -> str:
        written.append(asked.messages[0]["content"])
        if written[-1] == "first":
            entered.set()
            go_on.wait()
        return ""

    renderer, answers = aside(run)
    first, second, third = job(1, "first"), job(2, "second"), job(3, "third")
    renderer.submit(first)
    entered.wait()
    renderer.submit(second)
    renderer.submit(third)
    second.wanted = False
    go_on.set()
    assert [answers.get(timeout=20).job for _ in range(2)] == [first, third]
    assert written == ["", "first", "third"]
