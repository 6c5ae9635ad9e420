"""The offline API without a real model: prompts in, outputs in order, blocks left for the next call."""

import pytest

from pagedchat import LLM, RequestOutputKind, SamplingParams
from pagedchat.chat.template_process import TemplateProcess
from pagedchat.config import EngineConfig
from pagedchat.engine.limits import EngineLimits
from pagedchat.errors import EngineStateError, InvalidValueError, RequestError
from tests.api.fakes_llm import VOCAB_SIZE, FakeLoadedModel, use_fake_model
from tests.fakes import CHAT_TEMPLATE, EOS, USER, FakeModelRunner, byte_tokenizer, reciting, scrambled

GREEDY = SamplingParams(temperature=0, max_tokens=6)


@pytest.fixture
def loaded() -> FakeLoadedModel:
    return FakeLoadedModel()


@pytest.fixture
def llm(monkeypatch: pytest.MonkeyPatch, loaded: FakeLoadedModel) -> LLM:
    use_fake_model(monkeypatch, loaded)
    return LLM("fake")


def continuation(prompt_ids: list[int], count: int) -> list[int]:
    """What the fake model says after a prompt, worked out without an engine."""
    token_ids = list(prompt_ids)
    for _ in range(count):
        token_ids.append(scrambled(token_ids))
    return token_ids[len(prompt_ids) :]


def reciting_llm(monkeypatch: pytest.MonkeyPatch, text: str, after: str, **changes: object) -> LLM:
    runner = FakeModelRunner(reciting(byte_tokenizer(), text, after))
    use_fake_model(monkeypatch, FakeLoadedModel(runner=runner, **changes))
    return LLM("fake")


# --- arguments ----------------------------------------------------------------------------------------


def test_arguments_reach_the_config(monkeypatch: pytest.MonkeyPatch) -> None:
    configs = use_fake_model(monkeypatch)
    LLM(
        "m", device="cpu", dtype="float16", block_size=32, num_blocks=9, kv_cache_memory="1GiB", swap_space=77,
        max_num_seqs=3, max_num_batched_tokens=5, enable_prefix_caching=False, preemption_mode="swap", seed=4,
        tokenizer="t", skip_tokenizer_init=True, gpu_memory_utilization=0.5, attention_backend="torch",
    )  # fmt: skip
    [config] = configs
    assert (config.model.model, config.model.tokenizer, config.model.skip_tokenizer_init) == ("m", "t", True)
    assert (config.model.device, config.model.dtype, config.seed) == ("cpu", "float16", 4)
    assert config.model.attention_backend == "torch"
    assert (config.cache.block_size, config.cache.num_blocks, config.cache.enable_prefix_caching) == (32, 9, False)
    assert (config.cache.kv_cache_memory, config.cache.swap_space) == (1024**3, 77)
    assert config.cache.gpu_memory_utilization == 0.5
    assert (config.scheduler.max_num_seqs, config.scheduler.max_num_batched_tokens) == (3, 5)
    assert config.scheduler.preemption_mode == "swap"


def test_defaults_are_those_of_the_config(monkeypatch: pytest.MonkeyPatch) -> None:
    configs = use_fake_model(monkeypatch)
    LLM()
    assert configs == [EngineConfig()]


@pytest.mark.parametrize(
    "arguments", [{"num_blocks": 0}, {"max_num_batched_tokens": 0}, {"swap_space": "a lot"}, {"device": "tpu"}]
)
def test_wrong_argument_is_refused_before_anything_is_loaded(
    monkeypatch: pytest.MonkeyPatch, arguments: dict[str, object]
) -> None:
    configs = use_fake_model(monkeypatch)
    with pytest.raises(InvalidValueError):
        LLM("m", **arguments)  # type: ignore[arg-type]
    assert configs == []


# --- prompts ------------------------------------------------------------------------------------------


def test_text_and_tokens_are_the_same_prompt(llm: LLM) -> None:
    token_ids = byte_tokenizer().encode("Hello").ids
    prompts = ["Hello", {"prompt": "Hello"}, {"prompt_token_ids": token_ids}]
    outputs = llm.generate(prompts, GREEDY, use_tqdm=False)
    assert [output.prompt_token_ids for output in outputs] == [token_ids] * 3
    assert [output.outputs[0].token_ids for output in outputs] == [continuation(token_ids, 6)] * 3
    assert [output.prompt for output in outputs] == ["Hello", "Hello", None]


def test_one_prompt_gives_a_list_of_one(llm: LLM) -> None:
    [output] = llm.generate("Hello", GREEDY)
    assert (output.finished, output.outputs[0].index, output.outputs[0].finish_reason) == (True, 0, "length")
    assert output.outputs[0].text == byte_tokenizer().decode(output.outputs[0].token_ids)


