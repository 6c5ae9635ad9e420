"""Requests of programs in the engine process: when they are told, and what befalls one of them and no other."""

import logging
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagedchat import events as ev
from pagedchat.cache_events import FIRST_OF_PROGRAMS
from pagedchat.engine.output import ModelRunnerOutput, SchedulerOutput
from pagedchat.engine.sampling_params import RequestOutputKind, SamplingParams
from pagedchat.errors import IntegrityError, RequestError
from pagedchat.outputs import RequestOutput
from pagedchat.service import commands as cmd
from pagedchat.service.loop import Received
from pagedchat.service.prompts import Prepared, PromptJob
from tests.fakes import FakeClock, FakeModelRunner, byte_tokenizer, reciting
from tests.faulty_tokenizer import FaultyTokenizer, PanicException
from tests.service.engine_rig import EngineRig, ask
from tests.service.fake_engine import BLOCK_SIZE

TOKENIZER = byte_tokenizer()
ENDLESS = SamplingParams(temperature=0, max_tokens=None)
FINAL = RequestOutputKind.FINAL_ONLY


class LatePreparer:
    """Keeps every job until the test says what becomes of it."""

    def __init__(self) -> None:
        self.jobs: dict[int, PromptJob] = {}

    def submit(self, job: PromptJob) -> Prepared | None:
        self.jobs[job.command.request_id] = job
        return None


def told(rig: EngineRig, request_id: int) -> list[RequestOutput]:
    events = rig.of(ev.RequestOutputs)
    pairs = [pair for event in events for pair in zip(event.request_ids, event.outputs, strict=True)]
    return [output for number, output in pairs if number == request_id]


def text(rig: EngineRig, request_id: int) -> str:
    return "".join(one.text for output in told(rig, request_id) for one in output.outputs)


def add(request_id: int, prompt: str = "Hello", **params: Any) -> cmd.AddRequest:
    return cmd.AddRequest(request_id, prompt, SamplingParams(**{"temperature": 0, "max_tokens": None, **params}))


def refusal(rig: EngineRig) -> ev.RequestRefused:
    [event] = rig.of(ev.RequestRefused)
    return event


# --- when ---------------------------------------------------------------------------------------------


class SlowTokenizer:
    """Takes a millisecond of the rig's clock for every text."""

    def __init__(self) -> None:
        self.rig: EngineRig | None = None

    decoder = None

    def __getattr__(self, name: str) -> Any:
        return getattr(TOKENIZER, name)

    def decode(self, token_ids: list[int], **options: Any) -> str:
        if self.rig is not None:
            self.rig.clock.advance(0.001)
        decoded: str = TOKENIZER.decode(token_ids, **options)
        return decoded


def test_every_step_is_told_where_that_costs_nothing() -> None:
    rig = EngineRig()
    rig.send(add(1))
    rig.publisher.flush()
    rig.clock.advance(-0.01)  # a screen's turn is not due for a while
    for count in range(1, 4):
        rig.clock.advance(-0.009)
        rig.step()
        assert len(told(rig, 1)) == count
    assert rig.of(ev.Steps)[-1].reports[-1].step == 0


def test_telling_takes_no_more_than_a_twentieth_of_the_time_but_beginnings_and_ends_are_told_at_once() -> None:
    tokenizer = SlowTokenizer()
    rig = tokenizer.rig = EngineRig(tokenizer=tokenizer)
    rig.send(add(1, max_tokens=400))
    steps = 0
    while rig.loop.may_step:
        rig.clock.advance(-0.0095)  # a step takes half a millisecond
        rig.step()
        steps += 1
        if steps == 100:
            rig.send(add(2, max_tokens=300))
            rig.step()
            assert len(told(rig, 2)) == 1
    assert text(rig, 1) == TOKENIZER.decode([i for one in told(rig, 1) for i in one.outputs[0].token_ids])
    assert told(rig, 1)[-1].finished
    assert told(rig, 2)[-1].finished
    assert 5 < len(told(rig, 1)) < 30


def test_of_many_requests_no_more_is_told_in_a_second_than_can_be_passed_on() -> None:
    rig = EngineRig()
    for number in range(1, 21):
        rig.send(add(number, "a", max_tokens=40))
    rig.step()
    assert all(len(told(rig, number)) == 1 for number in range(1, 21))  # those that begin are told at once
    rig.publisher.flush()
    began = rig.clock.now
    while rig.loop.may_step:
        rig.clock.advance(-0.0095)  # a step takes half a millisecond
        rig.step()
    seconds = rig.clock.now - began
    outputs = [told(rig, number) for number in range(1, 21)]
    assert all(sum(len(output.outputs[0].token_ids) for output in each) == 40 for each in outputs)
    assert 3 <= len(outputs[0]) - 2 <= seconds * 4000 / 20 + 1  # beside the first one and the last


