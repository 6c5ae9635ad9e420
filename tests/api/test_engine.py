"""The engine step by step without a real model: requests come and go at any time, and are read as they come."""

from functools import partial

import msgspec
import pytest

from pagedchat import LLM, LLMEngine, RequestOutput, RequestOutputKind, SamplingParams
from pagedchat.bench.step.host import TimedCore
from pagedchat.config import EngineConfig, ModelConfig
from pagedchat.engine.limits import EngineLimits
from pagedchat.errors import IntegrityError, InvalidValueError, RequestError
from tests.api.fakes_llm import FakeLoadedModel, use_fake_model
from tests.fakes import EOS, USER, FakeModelRunner, NextToken, byte_tokenizer, reciting
from tests.faulty_tokenizer import FaultyTokenizer, PanicException

GREEDY = SamplingParams(temperature=0, max_tokens=6)
FINAL = SamplingParams(temperature=0, max_tokens=6, output_kind=RequestOutputKind.FINAL_ONLY)
DELTA = SamplingParams(temperature=0, max_tokens=6, output_kind=RequestOutputKind.DELTA)


@pytest.fixture
def loaded() -> FakeLoadedModel:
    return FakeLoadedModel()


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch, loaded: FakeLoadedModel) -> LLMEngine:
    use_fake_model(monkeypatch, loaded)
    return LLMEngine(EngineConfig())


def reciting_engine(monkeypatch: pytest.MonkeyPatch, text: str, **changes: object) -> LLMEngine:
    runner = FakeModelRunner(reciting(byte_tokenizer(), text, USER))
    use_fake_model(monkeypatch, FakeLoadedModel(runner=runner, **changes))
    return LLMEngine(EngineConfig())


def run_dry(engine: LLMEngine) -> list[RequestOutput]:
    outputs = []
    while engine.has_unfinished_requests():
        outputs += engine.step()
    return outputs


def lengths(outputs: list[RequestOutput]) -> list[tuple[str, int, bool]]:
    return [(output.request_id, len(output.outputs[0].token_ids), output.finished) for output in outputs]


def replies(outputs: list[RequestOutput]) -> dict[str, list[int]]:
    return {output.request_id: output.outputs[0].token_ids for output in outputs if output.finished}


def alone(monkeypatch: pytest.MonkeyPatch, prompt: str) -> list[int]:
    """What a prompt gets when it is the only one."""
    use_fake_model(monkeypatch)
    [output] = LLM("fake").generate(prompt, GREEDY)
    return output.outputs[0].token_ids


# --- outputs ------------------------------------------------------------------------------------------


def test_every_step_tells_all_so_far(engine: LLMEngine) -> None:
    engine.add_request("a", "Hello", GREEDY)
    steps = []
    while engine.has_unfinished_requests():
        steps.append(engine.step())
    told = [output for outputs in steps for output in outputs]
    assert lengths(told) == [("a", count, count == 6) for count in range(1, 7)]
    assert max(map(len, steps)) == 1
    last = told[-1]
    assert (last.prompt, last.prompt_token_ids) == ("Hello", byte_tokenizer().encode("Hello").ids)
    assert last.outputs[0].text == byte_tokenizer().decode(last.outputs[0].token_ids)
    assert [output.outputs[0].finish_reason for output in told] == [None] * 5 + ["length"]


def test_deltas_are_what_came_since(engine: LLMEngine) -> None:
    engine.add_request("a", "Hello", DELTA)
    told = run_dry(engine)
    assert [len(output.outputs[0].token_ids) for output in told] == [1] * 6
    engine.add_request("a", "Hello", FINAL)
    [whole] = run_dry(engine)
    assert [token for output in told for token in output.outputs[0].token_ids] == whole.outputs[0].token_ids
    assert "".join(output.outputs[0].text for output in told) == whole.outputs[0].text


def test_final_only_has_one_output_with_everything(engine: LLMEngine) -> None:
    engine.add_request("all", "Hello", GREEDY)
    engine.add_request("last", "Hello", FINAL)
    told = run_dry(engine)
    assert [output.request_id for output in told].count("last") == 1
    assert replies(told)["last"] == replies(told)["all"]


