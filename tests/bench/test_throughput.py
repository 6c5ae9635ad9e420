import pytest

from pagedchat.api.llm import LLM
from pagedchat.bench.throughput import ThroughputResult, Workload, measure_throughput
from tests.api.fakes_llm import use_fake_model
from tests.fakes import scrambled

WORKLOAD = Workload(num_sessions=3, prompt_tokens=9, new_tokens=4)


class Reference:
    """Answers as the fake model does; `wrong` makes its first token another one."""

    def __init__(self, wrong: bool = False) -> None:
        self.wrong = wrong
        self.batches: list[int] = []
        self.prompts: set[tuple[int, ...]] = set()

    def generate(self, prompts: list[list[int]], num_tokens: int) -> list[list[int]]:
        self.batches.append(len(prompts))
        self.prompts.update(map(tuple, prompts))
        return [self._reply(list(prompt), num_tokens) for prompt in prompts]

    def _reply(self, token_ids: list[int], num_tokens: int) -> list[int]:
        for _ in range(num_tokens):
            token_ids.append(scrambled(token_ids) + self.wrong)
        return token_ids[-num_tokens:]


@pytest.fixture
def llm(monkeypatch: pytest.MonkeyPatch) -> LLM:
    use_fake_model(monkeypatch)
    return LLM("fake")


def test_contenders_answer_new_prompts_in_turns(llm: LLM) -> None:
    reference, said = Reference(), []
    result = measure_throughput(llm, reference, WORKLOAD, 2, said.append)  # type: ignore[arg-type]
    assert reference.batches == [1, 1, 1, 1, 3] * 3  # a warm-up and two runs: alone, three in turn, three at once
    assert len(reference.prompts) == 9
    assert said[1:] == ["throughput, run 1 of 2", "throughput, run 2 of 2"]
    assert all(len(seconds) == 2 for seconds in result.seconds.values())


def test_speed_is_generated_tokens_over_the_median_run(llm: LLM) -> None:
    result = measure_throughput(llm, Reference(), WORKLOAD, 1)  # type: ignore[arg-type]
    [seconds] = result.seconds["pagedchat_3"]
    assert result.tokens_per_second["pagedchat_3"] == pytest.approx(12 / seconds, rel=0.1)
    assert result.ratio("pagedchat_3", "pagedchat_3") == 1.0


@pytest.mark.parametrize(("wrong", "same"), [(False, True), (True, False)])
def test_whether_all_agree_is_said(llm: LLM, wrong: bool, same: bool) -> None:
    result = measure_throughput(llm, Reference(wrong), WORKLOAD, 1)  # type: ignore[arg-type]
    assert result.same_tokens is same


def test_spread_is_that_of_the_most_uneven_contender() -> None:
    result = ThroughputResult(
        workload=WORKLOAD,
        repeats=3,
        tokens_per_second={},
        seconds={"a": [1.0, 1.1, 1.05], "b": [2.0, 2.0, 5.0]},
        same_tokens=True,
    )
    assert result.spread == 2.5
