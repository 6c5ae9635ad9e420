import pytest

from pagedchat.bench.engine.measures import Figure, Meter
from pagedchat.bench.engine.workloads import ROWS, DecodeWork, PrefixWork, Prompts
from pagedchat.errors import PagedChatError
from tests.bench.engine_fakes import FakeEngine


def meter(engine: FakeEngine, repeats: int = 2) -> Meter:
    return Meter(engine, Prompts(1000), repeats, engine.clock)


def by_row(figures: list[Figure]) -> dict[str, float]:
    return {figure.row: figure.value for figure in figures}


def test_a_token_of_one_chat_is_what_a_call_takes_beyond_the_first_one() -> None:
    engine = FakeEngine()
    [figure] = meter(engine).decode(DecodeWork(num_chats=1, prompt_tokens=4, new_tokens=11))
    assert figure.runs == pytest.approx([100, 100])
    assert (figure.row, str(figure)) == ("decode_1_ms", "decode_1_ms 100.000 ms")
    assert [new_tokens for _, new_tokens in engine.asked] == [1, 11] * 4  # two warm-ups and two runs
    assert engine.settled_after == [2]


def test_tokens_a_second_of_the_whole_call_and_after_the_first_token() -> None:
    figures = meter(FakeEngine()).decode(DecodeWork(num_chats=8, prompt_tokens=4, new_tokens=11))
    assert by_row(figures) == pytest.approx({"output_8": 8 * 11 / 2, "decode_8": 80})


def test_first_tokens_of_fresh_prompts_and_of_one_seen_before() -> None:
    engine = FakeEngine()
    figures = meter(engine).first_token()
    assert by_row(figures) == dict.fromkeys(("first_32_ms", "first_1024_ms", "first_1024_again_ms"), 1000)
    assert [len(figure.runs) for figure in figures] == [2, 2, 2]
    prompts = [prompt for [prompt], _ in engine.asked]
    assert [len(prompt) for prompt in prompts] == [32, 1024, 1024] * 4
    assert prompts[1] == prompts[2] != prompts[4]
    assert engine.settled_after == [3]


def test_a_prefix_is_shared_within_a_run_and_new_in_the_next() -> None:
    engine = FakeEngine()
    work = PrefixWork(num_chats=3, prefix_tokens=20, own_tokens=5, new_tokens=11)
    assert by_row(meter(engine).prefix(work)) == pytest.approx({"prefix_new": 16.5, "prefix_cached": 16.5})
    heads = [{tuple(prompt[:20]) for prompt in prompts} for prompts, _ in engine.asked]
    assert [len(head) for head in heads] == [1] * 8
    assert engine.settled_after == [1, 2]
    assert (heads[0] == heads[1], heads[1] == heads[2]) == (True, False)
    assert len({tuple(prompt) for prompts, _ in engine.asked for prompt in prompts}) == 24


def test_an_engine_that_stops_early_is_not_measured() -> None:
    with pytest.raises(PagedChatError, match=r"gave 1 replies of \[0\] tokens, not 1 of 1"):
        meter(FakeEngine(lacks=1)).first_token()


def test_ratio_is_above_one_for_the_better_one() -> None:
    assert ROWS["decode_1_ms"].ratio(0.2, 1.0) == 5
    assert ROWS["output_64"].ratio(100, 50) == 2


def test_prompts_are_all_different_and_without_special_tokens() -> None:
    prompts = Prompts(50, seed=1).many(10, 30)
    assert len({tuple(prompt) for prompt in prompts}) == 10
    assert {token for prompt in prompts for token in prompt} <= set(range(4, 50))
    assert Prompts(50, seed=1).many(10, 30) == prompts