class TimedRunner(FakeModelRunner):
    """Its steps take sixteen milliseconds of the rig's clock."""

    clock: FakeClock | None = None

    def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        if self.clock is not None:
            self.clock.advance(0.016)
        return super().execute(batch)


def timed_rig(num_requests: int, **params: Any) -> EngineRig:
    """With so many requests that have begun, every text of which takes a while."""
    tokenizer, runner = SlowTokenizer(), TimedRunner(block_size=BLOCK_SIZE)
    rig = tokenizer.rig = EngineRig(runner, tokenizer=tokenizer)
    runner.clock = rig.clock
    for number in range(num_requests):
        rig.send(add(number, f"{number} is asked", **params))
    while any(not told(rig, number) for number in range(num_requests)):
        rig.step()
    rig.publisher.flush()
    rig.events.clear()
    return rig


def outputs_events(rig: EngineRig) -> list[list[int]]:
    return [event.request_ids for event in rig.of(ev.RequestOutputs)]


def test_text_of_many_is_gathered_beside_several_steps_and_told_at_once() -> None:
    rig = timed_rig(8)
    while not rig.loop.programs._round.is_on:
        assert rig.of(ev.RequestOutputs) == []
        rig.loop.step()
    steps = 1
    while rig.loop.programs._round.is_on:
        rig.loop.step()
        steps += 1
    assert 2 <= steps <= 8  # a quarter of a step is enough for one of eight texts, or for some of them
    assert outputs_events(rig) == [[*range(8)]]
    [event] = rig.of(ev.RequestOutputs)
    counts = [len(output.outputs[0].token_ids) for output in event.outputs]
    assert counts == sorted(counts)
    assert counts[-1] - counts[0] == steps - 1


def test_what_cannot_wait_is_told_behind_what_was_gathered_by_then() -> None:
    rig = timed_rig(6)
    while not rig.loop.programs._round.is_on:
        rig.loop.step()
    rig.send(add(77, "one more"), cmd.AbortRequests([1]))
    while not told(rig, 77):
        rig.loop.step()
    while rig.loop.programs._round.is_on:
        rig.loop.step()
    first, *others = outputs_events(rig)
    assert first[0] == 0
    assert first[-1] == 77
    assert sorted([*first, *(number for event in others for number in event)]) == [0, 2, 3, 4, 5, 77]


@settings(deadline=None, max_examples=30)
@given(
    events=st.lists(st.sampled_from(["step", "add", "abort", "single"]), min_size=20, max_size=60),
    num_requests=st.integers(1, 12),
)
def test_whatever_comes_amid_it_every_token_is_told_once_and_in_order(events: list[str], num_requests: int) -> None:
    rig = timed_rig(num_requests, max_tokens=24, temperature=0)
    begun = {
        number: rig.core.sequences[FIRST_OF_PROGRAMS + number].output_token_ids for number in range(num_requests)
    }
    replies = {number: rig.loop.programs._requests._requests[number].first.reply for number in range(num_requests)}
    gone = set[int]()
    for place, event in enumerate(events):
        if event == "add":
            rig.send(add(100 + place, f"{place} comes later", max_tokens=9))
            replies[100 + place] = rig.loop.programs._requests._requests[100 + place].first.reply
        elif event == "abort" and len(replies) > len(gone):
            number = sorted(replies.keys() - gone)[place % (len(replies) - len(gone))]
            gone.add(number)
            rig.send(cmd.AbortRequests([number]))
        elif event == "single":
            rig.send(cmd.Pause(), cmd.StepOnce(1))
        if rig.loop.may_step:
            rig.loop.step()
        if event == "single":
            rig.send(cmd.Resume())
    while rig.loop.may_step:
        rig.loop.step()
    for number, reply in replies.items():
        tokens = [token for output in told(rig, number) for token in output.outputs[0].token_ids]
        whole = reply.token_ids[len(begun.get(number, [])) :]
        assert tokens == (whole if number not in gone else whole[: len(tokens)])
        assert number in gone or told(rig, number)[-1].finished


def test_who_wants_the_end_alone_is_told_nothing_before() -> None:
    rig = EngineRig()
    rig.send(add(1, max_tokens=9, output_kind=FINAL), add(2, "Other", max_tokens=9))
    rig.step(8)
    assert told(rig, 1) == []
    assert len(told(rig, 2)) == 8
    rig.step()
    [output] = told(rig, 1)
    assert (output.finished, len(output.outputs[0].token_ids)) == (True, 9)
    assert len(output.outputs[0].text) == len(text(rig, 2)) == 9