def test_special_tokens_of_the_tokenizer_go_before_a_text(monkeypatch: pytest.MonkeyPatch) -> None:
    use_fake_model(monkeypatch, FakeLoadedModel(tokenizer=byte_tokenizer(add_bos=True)))
    [output] = LLM("fake").generate("Hi", GREEDY)
    assert output.prompt_token_ids == byte_tokenizer(add_bos=True).encode("Hi").ids
    assert len(output.prompt_token_ids) == 3


def test_outputs_stand_in_the_order_of_the_prompts(llm: LLM) -> None:
    prompts = [f"Prompt number {i}" for i in range(20)]
    params = [SamplingParams(temperature=0, max_tokens=1 + i % 7) for i in range(20)]
    outputs = llm.generate(prompts, params, use_tqdm=False)
    assert [output.prompt for output in outputs] == prompts
    assert [len(output.outputs[0].token_ids) for output in outputs] == [1 + i % 7 for i in range(20)]
    assert len({output.request_id for output in outputs}) == 20


def test_no_prompts_give_no_outputs(llm: LLM) -> None:
    assert llm.generate([], GREEDY) == []


def test_without_parameters_those_of_the_model_are_used(llm: LLM, loaded: FakeLoadedModel) -> None:
    [output] = llm.generate("Hello")
    assert len(output.outputs[0].token_ids) == loaded.sampling_defaults.max_tokens


def test_parameters_must_be_as_many_as_prompts(llm: LLM) -> None:
    with pytest.raises(InvalidValueError, match="There are 2 prompts, but 1 sampling parameters"):
        llm.generate(["a", "b"], [GREEDY])


def test_dict_without_a_prompt_says_what_it_takes(llm: LLM) -> None:
    with pytest.raises(InvalidValueError, match="prompt_token_ids"):
        llm.generate({"text": "Hello"})  # type: ignore[arg-type]


@pytest.mark.parametrize("token_id", [-1, VOCAB_SIZE])
def test_token_outside_the_vocabulary_is_refused(llm: LLM, token_id: int) -> None:
    with pytest.raises(RequestError, match=f"Token id {token_id} is outside"):
        llm.generate({"prompt_token_ids": [1, token_id]})


def test_text_that_is_no_unicode_is_refused(llm: LLM) -> None:
    with pytest.raises(RequestError, match="not valid Unicode"):
        llm.generate("\ud800")


@pytest.mark.parametrize(
    ("bad", "sentence"), [("", "The prompt has no tokens"), ("x" * 128, "the model's context is 128")]
)
def test_bad_prompt_is_refused_before_anything_runs(llm: LLM, bad: str, sentence: str) -> None:
    with pytest.raises(RequestError, match=sentence):
        llm.generate(["a good one", bad], GREEDY)
    stats = llm.stats()
    assert (stats.steps, stats.blocks_in_use, stats.num_waiting, stats.num_parked) == (0, 0, 0, 0)
    assert len(llm.generate("still alive", GREEDY)) == 1


def test_prompt_longer_than_the_pool_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    use_fake_model(monkeypatch, FakeLoadedModel(limits=EngineLimits(num_blocks=4, block_size=4, model_len=128)))
    with pytest.raises(RequestError, match="needs 6 blocks with its reply; the KV cache has 4"):
        LLM("fake").generate("x" * 20, GREEDY)


# --- how a reply ends ---------------------------------------------------------------------------------


def test_stop_string_ends_the_text_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = reciting_llm(monkeypatch, "One. Two. Three.", USER)
    params = SamplingParams(temperature=0, max_tokens=50, stop=["Two"])
    [output] = llm.generate(USER, params)
    assert (output.outputs[0].text, output.outputs[0].finish_reason) == ("One. ", "stop")
    assert byte_tokenizer().decode(output.outputs[0].token_ids) == "One. Two"


def test_end_of_sequence_token_is_counted_but_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    eos = byte_tokenizer().token_to_id(EOS)
    limits = EngineLimits(num_blocks=64, block_size=4, model_len=128, eos_token_ids=frozenset([eos]))
    llm = reciting_llm(monkeypatch, f"Yes.{EOS}", USER, limits=limits)
    [output] = llm.generate(USER, SamplingParams(temperature=0, max_tokens=50))
    assert (output.outputs[0].text, output.outputs[0].finish_reason) == ("Yes.", "stop")
    assert output.outputs[0].token_ids[-1] == eos


