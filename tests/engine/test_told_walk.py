"""What is told of tokens is told of the right ones, whatever becomes of their sequences: random workloads."""

import random
import weakref

import pytest

from pagedchat.engine import scheduler
from pagedchat.engine.batch import Lockstep
from pagedchat.engine.output import ModelRunner, ModelRunnerOutput, ScheduledSequence, SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence, TokenLogprobs
from pagedchat.engine.tokens.logprobs import keep_logprobs, keep_logprobs_of_run, num_told
from tests.engine import walk

SEEDS_IN_A_GROUP, OPERATIONS = 20, 200


class TellingRunner:
    """Tells of every token that is asked for: the token itself, and where it stands. Beams hear what they go by."""

    def __init__(self, inner: ModelRunner) -> None:
        self.inner = inner

    def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        of_prompts = [
            [_entry(part.sequence, part.start + 1 + i) for i in range(num_told(part))] for part in batch.scheduled
        ]
        assert sum(map(len, of_prompts)) <= scheduler.MOST_TOLD
        output = self.inner.execute(batch)
        output.prompt_logprobs = of_prompts
        of_beams = output.logprobs or [[] for _ in batch.scheduled]
        output.logprobs = [
            self._told(part.sequence, tokens, of_beam)
            for part, tokens, of_beam in zip(batch.scheduled, output.token_ids, of_beams, strict=True)
        ]
        return output

    def _told(self, seq: Sequence, tokens: list[int], of_beam: list[TokenLogprobs]) -> list[TokenLogprobs]:
        if _is_beam(seq):
            return of_beam
        if seq.sampling_params.logprobs is None:
            return []
        return [TokenLogprobs([token], [-float(len(seq) + i)], 1) for i, token in enumerate(tokens)]

    def check(self) -> None:
        self.inner.check()


class Telling(walk.Walk):
    """Looks at what was told after every operation."""

    def __init__(self, seed: int) -> None:
        super().__init__(seed)
        self.engine.runner = TellingRunner(self.runner)
        self.num_told = 0

    def check(self) -> None:
        super().check()
        for seq in self.engine.sequences.values():
            if _is_beam(seq):
                continue
            places = range(1, seq.num_prompt_tokens)
            assert all(told == _entry(seq, i) for i, told in zip(places, seq.prompt_logprobs, strict=False))
            places = range(seq.num_prompt_tokens, len(seq))
            if seq.sampling_params.logprobs is not None and seq.status != "parked":
                assert len(seq.logprobs) == len(places)
            assert all(told == _entry(seq, i) for i, told in zip(places, seq.logprobs, strict=False))
            if seq.finish_reason in ("stop", "length") and seq.sampling_params.prompt_logprobs is not None:
                self.num_told += len(seq.prompt_logprobs) == seq.num_prompt_tokens - 1


def _is_beam(seq: Sequence) -> bool:
    return seq.group is not None and seq.group.kind == "beams"


def _entry(seq: Sequence, place: int) -> TokenLogprobs:
    return TokenLogprobs([seq.token_ids[place]], [-float(place)], 1)


@pytest.mark.parametrize("first", [500, 520, 540])
def test_told_tokens_are_those_of_the_sequence(first: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "MOST_TOLD", 3)
    choose = random.Random(1)

    def params(**given: object) -> SamplingParams:
        asked = {"logprobs": choose.choice([None, 0]), "prompt_logprobs": choose.choice([None, 0])}
        return SamplingParams(**given, **asked)  # type: ignore[arg-type]

    monkeypatch.setattr(walk, "SamplingParams", params)
    walks = [Telling(seed) for seed in range(first, first + SEEDS_IN_A_GROUP)]
    seen = sum((each.run(OPERATIONS) for each in walks), walk.Counter())
    assert seen["preemptions"] > 10
    assert sum(each.num_told for each in walks) > 100


def test_a_run_that_had_searches_has_what_is_told_later_read_at_once() -> None:
    """By the same rule as of any step: what comes after the token that ended a reply is dropped."""
    told = {place: TokenLogprobs([place], [-1.0], 1) for place in range(2)}
    first, ended = Sequence(1), Sequence(2)
    first.token_ids, first.num_prompt_tokens = [7, 8], 1
    ended.token_ids, ended.num_prompt_tokens = [7], 1
    scheduled = [ScheduledSequence(seq, 0, 1, samples=True) for seq in (first, ended)]
    keep_logprobs(scheduled, ModelRunnerOutput([[8], []], told_later=told))
    assert (first.logprobs, ended.logprobs) == ([told[0]], [])


def test_steps_of_a_long_run_go_when_all_have_read_them() -> None:
    """In order, whoever reads each step's and whoever the last one's alone."""

    class Step:
        def __init__(self, number: int) -> None:
            self.number = number

        def __getitem__(self, place: int) -> TokenLogprobs:
            return TokenLogprobs([self.number, place], [-1.0], 1)

    early, late = Sequence(1), Sequence(2)
    early.stop_length = late.stop_length = 1000
    run, steps = Lockstep([early, late]), []
    for number in range(600):
        step = Step(number)
        steps.append(weakref.ref(step))
        keep_logprobs_of_run(run, ModelRunnerOutput([[7], [7]], told_later=step))
        del step
        assert len(early.logprobs) == number + 1
    assert all(step() is not None for step in steps), "one has still to read them"
    assert [told.token_ids for told in late.logprobs] == [[number, 1] for number in range(600)]
    assert [told.token_ids for told in early.logprobs] == [[number, 0] for number in range(600)]
    assert sum(step() is not None for step in steps) < 256