def test_a_piece_of_a_prompt_brings_no_output(monkeypatch: pytest.MonkeyPatch) -> None:
    limits = EngineLimits(num_blocks=64, block_size=4, model_len=128, max_num_batched_tokens=8)
    use_fake_model(monkeypatch, FakeLoadedModel(limits=limits))
    engine = LLMEngine(EngineConfig())
    engine.add_request("a", "x" * 20, GREEDY)
    assert [len(engine.step()) for _ in range(3)] == [0, 0, 1]


def test_text_of_a_delta_that_is_held_back_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = reciting_engine(monkeypatch, "aé STOP.")
    stop = SamplingParams(max_tokens=20, stop=["STOP"], output_kind=RequestOutputKind.DELTA)
    engine.add_request("a", USER, stop)
    told = run_dry(engine)
    assert [output.outputs[0].text for output in told] == ["a", "", "é", " ", "", "", "", ""]
    assert (told[-1].finished, told[-1].outputs[0].finish_reason) == (True, "stop")


def test_same_tokens_as_generate_gives(monkeypatch: pytest.MonkeyPatch, engine: LLMEngine) -> None:
    prompts = [f"Prompt number {number}" for number in range(12)]
    params = [SamplingParams(temperature=0, max_tokens=1 + number % 5) for number in range(12)]
    for number, (prompt, one) in enumerate(zip(prompts, params, strict=True)):
        engine.add_request(str(number), prompt, one)
    told = {output.request_id: output for output in run_dry(engine)}
    use_fake_model(monkeypatch)
    outputs = LLM("fake").generate(prompts, params, use_tqdm=False)
    whenever = partial(msgspec.structs.replace, metrics=None)
    assert [whenever(told[output.request_id]) for output in outputs] == list(map(whenever, outputs))


# --- how a reply ends ---------------------------------------------------------------------------------