def test_stop_token_that_is_text_is_left_out_of_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = reciting_llm(monkeypatch, "One; two", USER)
    semicolon = byte_tokenizer().token_to_id(";")
    [output] = llm.generate(USER, SamplingParams(temperature=0, max_tokens=50, stop_token_ids=[semicolon]))
    assert (output.outputs[0].text, output.outputs[0].finish_reason) == ("One", "stop")


def test_without_a_limit_the_reply_fills_the_context(llm: LLM) -> None:
    [output] = llm.generate("Hello", SamplingParams(temperature=0, max_tokens=None))
    assert len(output.prompt_token_ids) + len(output.outputs[0].token_ids) == 128
    assert output.outputs[0].finish_reason == "length"


# --- without a tokenizer ------------------------------------------------------------------------------


@pytest.fixture
def llm_without_tokenizer(monkeypatch: pytest.MonkeyPatch) -> LLM:
    use_fake_model(monkeypatch, FakeLoadedModel(tokenizer=None, chat_template=None))
    return LLM("fake", skip_tokenizer_init=True)


def test_tokens_need_no_tokenizer(llm_without_tokenizer: LLM) -> None:
    [output] = llm_without_tokenizer.generate({"prompt_token_ids": [5, 6, 7]}, GREEDY)
    assert output.outputs[0].token_ids == continuation([5, 6, 7], 6)
    assert output.outputs[0].text == ""


def test_text_without_a_tokenizer_is_refused(llm_without_tokenizer: LLM) -> None:
    with pytest.raises(RequestError, match="No tokenizer was loaded"):
        llm_without_tokenizer.generate("Hello", GREEDY)


def test_stop_strings_without_a_tokenizer_are_refused(llm_without_tokenizer: LLM) -> None:
    with pytest.raises(RequestError, match="No tokenizer was loaded"):
        llm_without_tokenizer.generate({"prompt_token_ids": [5]}, SamplingParams(stop=["x"]))


# --- the cache between calls --------------------------------------------------------------------------


def test_blocks_stay_findable_for_the_next_call(llm: LLM) -> None:
    prompt = "A prompt of some length"  # 23 tokens, 4 to a block
    [first] = llm.generate(prompt, GREEDY)
    stats = llm.stats()
    assert (stats.blocks_in_use, stats.blocks_cached, stats.num_parked) == (0, 7, 0)
    [second] = llm.generate(prompt, GREEDY)
    assert (first.num_cached_tokens, second.num_cached_tokens) == (0, 22)
    assert llm.stats().prefix_hits == 22
    assert second.outputs[0].token_ids == first.outputs[0].token_ids


def test_stream_left_early_stops_generating_and_frees_its_blocks(llm: LLM) -> None:
    for output in llm.stream("Hello", SamplingParams(temperature=0, max_tokens=50)):
        if len(output.outputs[0].token_ids) == 3:
            break
    assert not output.finished
    llm.generate("Something else", GREEDY)
    stats = llm.stats()
    assert (stats.num_running, stats.num_parked, stats.blocks_in_use) == (0, 0, 0)


def test_engine_goes_on_after_a_step_failed(llm: LLM, loaded: FakeLoadedModel) -> None:
    loaded.runner.fail_next = RuntimeError("out of memory")
    with pytest.raises(RuntimeError, match="out of memory"):
        llm.generate(["a", "b"], GREEDY)
    assert llm.stats().blocks_in_use == 0
    assert len(llm.generate("c", GREEDY)[0].outputs[0].token_ids) == 6


# --- streams and chats --------------------------------------------------------------------------------


def test_stream_grows_to_what_generate_returns(llm: LLM) -> None:
    outputs = list(llm.stream("Hello", GREEDY))
    assert [len(output.outputs[0].token_ids) for output in outputs] == [1, 2, 3, 4, 5, 6]
    assert [output.finished for output in outputs] == [False] * 5 + [True]
    assert outputs[-1].outputs == llm.generate("Hello", GREEDY)[0].outputs


def test_streams_may_be_read_in_turns(llm: LLM) -> None:
    prompts = ["Hello", "Something else"]
    streams = [llm.stream(prompt, GREEDY) for prompt in prompts]
    read = [(next(streams[0]), next(streams[1])) for _ in range(2)]
    assert all(not output.finished for outputs in read for output in outputs)
    last = [list(stream)[-1] for stream in streams]
    assert [output.outputs for output in last] == [llm.generate(prompt, GREEDY)[0].outputs for prompt in prompts]
    assert llm.stats().blocks_in_use == 0


