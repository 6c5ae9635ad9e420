"""Scripts of vLLM's users: keywords with a meaning arrive, those without say so, and nothing is loaded or run."""

import pytest

from pagedchat import LLM, SamplingParams
from pagedchat.engine.limits import EngineLimits
from pagedchat.errors import InvalidValueError, RequestError
from pagedchat.vllm_keywords import CALL_KEYWORDS, LLM_KEYWORDS, LLM_METHODS, SAMPLING_KEYWORDS
from tests.api.fakes_llm import VOCAB_SIZE, FakeLoadedModel, use_fake_model
from tests.fakes import EOS, FakeModelRunner, byte_tokenizer, reciting

GREEDY = SamplingParams(temperature=0, max_tokens=6)


@pytest.fixture
def llm(monkeypatch: pytest.MonkeyPatch) -> LLM:
    use_fake_model(monkeypatch)
    return LLM("fake")


def reciting_llm(monkeypatch: pytest.MonkeyPatch, text: str, after: str) -> LLM:
    runner = FakeModelRunner(reciting(byte_tokenizer(), text, after))
    eos = frozenset({byte_tokenizer().token_to_id(EOS)})
    limits = EngineLimits(num_blocks=64, block_size=4, model_len=128, vocab_size=VOCAB_SIZE, eos_token_ids=eos)
    use_fake_model(monkeypatch, FakeLoadedModel(runner=runner, limits=limits))
    return LLM("fake")


def test_keywords_with_a_meaning_reach_the_config(monkeypatch: pytest.MonkeyPatch) -> None:
    configs = use_fake_model(monkeypatch)
    LLM(
        model="m", dtype="half", quantization=None, max_model_len=64, enforce_eager=True, seed=None,
        gpu_memory_utilization=0.5, enable_prefix_caching=None,
    )  # fmt: skip
    LLM("m", dtype="float", seed=3, enable_prefix_caching=False)
    model, other = configs[0].model, configs[1]
    assert (model.dtype, model.quantization, model.max_model_len, model.enforce_eager) == (
        "float16",
        "auto",
        64,
        True,
    )
    assert (configs[0].seed, configs[0].cache.enable_prefix_caching) == (0, True)
    assert (other.model.dtype, other.seed, other.cache.enable_prefix_caching) == ("float32", 3, False)


def test_other_names_of_vllms_are_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    configs = use_fake_model(monkeypatch)
    LLM("m", num_gpu_blocks_override=40, kv_cache_memory_bytes=1 << 20)
    assert (configs[0].cache.num_blocks, configs[0].cache.kv_cache_memory) == (40, 1 << 20)


@pytest.mark.parametrize("name", LLM_METHODS)
def test_methods_that_there_are_none_of_say_what_there_is(name: str, llm: LLM) -> None:
    with pytest.raises(AttributeError, match=rf"LLM has no {name}\. .*\.$"):
        getattr(llm, name)
    assert not hasattr(llm, "nonsense")


def test_a_cache_is_reset_but_for_what_is_under_way(llm: LLM) -> None:
    prompt = "a prompt of some blocks"
    llm.generate(prompt, GREEDY)
    assert llm.generate(prompt, GREEDY)[0].num_cached_tokens > 0
    assert llm.reset_prefix_cache()
    assert llm.generate(prompt, GREEDY)[0].num_cached_tokens == 0
    stream = llm.stream(prompt, SamplingParams(temperature=0, max_tokens=20))
    next(stream)
    assert not llm.reset_prefix_cache()
    assert list(stream)[-1].finished