def test_stop_string_ends_the_request_in_the_step_that_completes_it(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = reciting_engine(monkeypatch, "One. Two. Three.")
    engine.add_request("a", USER, SamplingParams(temperature=0, max_tokens=50, stop=["Two"]))
    told = run_dry(engine)
    assert len(told) == len("One. Two")
    assert (told[-1].outputs[0].text, told[-1].outputs[0].finish_reason) == ("One. ", "stop")
    assert engine.stats().steps == len("One. Two")


def test_stop_string_of_one_does_not_end_another(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = reciting_engine(monkeypatch, "One. Two. Three.")
    engine.add_request("stops", USER, SamplingParams(temperature=0, max_tokens=8, stop=["Two"]))
    engine.add_request("goes on", USER, SamplingParams(temperature=0, max_tokens=8))
    told = {output.request_id: output.outputs[0] for output in run_dry(engine)}
    assert [told[name].finish_reason for name in ("stops", "goes on")] == ["stop", "length"]
    assert [told[name].text for name in ("stops", "goes on")] == ["One. ", "One. Two"]


def test_end_of_sequence_is_counted_but_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    eos = byte_tokenizer().token_to_id(EOS)
    limits = EngineLimits(num_blocks=64, block_size=4, model_len=128, eos_token_ids=frozenset([eos]))
    engine = reciting_engine(monkeypatch, f"Yes.{EOS}", limits=limits)
    engine.add_request("a", USER, SamplingParams(temperature=0, max_tokens=50))
    last = run_dry(engine)[-1].outputs[0]
    assert (last.text, last.finish_reason, last.token_ids[-1]) == ("Yes.", "stop", eos)


# --- requests that come and go ------------------------------------------------------------------------


def test_requests_may_be_added_and_aborted_between_steps(
    monkeypatch: pytest.MonkeyPatch, engine: LLMEngine
) -> None:
    engine.add_request("a", "Hello", GREEDY)
    told = [output for _ in range(2) for output in engine.step()]
    engine.add_request("b", "Something else", GREEDY)
    engine.add_request("c", "Never finished", GREEDY)
    told += engine.step() + engine.step()
    assert engine.get_num_unfinished_requests() == 3
    engine.abort_request("c")
    assert engine.get_num_unfinished_requests() == 2
    told += run_dry(engine)
    assert "c" not in replies(told)
    assert replies(told) == {"a": alone(monkeypatch, "Hello"), "b": alone(monkeypatch, "Something else")}
    assert (engine.stats().blocks_in_use, engine.stats().num_parked) == (0, 0)


def test_aborted_request_has_no_more_outputs_and_leaves_its_blocks(engine: LLMEngine) -> None:
    for name in ("a", "b", "c"):
        engine.add_request(name, f"Hello {name}", SamplingParams(max_tokens=None))
    engine.step()
    engine.abort_request(["a", "b", "c"])
    assert not engine.has_unfinished_requests()
    assert engine.step() == []
    assert engine.stats().blocks_in_use == 0


def test_unknown_and_finished_requests_are_passed_over(engine: LLMEngine) -> None:
    engine.add_request("a", "Hello", GREEDY)
    engine.abort_request("b")
    engine.abort_request(["b", "c"])
    assert len(replies(run_dry(engine))["a"]) == 6
    engine.abort_request("a")
    assert not engine.has_unfinished_requests()


def test_id_that_is_taken_is_refused(engine: LLMEngine) -> None:
    engine.add_request("a", "Hello", GREEDY)
    with pytest.raises(InvalidValueError, match="There is an unfinished request 'a' already"):
        engine.add_request("a", "Something else", GREEDY)
    assert engine.get_num_unfinished_requests() == 1
    [output] = [output for output in run_dry(engine) if output.finished]
    assert output.prompt == "Hello"


@pytest.mark.parametrize("leaves", ["finished", "aborted"])
def test_id_is_free_again_when_its_request_has_left(engine: LLMEngine, leaves: str) -> None:
    engine.add_request("a", "Hello", GREEDY)
    if leaves == "aborted":
        engine.abort_request("a")
    else:
        run_dry(engine)
    engine.add_request("a", "Something else", GREEDY)
    assert run_dry(engine)[-1].prompt == "Something else"


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        ("", "The prompt has no tokens"),
        ("x" * 128, "the model's context is 128"),
        ({"prompt_token_ids": [1, 5000]}, "Token id 5000 is outside"),
        ("\ud800", "not valid Unicode"),
    ],
)
def test_prompt_that_is_refused_touches_no_other(
    monkeypatch: pytest.MonkeyPatch, engine: LLMEngine, bad: object, sentence: str
) -> None:
    engine.add_request("good", "Hello", GREEDY)
    told = engine.step()
    with pytest.raises(RequestError, match=sentence):
        engine.add_request("bad", bad, GREEDY)  # type: ignore[arg-type]
    assert engine.get_num_unfinished_requests() == 1
    told += run_dry(engine)
    assert replies(told) == {"good": alone(monkeypatch, "Hello")}
    engine.add_request("bad", "Better now", GREEDY)
    assert len(replies(run_dry(engine))["bad"]) == 6


def test_who_makes_a_step_fail_ends_alone(
    engine: LLMEngine, loaded: FakeLoadedModel, caplog: pytest.LogCaptureFixture
) -> None:
    bad = engine.encoder.encode("bad")
    loaded.runner.next_token = failing_on(bad, loaded.runner.next_token)
    engine.add_request("a", "good", GREEDY)
    engine.add_request("b", "bad", GREEDY)
    finished = {output.request_id: output for output in run_dry(engine) if output.finished}
    assert finished["b"].outputs[0].finish_reason == "error"
    assert len(finished["a"].outputs[0].token_ids) == 6
    assert "cannot sample" in caplog.text
    assert engine.stats().blocks_in_use == 0


def failing_on(tokens: list[int], next_token: NextToken) -> NextToken:
    """The same, but for a sequence that begins with these tokens."""

    def choose(token_ids: list[int]) -> int:
        if token_ids[: len(tokens)] == tokens:
            raise ValueError("cannot sample")
        return next_token(token_ids)

    return choose


def test_engine_goes_on_after_a_step_failed(engine: LLMEngine, loaded: FakeLoadedModel) -> None:
    engine.add_request("a", "Hello", GREEDY)
    loaded.runner.fail_next = RuntimeError("out of memory")
    with pytest.raises(RuntimeError, match="out of memory"):
        engine.step()
    engine.abort_request("a")
    engine.add_request("b", "Hello", GREEDY)
    assert len(replies(run_dry(engine))["b"]) == 6