def test_single_steps_are_told() -> None:
    rig = EngineRig()
    rig.send(add(1), cmd.Pause(), cmd.StepOnce(2))
    rig.step(2)
    assert not rig.loop.may_step
    assert len(told(rig, 1)) == 2
    rig.send(cmd.AbortRequests([1]))
    assert len(rig.loop.programs) == 0


# --- beside sessions ----------------------------------------------------------------------------------


def test_sessions_and_programs_have_numbers_of_their_own() -> None:
    rig = EngineRig()
    rig.send(add(1, n=2, temperature=1.0, seed=1), ask(1, 1, "Hi"), add(2))
    rig.step(3)
    assert set(rig.core.sequences) == {1, *range(FIRST_OF_PROGRAMS, FIRST_OF_PROGRAMS + 3)}
    assert rig.of(ev.RequestFailed) == []
    rig.send(cmd.Fork(1, 2, 5), cmd.AbortRequests([1, 2, 99]))
    assert set(rig.core.sequences) == {1, 2}
    rig.send(cmd.Close(1), cmd.Close(2))
    rig.publisher.flush()
    assert rig.core.blocks.pool.num_in_use == 0
    assert rig.mirror().sequences == {}


def test_a_limit_says_whom_it_preempts() -> None:
    rig = EngineRig()
    rig.send(add(1, "x" * 40), ask(7, 1, "y" * 40), add(2, "z" * 40))
    rig.step(3)
    rig.send(cmd.SetLimit(8))
    [notice] = rig.of(ev.EngineNotice)
    assert notice.message == "Limit 8: 492 blocks withheld, 1 chat preempted, 2 requests preempted."


# --- what befalls one of them -------------------------------------------------------------------------


def rig_with(tokenizer: Any) -> EngineRig:
    """Who asks for "bad" gets a Z; whoever asks for anything else gets none."""
    recite_bad = reciting(TOKENIZER, "fine so farZ and on</s>", "d")
    recite_good = reciting(TOKENIZER, "all well here, all well</s>", "d")
    bad = TOKENIZER.encode("bad", add_special_tokens=False).ids

    def next_token(token_ids: list[int]) -> int:
        return (recite_bad if token_ids[: len(bad)] == bad else recite_good)(token_ids)

    return EngineRig(FakeModelRunner(next_token, BLOCK_SIZE), tokenizer=tokenizer)


@pytest.mark.parametrize("error", [KeyError("lost"), MemoryError(), PanicException("out of range")], ids=repr)
@pytest.mark.parametrize("kind", [FINAL, RequestOutputKind.DELTA])
def test_tokens_that_cannot_become_text_end_their_own_reply(
    error: BaseException, kind: RequestOutputKind, caplog: pytest.LogCaptureFixture
) -> None:
    rig = rig_with(FaultyTokenizer("Z", error))
    rig.send(add(1, "bad", output_kind=kind), add(2, "good", max_tokens=23))
    rig.step(23)
    rig.send(cmd.AbortRequests([1]))
    if kind is not FINAL:
        assert told(rig, 1)[-1].outputs[0].finish_reason == "error"
        assert any(record.exc_info for record in caplog.records if record.levelno == logging.ERROR)
    assert text(rig, 2) == "all well here, all well"
    assert rig.core.sequences == {}
    rig.core.check_integrity()


def test_a_panic_while_a_prompt_is_encoded_ends_that_request_alone(caplog: pytest.LogCaptureFixture) -> None:
    rig = rig_with(FaultyTokenizer("bad", PanicException("overflow"), decodes=False, encodes=True))
    rig.send(add(2, "good", max_tokens=5), add(1, "bad"))
    failed = refusal(rig)
    assert (failed.request_id, failed.kind) == (1, "request")
    assert failed.message == "This request ended by an error of pagedchat's own: overflow."
    assert "log" in failed.hint
    rig.step(5)
    assert text(rig, 2) == "all w"
    assert rig.core.sequences == {}
    assert any(record.exc_info for record in caplog.records)


def test_an_error_of_one_part_of_a_step_ends_its_own_request() -> None:
    rig = EngineRig()
    rig.send(add(1), add(2, max_tokens=5))
    rig.step()
    first = FIRST_OF_PROGRAMS
    rig.core.failures[first] = KeyError("lost")
    rig.core.stop(first, "error")
    rig.loop._settle()
    rig.run_dry()
    assert told(rig, 1)[-1].outputs[0].finish_reason == "error"
    assert told(rig, 2)[-1].outputs[0].finish_reason == "length"
    assert rig.core.sequences == {}


