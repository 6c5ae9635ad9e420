"""Several answers to one prompt, and beam searches, as the library tells them; without a real model."""

import pytest

from pagedchat import LLM, BeamSearchParams, LLMEngine, RequestOutput, RequestOutputKind, SamplingParams
from pagedchat.config import EngineConfig
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.output import ModelRunnerOutput, SchedulerOutput
from pagedchat.errors import InvalidValueError, RequestError
from tests.api.fakes_llm import VOCAB_SIZE, A, FakeLoadedModel, LikelyRunner, use_fake_model
from tests.fakes import EOS, byte_tokenizer

LIMITS = EngineLimits(num_blocks=64, block_size=4, model_len=128, vocab_size=VOCAB_SIZE)


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> FakeLoadedModel:
    loaded = FakeLoadedModel(runner=LikelyRunner(), limits=LIMITS)
    use_fake_model(monkeypatch, loaded)
    return loaded


@pytest.fixture
def llm(loaded: FakeLoadedModel) -> LLM:
    return LLM("fake")


@pytest.fixture
def engine(loaded: FakeLoadedModel) -> LLMEngine:
    return LLMEngine(EngineConfig())


def run_dry(engine: LLMEngine) -> list[RequestOutput]:
    outputs = []
    while engine.has_unfinished_requests():
        outputs += engine.step()
    return outputs


# --- several answers ------------------------------------------------------------------------------------


def test_every_answer_is_what_its_seed_gives_alone(llm: LLM) -> None:
    [output] = llm.generate("Hello", SamplingParams(n=3, seed=5, max_tokens=6))
    alone = [llm.generate("Hello", SamplingParams(seed=5 + i, max_tokens=6))[0].outputs[0] for i in range(3)]
    assert [one.index for one in output.outputs] == [0, 1, 2]
    assert [one.text for one in output.outputs] == [one.text for one in alone]
    assert len({one.text for one in output.outputs}) == 3
    assert llm.stats().blocks_in_use == 0


@pytest.mark.parametrize("max_tokens", [1, 5])
def test_every_answer_has_the_logprobs_of_its_own_tokens(llm: LLM, max_tokens: int) -> None:
    [output] = llm.generate("Hello", SamplingParams(n=3, seed=5, max_tokens=max_tokens, logprobs=0))
    for one in output.outputs:
        assert one.logprobs is not None
        assert [next(iter(each)) for each in one.logprobs] == one.token_ids


def test_answers_end_one_by_one_and_the_request_with_the_last(llm: LLM) -> None:
    [output] = llm.generate("Hello", SamplingParams(n=3, seed=5, max_tokens=30, stop=["zabc"]))
    reasons = {(one.finish_reason, "z" in one.text) for one in output.outputs}
    assert reasons == {("stop", False)}
    assert len({len(one.token_ids) for one in output.outputs}) == 3
    assert output.finished


def test_a_stream_tells_all_answers_side_by_side(engine: LLMEngine) -> None:
    engine.add_request("a", "Hello", SamplingParams(n=2, seed=1, max_tokens=4))
    told = run_dry(engine)
    assert [[len(one.token_ids) for one in output.outputs] for output in told] == [
        [1, 0], [2, 1], [3, 2], [4, 3], [4, 4],
    ]  # fmt: skip
    assert [output.finished for output in told] == [False] * 4 + [True]


def test_deltas_of_several_answers_add_up(engine: LLMEngine) -> None:
    delta = SamplingParams(n=2, seed=1, max_tokens=4, output_kind=RequestOutputKind.DELTA)
    engine.add_request("a", "Hello", delta)
    told = run_dry(engine)
    engine.add_request("b", "Hello", SamplingParams(n=2, seed=1, max_tokens=4))
    whole = run_dry(engine)[-1]
    for index in (0, 1):
        pieces = [one for output in told for one in output.outputs if one.index == index]
        assert "".join(one.text for one in pieces) == whole.outputs[index].text
        assert [one.finish_reason for one in pieces] == [None] * 3 + ["length"]
    assert [output.finished for output in told] == [False] * 4 + [True]


@pytest.mark.parametrize("num_steps", [0, 1, 3])
def test_an_aborted_request_gives_the_blocks_of_all_answers_back(engine: LLMEngine, num_steps: int) -> None:
    engine.add_request("a", "Hello", SamplingParams(n=4, max_tokens=9))
    for _ in range(num_steps):
        engine.step()
    assert engine.stats().blocks_in_use == [0, 2, 2, 5][num_steps]
    engine.abort_request("a")
    assert (engine.has_unfinished_requests(), engine.stats().blocks_in_use) == (False, 0)
    engine.add_request("a", "Hello", SamplingParams(max_tokens=2))
    assert run_dry(engine)[-1].finished


def test_the_likeliest_of_many_answers_are_told(llm: LLM) -> None:
    [all_of_them] = llm.generate("Hello", SamplingParams(n=4, seed=19, max_tokens=3, logprobs=0))
    [best] = llm.generate("Hello", SamplingParams(n=2, best_of=4, seed=19, max_tokens=3))
    ranked = sorted(all_of_them.outputs, key=lambda one: -one.cumulative_logprob)
    assert [one.text for one in best.outputs] == [one.text for one in ranked[:2]]
    assert [(one.index, one.logprobs) for one in best.outputs] == [(0, None), (1, None)]
    assert ranked[0].index != 0