def test_without_parameters_those_of_the_model_are_used(engine: LLMEngine) -> None:
    engine.add_request("a", "Hello")
    assert len(run_dry(engine)[-1].outputs[0].token_ids) == engine.sampling_defaults.max_tokens


def test_tokens_that_were_found_in_the_cache_are_told_at_the_end(engine: LLMEngine) -> None:
    prompt = "A prompt of some length"
    for name, num_cached in (("first", 0), ("second", 22)):
        engine.add_request(name, prompt, GREEDY)
        told = run_dry(engine)
        assert [output.num_cached_tokens for output in told] == [0] * 5 + [num_cached]


# --- without a tokenizer ------------------------------------------------------------------------------


def test_tokens_need_no_tokenizer_and_stop_strings_do(monkeypatch: pytest.MonkeyPatch) -> None:
    use_fake_model(monkeypatch, FakeLoadedModel(tokenizer=None, chat_template=None))
    engine = LLMEngine(EngineConfig(model=ModelConfig(skip_tokenizer_init=True)))
    engine.add_request("a", {"prompt_token_ids": [5, 6, 7]}, GREEDY)
    told = run_dry(engine)
    assert [output.outputs[0].text for output in told] == [""] * 6
    assert len(told[-1].outputs[0].token_ids) == 6
    for prompt, params in (("Hello", GREEDY), ({"prompt_token_ids": [5]}, SamplingParams(stop=["x"]))):
        with pytest.raises(RequestError, match="No tokenizer was loaded"):
            engine.add_request("b", prompt, params)  # type: ignore[arg-type]


# --- a core of somebody else's ------------------------------------------------------------------------


def test_engine_runs_on_a_core_that_is_given(loaded: FakeLoadedModel) -> None:
    core = TimedCore(loaded.limits, loaded.runner)
    engine = LLMEngine.from_loaded(loaded, core)  # type: ignore[arg-type]
    engine.add_request("a", "Hello", GREEDY)
    others = core.open()
    core.extend(others, [5, 6, 7], SamplingParams(max_tokens=2))
    assert replies(run_dry(engine)).keys() == {"a"}
    assert len(core.steps) == 6
    assert core.sequences.keys() == {others}


# --- what befalls one request -------------------------------------------------------------------------


@pytest.mark.parametrize("error", [KeyError("lost"), PanicException("index")], ids=["exception", "panic"])
def test_tokens_that_cannot_become_text_end_their_own_request(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, error: BaseException
) -> None:
    tokenizer = FaultyTokenizer("Two", error)
    engine = reciting_engine(monkeypatch, "One. Two, Three.", tokenizer=tokenizer)
    engine.add_request("short", USER, SamplingParams(temperature=0, max_tokens=4))
    engine.add_request("long", USER, SamplingParams(temperature=0, max_tokens=16))
    told = {output.request_id: output.outputs[0] for output in run_dry(engine)}
    assert (told["short"].text, told["short"].finish_reason) == ("One.", "length")
    assert told["long"].finish_reason == "error"
    assert told["long"].text in "One. Two, "
    assert any(record.exc_info and "'long'" in record.getMessage() for record in caplog.records)
    engine._core.check_integrity()
    assert engine._core.sequences == {}


def test_text_that_fails_at_the_very_end_is_an_error_too(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = reciting_engine(monkeypatch, "Two", tokenizer=FaultyTokenizer("Two", KeyError("lost")))
    engine.add_request("a", USER, SamplingParams(temperature=0, max_tokens=3))
    assert run_dry(engine)[-1].outputs[0].finish_reason == "error"


def test_broken_books_end_no_request_in_silence(monkeypatch: pytest.MonkeyPatch) -> None:
    engine = reciting_engine(monkeypatch, "Two", tokenizer=FaultyTokenizer("Two", IntegrityError("twice")))
    engine.add_request("a", USER, SamplingParams(temperature=0, max_tokens=3))
    with pytest.raises(IntegrityError, match="twice"):
        run_dry(engine)
