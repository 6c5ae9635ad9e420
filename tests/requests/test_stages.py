"""When requests came how far, by clocks that a test moves."""

import pytest

from pagedchat import RequestOutputKind, SamplingParams
from pagedchat.engine.core import EngineCore
from pagedchat.engine.limits import EngineLimits
from pagedchat.outputs import RequestStateStats
from pagedchat.requests.requests import Requests
from pagedchat.requests.stages import Stages
from tests.fakes import FakeModelRunner, byte_tokenizer, reciting

LIMITS = EngineLimits(num_blocks=64, block_size=16, model_len=100, vocab_size=300, max_num_seqs=1)
NOON = 1_800_000_000.0


class Rig:
    """A step takes a second, of which nobody tells: as if all of it were over at once when it is told."""

    def __init__(self) -> None:
        self.now = 100.0
        runner = FakeModelRunner(reciting(byte_tokenizer(), "abcdefgh"))
        self.core = EngineCore(LIMITS, runner, clock=lambda: self.now)
        stages: Stages[str] = Stages(lambda: self.now, lambda: NOON + self.now)
        self.requests: Requests[str] = Requests(self.core, None, stages)

    def add(self, key: str, kind: RequestOutputKind = RequestOutputKind.FINAL_ONLY, max_tokens: int = 3) -> None:
        params = SamplingParams(temperature=0, max_tokens=max_tokens, ignore_eos=True, output_kind=kind)
        self.requests.add(key, [1, 2, 3], params)

    def step(self) -> dict[str, RequestStateStats | None]:
        report = self.core.step()
        self.now += 1
        self.requests.follow(report)
        told = self.requests.take_news()
        return {request.key: self.requests.output(request, repeats_prompt=False).metrics for request in told}


def test_each_request_has_the_times_of_its_stages() -> None:
    rig = Rig()
    rig.add("first")
    rig.now = 102.0
    rig.add("second")
    told: dict[str, RequestStateStats | None] = {}
    while rig.core.has_work:
        told |= rig.step()
    first, second = told["first"], told["second"]
    assert first == RequestStateStats(
        num_generation_tokens=3, arrival_time=NOON + 100, queued_ts=100, scheduled_ts=103, first_token_ts=103,
        last_token_ts=105, first_token_latency=3,
    )  # fmt: skip
    assert first is not None
    assert second is not None
    assert (first.time_in_queue, first.first_token_time, first.last_token_time) == (3, NOON + 103, NOON + 105)
    assert (second.queued_ts, second.scheduled_ts, second.last_token_ts) == (102, 106, 108)
    assert second.first_scheduled_time == NOON + 106


def test_of_what_has_not_come_yet_nothing_is_said() -> None:
    rig = Rig()
    rig.add("first", RequestOutputKind.DELTA)
    rig.add("second", RequestOutputKind.CUMULATIVE)
    first = rig.step()["first"]
    assert first is not None
    assert first.num_generation_tokens == 1
    waiting = next(request for request in rig.requests._requests.values() if request.key == "second")
    seen = waiting.output(rig.now).metrics
    assert seen is not None
    assert (seen.scheduled_ts, seen.first_scheduled_time, seen.time_in_queue, seen.first_token_time) == (
        0,
        None,
        None,
        None,
    )


def test_outputs_between_the_first_and_the_last_do_without_where_bytes_count() -> None:
    rig = Rig()
    rig.add("only", RequestOutputKind.DELTA, max_tokens=5)
    seen = [rig.step()["only"] for _ in range(5)]
    assert [each is None for each in seen] == [False, True, True, True, False]


def test_nothing_is_kept_of_who_leaves() -> None:
    rig = Rig()
    rig.add("gone")
    rig.add("computing")
    rig.step()
    rig.requests.abort(["gone", "computing"])
    assert not rig.requests._stages._waiting
    assert not rig.requests._stages._computing


@pytest.mark.parametrize("count", [1, 3])
def test_tokens_of_all_answers_count(count: int) -> None:
    rig = Rig()
    params = SamplingParams(n=count, max_tokens=2, ignore_eos=True, output_kind=RequestOutputKind.FINAL_ONLY)
    rig.requests.add("several", [1, 2, 3], params)
    told: dict[str, RequestStateStats | None] = {}
    while rig.core.has_work:
        told |= rig.step()
    assert told["several"] is not None
    assert told["several"].num_generation_tokens == 2 * count