@pytest.mark.parametrize("name", LLM_KEYWORDS)
def test_keyword_without_a_meaning_says_so(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    configs = use_fake_model(monkeypatch)
    why, neutral = LLM_KEYWORDS[name]
    assert why.endswith(".")
    for value in neutral:
        LLM("m", **{name: value})  # type: ignore[arg-type]
    loaded = len(configs)
    with pytest.raises(InvalidValueError, match=f"^{name} is 'something else'") as refusal:
        LLM("m", **{name: "something else"})  # type: ignore[arg-type]
    assert why in str(refusal.value)
    assert len(configs) == loaded


def test_code_of_a_checkpoint_is_never_run(monkeypatch: pytest.MonkeyPatch) -> None:
    use_fake_model(monkeypatch)
    with pytest.raises(InvalidValueError, match=r"^trust_remote_code is True.*never run"):
        LLM("m", trust_remote_code=True)


@pytest.mark.parametrize("name", SAMPLING_KEYWORDS)
def test_sampling_parameter_without_a_meaning_says_so(name: str) -> None:
    assert SamplingParams(**{name: None}) == SamplingParams()  # type: ignore[arg-type]
    with pytest.raises(InvalidValueError, match=f"^{name} is 7"):
        SamplingParams(**{name: 7})  # type: ignore[arg-type]


def test_calls_take_the_same_keywords(llm: LLM) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    for name, (_, neutral) in CALL_KEYWORDS.items():
        llm.generate("ab", GREEDY, use_tqdm=False, **{name: neutral[0]})
        for call in (lambda **one: llm.generate("ab", **one), lambda **one: llm.chat(messages, **one)):
            steps = llm.stats().steps
            with pytest.raises(InvalidValueError, match=f"^{name} is"):
                call(**{name: "something else"})
            assert llm.stats().steps == steps


def test_what_vllm_does_not_have_either_is_a_type_error(llm: LLM) -> None:
    for call in (lambda: LLM("m", modle="x"), lambda: llm.generate("ab", nothing=1), lambda: SamplingParams(no=1)):  # type: ignore[call-arg]
        with pytest.raises(TypeError):
            call()


# --- conversations ------------------------------------------------------------------------------------


def test_one_conversation_or_many_give_a_list(llm: LLM) -> None:
    one, other = [{"role": "user", "content": "Hi"}], [{"role": "user", "content": "Who?"}]
    [alone] = llm.chat(one, GREEDY, use_tqdm=False)
    both = llm.chat([one, other], [GREEDY, SamplingParams(temperature=0, max_tokens=2)], use_tqdm=False)
    assert [len(output.outputs[0].token_ids) for output in both] == [6, 2]
    assert both[0].outputs == alone.outputs
    assert llm.chat((one,), GREEDY)[0].outputs == alone.outputs
    with pytest.raises(InvalidValueError, match="There are 2 prompts, but 1 sampling parameters"):
        llm.chat([one, other], [GREEDY])


@pytest.mark.parametrize("bad", [[], [[]], [[], [{"role": "user", "content": "a"}]], [{"role": "user"}], "Hi", [3]])
def test_what_is_no_conversation_is_refused_before_anything_runs(bad: object, llm: LLM) -> None:
    with pytest.raises(InvalidValueError):
        llm.chat(bad, GREEDY)  # type: ignore[arg-type]
    assert llm.stats().steps == 0
    assert llm.stats().blocks_in_use == 0


def test_contents_may_be_given_in_parts_of_text(llm: LLM) -> None:
    parts = [{"type": "text", "text": "Hi"}, {"type": "text", "text": "there"}]
    whole = llm.chat([{"role": "user", "content": "Hi\nthere"}], GREEDY)
    assert llm.chat([{"role": "user", "content": parts}], GREEDY)[0].prompt_token_ids == whole[0].prompt_token_ids
    with pytest.raises(InvalidValueError, match="A message is"):
        llm.chat([{"role": "user", "content": [{"type": "image_url", "image_url": "x"}]}], GREEDY)  # type: ignore[list-item]


def test_tokenizer_is_handed_out(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    assert llm.get_tokenizer().decode(llm.generate("ab", GREEDY)[0].prompt_token_ids) == "ab"
    params = llm.get_default_sampling_params()
    assert params == llm.sampling_defaults
    params.max_tokens = 3
    assert params != llm.sampling_defaults
    use_fake_model(monkeypatch, FakeLoadedModel(tokenizer=None))
    with pytest.raises(RequestError, match="No tokenizer was loaded"):
        LLM("fake").get_tokenizer()


# --- what ends a reply, and what its text holds -------------------------------------------------------


def test_stop_string_is_told_and_may_stay_in_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = reciting_llm(monkeypatch, "One. Two. Three.", ":")
    for included, text in ((False, "One. Tw"), (True, "One. Two. T")):
        params = SamplingParams(
            temperature=0, max_tokens=30, stop=["o. T", "hr"], include_stop_str_in_output=included
        )
        [output] = llm.generate("Count:", params)
        reply = output.outputs[0]
        assert (reply.text, reply.finish_reason, reply.stop_reason) == (text, "stop", "o. T")


def test_stop_token_is_told_and_the_models_own_end_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = reciting_llm(monkeypatch, "One. Two.</s>", ":")
    [dot] = byte_tokenizer().encode(".", add_special_tokens=False).ids
    for included, text in ((False, "One"), (True, "One.")):
        params = SamplingParams(
            temperature=0, max_tokens=30, stop_token_ids=[dot], include_stop_str_in_output=included
        )
        reply = llm.generate("Count:", params)[0].outputs[0]
        assert (reply.text, reply.finish_reason, reply.stop_reason) == (text, "stop", dot)
    reply = llm.generate("Count:", SamplingParams(temperature=0, max_tokens=30))[0].outputs[0]
    assert (reply.text, reply.finish_reason, reply.stop_reason) == ("One. Two.", "stop", None)
    reply = llm.generate("Count:", SamplingParams(temperature=0, max_tokens=3))[0].outputs[0]
    assert (reply.finish_reason, reply.stop_reason) == ("length", None)


@pytest.mark.parametrize("min_tokens", [0, 3, 4, 5, 8, 9])
def test_stop_strings_count_behind_the_least_number_of_tokens(
    min_tokens: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One token is one character: "aab" is complete with the third, the sixth and the ninth."""
    llm = reciting_llm(monkeypatch, "aabaabaab and so on", ":")
    params = SamplingParams(temperature=0, max_tokens=12, stop=["aab"], min_tokens=min_tokens)
    *_, streamed = llm.stream("Go:", params)
    [output] = llm.generate("Go:", params)
    wanted = {0: "", 3: "aab", 4: "aab", 5: "aab", 8: "aabaab", 9: "aabaabaab an"}[min_tokens]
    assert output.outputs[0].text == streamed.outputs[0].text == wanted


def test_special_tokens_may_stay_in_the_text_and_there_may_be_none(monkeypatch: pytest.MonkeyPatch) -> None:
    llm = reciting_llm(monkeypatch, "One.</s>", ":")
    params = {"temperature": 0, "max_tokens": 6, "include_stop_str_in_output": True}
    texts = [
        llm.generate("Go:", SamplingParams(**params, **each))[0].outputs[0].text
        for each in ({}, {"skip_special_tokens": False}, {"detokenize": False})
    ]
    assert texts == ["One.", "One.</s>", ""]
    with pytest.raises(InvalidValueError, match=r"^detokenize is False"):
        SamplingParams(detokenize=False, stop="a")


def test_prompts_are_cut_to_their_last_tokens(llm: LLM) -> None:
    prompt = list(range(10, 30))
    for most, wanted in ((4, prompt[-4:]), (40, prompt), (None, prompt)):
        [output] = llm.generate({"prompt_token_ids": prompt}, SamplingParams(truncate_prompt_tokens=most))
        assert output.prompt_token_ids == wanted
    long = [7] * 500
    [output] = llm.generate({"prompt_token_ids": long}, SamplingParams(truncate_prompt_tokens=-1))
    assert (len(output.prompt_token_ids), len(output.outputs[0].token_ids)) == (127, 1)


@pytest.mark.parametrize(
    "rules",
    [{"logit_bias": {VOCAB_SIZE: 1.0}}, {"allowed_token_ids": [VOCAB_SIZE]}, {"bad_words_ids": [[3, VOCAB_SIZE]]}],
)
def test_rule_about_a_token_that_is_not_there_is_refused_by_its_name(rules: dict[str, object], llm: LLM) -> None:
    [name] = rules
    with pytest.raises(RequestError, match=f"^{name}: token id {VOCAB_SIZE} is outside"):
        llm.generate("ab", SamplingParams(**rules))  # type: ignore[arg-type]
    assert (llm.stats().steps, llm.stats().blocks_in_use) == (0, 0)


def test_rules_that_leave_no_token_are_refused(llm: LLM) -> None:
    for rules in (
        {"allowed_token_ids": [5, 6], "bad_words_ids": [[5], [6]]},
        {"allowed_token_ids": [5, 6], "bad_words_ids": [[5]], "min_tokens": 1, "stop_token_ids": [6]},
    ):
        with pytest.raises(RequestError, match=r"^allowed_token_ids leaves no token"):
            llm.generate("ab", SamplingParams(**rules))  # type: ignore[arg-type]
    assert (llm.stats().steps, llm.stats().blocks_in_use) == (0, 0)
    left = {"allowed_token_ids": [5, 6], "bad_words_ids": [[5]], "stop_token_ids": [6]}
    assert llm.generate("ab", SamplingParams(**left))[0].finished  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("logit_bias", {5: 101.0}), ("logit_bias", {-1: 1.0}), ("logit_bias", {"x": 1.0}), ("logit_bias", [5]),
        ("logit_bias", {5: float("nan")}), ("allowed_token_ids", []), ("allowed_token_ids", [-1]),
        ("allowed_token_ids", 5), ("bad_words", [""]), ("bad_words", ["a"] * 257), ("bad_words_ids", [[]]),
        ("bad_words_ids", [5]), ("min_tokens", -1), ("min_tokens", 17), ("min_tokens", None),
        ("include_stop_str_in_output", 1), ("skip_special_tokens", None), ("detokenize", "yes"),
        ("spaces_between_special_tokens", 0), ("truncate_prompt_tokens", 0), ("truncate_prompt_tokens", -2),
        ("logprobs", -1), ("logprobs", 21), ("prompt_logprobs", 2.0), ("stop", [""]),
    ],
)  # fmt: skip
def test_wrong_value_is_refused_by_its_name(name: str, wrong: object) -> None:
    with pytest.raises(InvalidValueError, match=rf"\b{name}\b"):
        SamplingParams(**{name: wrong})  # type: ignore[arg-type]


def test_bad_words_become_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    configs: list[SamplingParams] = []
    llm = reciting_llm(monkeypatch, "One.", ":")
    extend = llm._engine._core.extend
    monkeypatch.setattr(
        llm._engine._core, "extend", lambda seq, ids, params: (configs.append(params), extend(seq, ids, params))
    )
    llm.generate("Go:", SamplingParams(bad_words=["ab"], bad_words_ids=[[5]], max_tokens=1))
    assert configs[0].bad_words_ids == [[5], byte_tokenizer().encode("ab", add_special_tokens=False).ids]