@pytest.mark.parametrize(
    ("name", "params"),
    [
        ("best_of", {"n": 3, "best_of": 2}), ("best_of", {"best_of": 0}),
        ("best_of", {"best_of": 2, "temperature": 0}), ("n", {"n": 2, "temperature": 0}),
    ],
)  # fmt: skip
def test_numbers_of_answers_that_cannot_be_are_named(name: str, params: dict[str, object]) -> None:
    with pytest.raises(InvalidValueError, match=rf"^{name} is"):
        SamplingParams(**params)


def test_more_answers_than_the_cache_holds_are_named_and_none_is_run(llm: LLM, loaded: FakeLoadedModel) -> None:
    with pytest.raises(RequestError, match=r"^n is 64: .* at least 65 blocks, but the KV cache has 64"):
        llm.generate(["Hi", "Hello"], SamplingParams(n=64))
    assert (loaded.runner.batches, llm.stats().blocks_in_use) == ([], 0)


# --- beam search ----------------------------------------------------------------------------------------


def test_a_beam_search_tells_tokens_sums_and_texts(llm: LLM) -> None:
    prompts = ["Hello", {"prompt_token_ids": [A, A + 1]}]
    first, second = llm.beam_search(prompts, BeamSearchParams(beam_width=2, max_tokens=3))
    hello = byte_tokenizer().encode("Hello").ids
    assert first.sequences[0].tokens == [*hello, A + 5, A + 6, A + 7]
    assert first.sequences[0].text == "Hellofgh"
    assert first.sequences[0].cum_logprob == pytest.approx(-3.0)
    assert [one.finish_reason for one in first.sequences] == ["length", "length"]
    assert second.sequences[1].cum_logprob == pytest.approx(-3.1)
    assert llm.stats().blocks_in_use == 0


def test_beams_of_several_prompts_run_in_one_batch(llm: LLM, loaded: FakeLoadedModel) -> None:
    llm.beam_search(["Hello", "World"], BeamSearchParams(beam_width=3, max_tokens=4))
    assert [len(batch) for batch in loaded.runner.batches] == [2, 6, 6, 6]


def test_requests_and_searches_run_beside_each_other(engine: LLMEngine) -> None:
    engine.add_request("a", "Hello", SamplingParams(temperature=0, max_tokens=6))
    engine.add_beam_search("b", "Hello", BeamSearchParams(2, 3))
    with pytest.raises(InvalidValueError, match="unfinished request 'b'"):
        engine.add_request("b", "Hello")
    assert engine.get_num_unfinished_requests() == 2
    assert engine.take_beam_search("b") is None
    assert run_dry(engine)[-1].outputs[0].text == "aaaaaa"
    found = engine.take_beam_search("b")
    assert found is not None
    assert (len(found.sequences), engine.take_beam_search("b")) == (2, None)


def test_an_aborted_search_gives_its_blocks_back(engine: LLMEngine) -> None:
    engine.add_beam_search("b", "Hello", BeamSearchParams(4, 9))
    engine.step()
    engine.step()
    engine.abort_request("b")
    assert (engine.has_unfinished_requests(), engine.stats().blocks_in_use) == (False, 0)


@pytest.mark.parametrize(
    ("message", "params"),
    [
        ("max_tokens is 124", BeamSearchParams(2, 124)),
        ("beam_width is 32", BeamSearchParams(32, 4)),
    ],
)
def test_a_search_that_cannot_be_is_named_and_nothing_is_run(
    monkeypatch: pytest.MonkeyPatch, message: str, params: BeamSearchParams
) -> None:
    limits = EngineLimits(num_blocks=32, block_size=4, model_len=128, vocab_size=VOCAB_SIZE)
    loaded = FakeLoadedModel(runner=LikelyRunner(), limits=limits)
    use_fake_model(monkeypatch, loaded)
    llm = LLM("fake")
    with pytest.raises(RequestError, match=message):
        llm.beam_search(["a", "Hello"], params)
    assert (loaded.runner.batches, llm.stats().blocks_in_use) == ([], 0)


def test_what_are_no_parameters_is_named(llm: LLM) -> None:
    with pytest.raises(InvalidValueError, match="params is"):
        llm.beam_search("Hello", SamplingParams())


def test_a_search_that_fails_says_so_and_others_go_on(
    llm: LLM, loaded: FakeLoadedModel, caplog: pytest.LogCaptureFixture
) -> None:
    inner = loaded.runner.execute

    def execute(batch: SchedulerOutput) -> ModelRunnerOutput:
        output = inner(batch)
        if any(part.sequence.token_ids[:2] == [EOS_ID] * 2 and part.start > 1 for part in batch.scheduled):
            raise ValueError("no luck")
        return output

    loaded.runner.execute = execute
    bad, good = llm.beam_search([{"prompt_token_ids": [EOS_ID, EOS_ID]}, "Hello"], BeamSearchParams(2, 3))
    assert {one.finish_reason for one in bad.sequences} == {"error"}
    assert {one.finish_reason for one in good.sequences} == {"length"}
    assert "ended by an error" in caplog.text
    assert llm.stats().blocks_in_use == 0


EOS_ID = byte_tokenizer().token_to_id(EOS)