def test_stream_that_others_ran_on_yields_its_newest_output_next(llm: LLM) -> None:
    stream = llm.stream("Hello", GREEDY)
    assert len(next(stream).outputs[0].token_ids) == 1
    [other] = llm.generate("Something else", SamplingParams(temperature=0, max_tokens=3))
    assert len(other.outputs[0].token_ids) == 3
    steps = llm.stats().steps
    assert len(next(stream).outputs[0].token_ids) == 4
    assert llm.stats().steps == steps
    assert [len(output.outputs[0].token_ids) for output in stream] == [5, 6]


def test_stream_that_is_left_keeps_nothing(llm: LLM) -> None:
    left, other = llm.stream("Hello", GREEDY), llm.stream("Something else", GREEDY)
    next(left)
    next(other)
    left.close()
    assert [len(output.outputs[0].token_ids) for output in other][-1] == 6
    assert llm._unread == {}


def test_kind_of_output_asked_for_is_that_of_the_call(llm: LLM) -> None:
    delta = SamplingParams(temperature=0, max_tokens=6, output_kind=RequestOutputKind.DELTA)
    [whole] = llm.generate("Hello", delta)
    *_, last = llm.stream("Hello", delta)
    assert last.outputs == whole.outputs
    assert len(whole.outputs[0].token_ids) == 6


def test_chat_is_written_as_the_template_wants_it(llm: LLM) -> None:
    [output] = llm.chat([{"role": "user", "content": "Hi"}], GREEDY)
    assert byte_tokenizer().decode(output.prompt_token_ids, skip_special_tokens=False) == (
        "<|user|>Hi</s><|assistant|>"
    )
    assert len(output.outputs[0].token_ids) == 6


def test_base_model_stops_before_the_users_next_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = reciting_llm(monkeypatch, " Fine.\nUser: And you?", ":", chat_template=None)
    [output] = llm.chat([{"role": "user", "content": "How are you?"}], SamplingParams(temperature=0, max_tokens=50))
    assert (output.outputs[0].text, output.outputs[0].finish_reason) == (" Fine.", "stop")


def test_template_that_does_not_end_is_a_request_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pagedchat.api.engine.TemplateProcess", lambda: TemplateProcess(seconds=0.3))
    loop = "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}"
    source = "{% if 'loop' in messages[0].content %}" + loop + "{% endif %}" + CHAT_TEMPLATE
    llm = reciting_llm(monkeypatch, "Fine.</s>", "<|assistant|>", chat_template=source)
    for ask in (llm.chat, llm.stream_chat):
        with pytest.raises(RequestError, match=r"did not finish within 0\.3 s"):
            ask([{"role": "user", "content": "loop"}])
    assert llm.chat([{"role": "user", "content": "Hi"}], GREEDY)[0].outputs[0].text == "Fine."


# --- progress -----------------------------------------------------------------------------------------


def test_progress_of_many_prompts_goes_to_standard_error(llm: LLM, capsys: pytest.CaptureFixture[str]) -> None:
    llm.generate(["a", "b", "c"], GREEDY)
    captured = capsys.readouterr()
    assert "3/3" in captured.err
    assert captured.out == ""


def test_one_prompt_or_a_wish_for_silence_shows_no_progress(llm: LLM, capsys: pytest.CaptureFixture[str]) -> None:
    llm.generate("a", GREEDY)
    llm.generate(["a", "b"], GREEDY, use_tqdm=False)
    assert capsys.readouterr().err == ""


def test_what_was_passed_over_while_loading_is_logged_and_kept(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    use_fake_model(monkeypatch, FakeLoadedModel(notices=("top_k is passed over.",)))
    assert LLM().notices == ("top_k is passed over.",)
    assert [record.getMessage() for record in caplog.records] == ["top_k is passed over."]
    assert LLM.from_config(EngineConfig()).notices == ("top_k is passed over.",)
    assert len(caplog.records) == 1


def test_who_measures_has_ready_what_was_lacking(monkeypatch: pytest.MonkeyPatch) -> None:
    prepared: list[str] = []
    use_fake_model(monkeypatch, FakeLoadedModel(prepare_wanted=lambda: prepared.append("all")))
    llm = LLM("fake")
    list(llm.stream("ab"))
    assert prepared == []
    llm.prepare()
    assert prepared == ["all"]
    llm.generate("ab", use_tqdm=False)
    assert prepared == ["all"] * 2, "of a whole call nobody sees the tokens before its end"
    llm.chat([{"role": "user", "content": "ab"}], SamplingParams(max_tokens=2))
    assert prepared == ["all"] * 3
    llm.close()
    with pytest.raises(EngineStateError):
        llm.prepare()