def test_what_is_not_one_requests_alone_ends_the_engine() -> None:
    rig = rig_with(FaultyTokenizer("bad", IntegrityError("1 and 2"), decodes=False, encodes=True))
    with pytest.raises(IntegrityError):
        rig.send(add(1, "bad"))


def test_an_engine_that_cannot_go_on_says_so_to_all() -> None:
    late = LatePreparer()
    rig = EngineRig(preparer=late)
    rig.send(add(1), add(2))
    rig.loop.handle(received(rig, rig.workshop.prepare(late.jobs[1])))
    rig.step()
    rig.loop.programs.fail_all("It crashed.", "Ask again.")
    wanted = [ev.RequestRefused(number, "It crashed.", "Ask again.", "engine") for number in (1, 2)]
    assert rig.of(ev.RequestRefused) == wanted


@pytest.mark.parametrize("awaited", [True, False])
def test_a_number_that_is_taken_is_refused_and_the_first_goes_on(awaited: bool) -> None:
    late = LatePreparer()
    rig = EngineRig(preparer=late) if awaited else EngineRig()
    rig.send(add(1, max_tokens=4), add(1, "Other"))
    assert refusal(rig).kind == "value"
    assert refusal(rig).message == "There is an unfinished request 1 already."
    if awaited:
        rig.loop.handle(received(rig, rig.workshop.prepare(late.jobs[1])))
    rig.run_dry()
    assert len(text(rig, 1)) == 4


# --- prompts that take their time ---------------------------------------------------------------------


def received(rig: EngineRig, prepared: Prepared) -> Any:
    from pagedchat.service.loop import Received

    return Received(prepared, rig.clock())


def test_steps_go_on_while_a_prompt_is_prepared() -> None:
    late = LatePreparer()
    rig = EngineRig(preparer=late)
    rig.send(add(1, max_tokens=3), cmd.Tokenize(2, "ab"), cmd.Detokenize(3, [70]), ask(1, 1, "Hi", max_tokens=5))
    assert rig.loop.programs.awaits_prompts
    rig.run_dry()
    assert rig.finished(1).num_tokens == 5
    for job in late.jobs.values():
        rig.loop.handle(received(rig, rig.workshop.prepare(job)))
    rig.run_dry()
    assert len(text(rig, 1)) == 3
    assert rig.of(ev.Tokenized) == [ev.Tokenized(2, TOKENIZER.encode("ab").ids)]
    assert rig.of(ev.Detokenized) == [ev.Detokenized(3, TOKENIZER.decode([70]))]
    assert not rig.loop.programs.awaits_prompts


def test_a_request_that_is_aborted_before_its_prompt_is_prepared_never_begins() -> None:
    late = LatePreparer()
    rig = EngineRig(preparer=late)
    rig.send(add(1), cmd.AbortRequests([1]))
    job = late.jobs[1]
    assert not job.wanted
    rig.send(add(1, max_tokens=2))
    rig.loop.handle(received(rig, rig.workshop.prepare(job)))
    assert rig.core.sequences == {}
    rig.loop.handle(received(rig, rig.workshop.prepare(late.jobs[1])))
    rig.run_dry()
    assert len(text(rig, 1)) == 2


def test_a_prompt_that_cannot_be_prepared_is_told() -> None:
    late = LatePreparer()
    rig = EngineRig(preparer=late)
    rig.send(add(1))
    rig.loop.handle(received(rig, Prepared(late.jobs[1], [], error=RequestError("No.", "Do."))))
    assert refusal(rig) == ev.RequestRefused(1, "No.", "Do.", "request")
    assert not rig.loop.programs.awaits_prompts


def test_steps_that_were_allowed_wait_for_a_prompt() -> None:
    late = LatePreparer()
    rig = EngineRig(preparer=late)
    rig.send(cmd.Pause(), add(1), cmd.StepOnce(1))
    assert rig.loop.turn(None) is None
    rig.loop.handle(received(rig, rig.workshop.prepare(late.jobs[1])))
    assert rig.loop.may_step


def test_requests_that_come_together_are_taken_in_together() -> None:
    rig = EngineRig()
    for request_id in (1, 2, 3):
        rig.inbox.put(Received(add(request_id, max_tokens=3), 0.0))
    while not rig.inbox.empty():
        rig.loop.handle(rig.inbox.get())
    rig.publisher.flush()
    [steps] = rig.of(ev.Steps)
    assert len(steps.reports) == 1
    rig.run_dry()
    ended = [told for event in rig.of(ev.RequestOutputs) for told in event.outputs if told.finished]
    assert sorted(output.request_id for output in ended) == ["1", "2", "3"]
