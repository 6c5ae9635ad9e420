"""`AsyncLLM` on an engine in this process: what it tells, what it refuses, and that nothing is left behind."""

import asyncio
import gc
import random
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pagedchat import LLM, AsyncLLM, RequestOutput, RequestOutputKind, SamplingParams, StructuredOutputsParams
from pagedchat import events as ev
from pagedchat.engine.limits import EngineLimits
from pagedchat.errors import EngineDeadError, EngineStateError, InvalidValueError, PagedChatError, RequestError
from pagedchat.service import commands as cmd
from tests.api.fakes_llm import VOCAB_SIZE, A, FakeLoadedModel, LikelyRunner, use_fake_model
from tests.api.linked_engine import LinkedEngine
from tests.fakes import byte_tokenizer
from tests.service.engine_rig import ask

LIMITS = EngineLimits(
    num_blocks=200, block_size=4, model_len=128, vocab_size=VOCAB_SIZE, eos_token_ids=frozenset({A + 25})
)
GREEDY = SamplingParams(temperature=0, max_tokens=6)
ENDLESS = SamplingParams(seed=1, max_tokens=None, ignore_eos=True)
DELTA, FINAL = RequestOutputKind.DELTA, RequestOutputKind.FINAL_ONLY
USER = [{"role": "user", "content": "Hi"}]


def linked(**limits: Any) -> LinkedEngine:
    """To be made in the event loop."""
    return LinkedEngine(LikelyRunner(block_size=4), limits=replace(LIMITS, **limits))


@pytest.fixture
async def engine() -> AsyncIterator[LinkedEngine]:
    return linked()


@pytest.fixture
async def llm(engine: LinkedEngine) -> AsyncIterator[AsyncLLM]:
    async with AsyncLLM(link=engine) as llm:
        yield llm


async def all_of(outputs: AsyncIterator[RequestOutput]) -> list[RequestOutput]:
    return [output async for output in outputs]


async def last_of(outputs: AsyncIterator[RequestOutput]) -> RequestOutput:
    return (await all_of(outputs))[-1]


async def settled(count: int = 20) -> None:
    """The engine and all tasks have had so many turns."""
    for _ in range(count):
        await asyncio.sleep(0)


def changed(params: SamplingParams, **changes: Any) -> SamplingParams:
    return msgspec.structs.replace(params, **changes)


# --- the same as the library tells ----------------------------------------------------------------------

PARAMS = [
    GREEDY,
    SamplingParams(seed=3, max_tokens=30),
    SamplingParams(seed=3, max_tokens=30, stop=["k", "zab"], include_stop_str_in_output=True),
    SamplingParams(seed=3, max_tokens=40, stop_token_ids=[A + 9], min_tokens=12),
    SamplingParams(n=4, seed=5, max_tokens=9, logprobs=3),
    SamplingParams(n=3, seed=5, max_tokens=1, logprobs=0),
    SamplingParams(n=2, best_of=5, seed=19, max_tokens=4),
    SamplingParams(seed=1, max_tokens=6, detokenize=False, truncate_prompt_tokens=3),
    SamplingParams(seed=1, max_tokens=5, bad_words=["no"], logit_bias={A: 1.0}),
]
PROMPTS: list[Any] = ["Hello", {"prompt": "Ho"}, {"prompt_token_ids": [A, A + 1, A + 2], "prompt": "abc"}, [A] * 20]


@pytest.fixture
def offline(monkeypatch: pytest.MonkeyPatch) -> LLM:
    use_fake_model(monkeypatch, FakeLoadedModel(runner=LikelyRunner(), limits=LIMITS))
    return LLM("fake")


def nameless(output: RequestOutput) -> RequestOutput:
    """As it would be by any other name, at any other time, and with nothing in the cache."""
    return msgspec.structs.replace(output, request_id="", num_cached_tokens=0, metrics=None)


@pytest.mark.parametrize("params", PARAMS, ids=range(len(PARAMS)))
async def test_outputs_are_those_of_the_library(params: SamplingParams, offline: LLM, llm: AsyncLLM) -> None:
    prompts = [{"prompt_token_ids": one} if isinstance(one, list) else one for one in PROMPTS]
    wanted = offline.generate(prompts, params, use_tqdm=False)
    got = await asyncio.gather(*(last_of(llm.generate(prompt, params)) for prompt in prompts))
    assert [nameless(output) for output in got] == [nameless(output) for output in wanted]
    final = await asyncio.gather(
        *(all_of(llm.generate(prompt, changed(params, output_kind=FINAL))) for prompt in prompts)
    )
    assert [list(map(nameless, outputs)) for outputs in final] == [[nameless(output)] for output in wanted]


@pytest.mark.parametrize("params", PARAMS, ids=range(len(PARAMS)))
async def test_deltas_add_up_to_what_the_library_tells(params: SamplingParams, offline: LLM, llm: AsyncLLM) -> None:
    [wanted] = offline.generate("Hello", params)
    deltas = await all_of(llm.generate("Hello", changed(params, output_kind=DELTA)))
    assert [delta.finished for delta in deltas] == [False] * (len(deltas) - 1) + [True]
    assert deltas[0].prompt_token_ids == wanted.prompt_token_ids
    for whole in wanted.outputs:
        parts = [one for delta in deltas for one in delta.outputs if one.index == whole.index]
        assert "".join(part.text for part in parts) == whole.text
        assert [token_id for part in parts for token_id in part.token_ids] == whole.token_ids
        assert [part.finish_reason for part in parts] == [None] * (len(parts) - 1) + [whole.finish_reason]
        assert parts[-1].cumulative_logprob == whole.cumulative_logprob
        if whole.logprobs is not None:
            assert [one for part in parts for one in part.logprobs or []] == whole.logprobs


async def test_conversations_are_those_of_the_library(offline: LLM, llm: AsyncLLM) -> None:
    talk = [*USER, {"role": "assistant", "content": "Hey"}]
    options: list[dict[str, Any]] = [
        {}, {"add_generation_prompt": False}, {"continue_final_message": True}, {"tools": [{"type": "function"}]},
        {"chat_template": "{{ messages[0].content }}{{ mark }}", "chat_template_kwargs": {"mark": "!"}},
    ]  # fmt: skip
    for each in options:
        [wanted] = offline.chat(talk, GREEDY, **each)
        assert nameless(await last_of(llm.chat(talk, GREEDY, **each))) == nameless(wanted)
        assert await llm.tokenize(talk, **each) == wanted.prompt_token_ids


async def test_parameters_are_those_of_the_call_whatever_becomes_of_them(llm: AsyncLLM) -> None:
    params, waiting = SamplingParams(temperature=0), []
    for count in (2, 4, 6):
        params.max_tokens = count
        waiting.append(last_of(llm.generate("The sea", params)))
    outputs = await asyncio.gather(*waiting)
    assert [len(output.outputs[0].token_ids) for output in outputs] == [2, 4, 6]


async def test_a_template_may_be_given(offline: LLM, llm: AsyncLLM) -> None:
    options = {"chat_template": "{% for m in messages %}{{ m.content }}?{% endfor %}"}
    (wanted,) = offline.chat(USER, GREEDY, **options)
    output = await last_of(llm.chat(USER, GREEDY, **options))
    assert output.prompt_token_ids == wanted.prompt_token_ids == offline.get_tokenizer().encode("Hi?").ids
    with pytest.raises(InvalidValueError, match="chat_template is 5"):
        await last_of(llm.chat(USER, GREEDY, chat_template=5))


async def test_first_tokens_come_at_once_and_then_a_token_with_every_step(llm: AsyncLLM) -> None:
    outputs = await all_of(llm.generate("Hello", GREEDY))
    assert [len(output.outputs[0].token_ids) for output in outputs] == [1, 2, 3, 4, 5, 6]


async def test_many_requests_of_one_batch_are_told_in_one_event(engine: LinkedEngine, llm: AsyncLLM) -> None:
    params = SamplingParams(seed=1, max_tokens=20, ignore_eos=True)
    await asyncio.gather(*(all_of(llm.generate(f"Prompt {number:02}", params)) for number in range(40)))
    told = engine.rig.of(ev.RequestOutputs)
    assert max(len(one.request_ids) for one in told) == 40
    assert len(told) < 12
    engine.assert_at_rest()


async def test_prompt_tokens_go_over_the_wire_once(engine: LinkedEngine, llm: AsyncLLM) -> None:
    params = changed(GREEDY, prompt_logprobs=0)
    outputs = await all_of(llm.generate("Hello", params))
    sent = [output for told in engine.rig.of(ev.RequestOutputs) for output in told.outputs]
    assert [bool(output.prompt_token_ids) for output in sent] == [True] + [False] * 5
    assert all(output.prompt_token_ids == outputs[0].prompt_token_ids for output in outputs)
    assert all(output.prompt == "Hello" for output in outputs)


async def test_without_parameters_the_models_own_hold(engine: LinkedEngine, llm: AsyncLLM) -> None:
    outputs = llm.generate("Hello")
    async for output in outputs:
        if len(output.outputs[0].token_ids) > 30:
            break  # the rig's engine has greedy ones without an end
    await outputs.aclose()
    await settled()
    engine.assert_at_rest()


# --- readers --------------------------------------------------------------------------------------------


async def test_who_does_not_read_holds_nobody_up_and_finds_all_of_it_later(llm: AsyncLLM) -> None:
    params = SamplingParams(seed=1, max_tokens=20, ignore_eos=True, output_kind=DELTA)
    slow = llm.generate("Hello", params)
    first = await anext(slow)
    whole = await last_of(llm.generate("Hello", changed(params, output_kind=FINAL)))
    rest = await anext(slow)
    assert rest.finished
    assert first.outputs[0].text + rest.outputs[0].text == whole.outputs[0].text
    assert first.outputs[0].token_ids + rest.outputs[0].token_ids == whole.outputs[0].token_ids
    with pytest.raises(StopAsyncIteration):
        await anext(slow)


async def leave_by_break(llm: AsyncLLM) -> None:
    async for _ in llm.generate("Hello", ENDLESS):
        break
    gc.collect()


async def leave_by_aclose(llm: AsyncLLM) -> None:
    outputs = llm.generate("Hello", changed(ENDLESS, n=3))
    await anext(outputs)
    await outputs.aclose()


async def leave_by_cancelling(llm: AsyncLLM) -> None:
    task = asyncio.create_task(all_of(llm.generate("Hello", ENDLESS)))
    for _ in range(10):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


async def leave_before_the_first_token(llm: AsyncLLM) -> None:
    task = asyncio.create_task(all_of(llm.generate("Hello" * 10, ENDLESS)))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.wait({task})


async def leave_by_letting_go(llm: AsyncLLM) -> None:
    outputs = llm.generate("Hello", ENDLESS)
    await anext(outputs)
    del outputs
    gc.collect()


async def never_begin(llm: AsyncLLM) -> None:
    outputs = llm.generate("Hello", ENDLESS)
    del outputs
    gc.collect()


LEAVE = [
    leave_by_break, leave_by_aclose, leave_by_cancelling, leave_before_the_first_token, leave_by_letting_go,
    never_begin,
]  # fmt: skip


@pytest.mark.parametrize("leave", LEAVE, ids=lambda leave: leave.__name__)
async def test_a_request_that_is_left_gives_its_blocks_back(
    leave: Callable[[AsyncLLM], Awaitable[None]], engine: LinkedEngine, llm: AsyncLLM
) -> None:
    await leave(llm)
    await settled()
    assert len(engine.rig.loop.programs) == 0
    engine.assert_at_rest()
    aborted = [one for one in engine.sent if isinstance(one, cmd.AbortRequests)]
    assert len(aborted) == sum(isinstance(one, cmd.AddRequest) for one in engine.sent)


async def test_a_request_that_is_read_to_its_end_is_not_aborted(engine: LinkedEngine, llm: AsyncLLM) -> None:
    await all_of(llm.generate("Hello", GREEDY))
    outputs = llm.generate("Hello", GREEDY)
    async for output in outputs:
        if output.finished:
            break
    await outputs.aclose()
    assert not any(isinstance(one, cmd.AbortRequests) for one in engine.sent)
    engine.assert_at_rest()


@pytest.mark.parametrize("kind", RequestOutputKind)
async def test_an_aborted_request_has_one_last_output_that_says_so(
    kind: RequestOutputKind, engine: LinkedEngine, llm: AsyncLLM
) -> None:
    asked = llm.generate("Hello", changed(ENDLESS, n=2, output_kind=kind), request_id="mine")
    task = asyncio.create_task(all_of(asked))
    await settled()
    await llm.abort("mine")
    outputs = await task
    assert outputs[-1].finished
    assert {one.finish_reason for one in outputs[-1].outputs} == {"abort"}
    assert {output.request_id for output in outputs} == {"mine"}
    await llm.abort(["mine", "nobody's"])
    await settled()
    engine.assert_at_rest()
    assert (await last_of(llm.generate("Hello", GREEDY, request_id="mine"))).finished


async def test_sessions_of_a_screen_run_beside(engine: LinkedEngine, llm: AsyncLLM) -> None:
    engine.send(ask(1, 1, "Hi", max_tokens=30))
    got = await last_of(llm.generate("Hello", GREEDY, request_id="1"))
    assert len(got.outputs[0].token_ids) == 6
    await settled(100)
    assert len(engine.rig.text(1)) == 30
    assert set(engine.core.sequences) == {1}
    engine.assert_at_rest(num_sequences=1)
    engine.send(ask(2, 2, "Hi", max_tokens=3))
    await settled()
    assert len(engine.rig.text(2)) == 3


# --- tokens ---------------------------------------------------------------------------------------------


async def test_texts_become_tokens_and_tokens_texts(llm: AsyncLLM) -> None:
    text = "é" * 3000
    ids = byte_tokenizer().encode(text).ids
    assert await llm.tokenize(text) == await llm.tokenize(text, add_special_tokens=False) == ids
    assert await llm.detokenize(ids) == text
    with pytest.raises(RequestError, match="Token id 260 is outside the tokenizer's vocabulary of 260"):
        await llm.detokenize([5, 260])
    with pytest.raises(InvalidValueError, match=r"^token_ids is"):
        await llm.detokenize([-1])
    with pytest.raises(InvalidValueError, match=r"^add_special_tokens is 3"):
        await llm.tokenize("a", add_special_tokens=3)  # type: ignore[arg-type]


# --- what is refused ------------------------------------------------------------------------------------

REFUSED: list[tuple[Callable[[AsyncLLM], Any], type[PagedChatError], str]] = [
    (lambda llm: llm.generate(5), InvalidValueError, "^A prompt is 5"),
    (lambda llm: llm.generate({"text": "a"}), InvalidValueError, "^A prompt has the keys text"),
    (lambda llm: llm.generate({"prompt_token_ids": ["a"]}), InvalidValueError, "^prompt_token_ids is"),
    (lambda llm: llm.generate(""), RequestError, "^The prompt has no tokens"),
    (
        lambda llm: llm.generate("x" * 128),
        RequestError,
        "^The prompt has 128 tokens, but the model's",
    ),
    (lambda llm: llm.generate("x" * 3000), RequestError, "^The prompt has 3000 tokens"),
    (lambda llm: llm.generate({"prompt_token_ids": [9999]}), RequestError, "^Token id 9999 is outside"),
    (
        lambda llm: llm.generate({"prompt_token_ids": [2**64]}),
        InvalidValueError,
        "^The prompt and its settings cannot",
    ),
    (
        lambda llm: llm.generate("\ud800"),
        InvalidValueError,
        "^The prompt and its settings cannot be passed on: some",
    ),
    (lambda llm: llm.generate("a", {"n": 1}), InvalidValueError, "^sampling_params is"),
    (lambda llm: llm.generate("a", GREEDY, 5), InvalidValueError, "^request_id is 5"),
    (lambda llm: llm.generate("a", SamplingParams(n=300)), RequestError, "^n is 300"),
    (lambda llm: llm.generate("a", SamplingParams(stop_token_ids=[999])), RequestError, "^Stop token id 999"),
    (lambda llm: llm.generate("a", SamplingParams(logit_bias={999: 1})), RequestError, "^logit_bias: token id 999"),
    (
        lambda llm: llm.generate("a", SamplingParams(structured_outputs=StructuredOutputsParams(regex="a"))),
        RequestError,
        "^structured_outputs cannot be had",
    ),
    (lambda llm: llm.generate("a", lora_request="x"), InvalidValueError, "^lora_request is 'x'"),
    (lambda llm: llm.chat(USER, mm_processor_kwargs=1), InvalidValueError, "^mm_processor_kwargs is 1"),
    (lambda llm: llm.chat(USER, chat_template=5), InvalidValueError, "^chat_template is 5"),
    (lambda llm: llm.chat(USER, chat_template="{% if"), RequestError, "chat template does not parse"),
    (lambda llm: llm.chat([]), InvalidValueError, "^messages is"),
    (lambda llm: llm.chat([{"role": "user"}]), InvalidValueError, "^A message is"),
    (lambda llm: llm.chat(USER, tools=5), InvalidValueError, "^tools is 5"),
    (
        lambda llm: llm.chat(USER, tools=[{"f": len}]),
        InvalidValueError,
        "^tools has something in it",
    ),
    (lambda llm: llm.chat(USER, chat_template_kwargs={"tools": 1}), InvalidValueError, "^chat_template_kwargs has"),
    (lambda llm: llm.chat(USER, continue_final_message=True), InvalidValueError, "^continue_final_message"),
    (
        lambda llm: llm.chat([{"role": "user", "content": "\ud800"}]),
        InvalidValueError,
        "^The prompt and its settings",
    ),
]


@pytest.mark.parametrize(("call", "kind", "said"), REFUSED, ids=[said for _, _, said in REFUSED])
async def test_what_cannot_be_served_is_named_and_nothing_is_run(
    call: Callable[[AsyncLLM], AsyncIterator[RequestOutput]],
    kind: type[PagedChatError],
    said: str,
    engine: LinkedEngine,
    llm: AsyncLLM,
) -> None:
    with pytest.raises(kind, match=said) as refusal:
        await anext(call(llm))
    assert type(refusal.value) is kind
    await settled()
    assert engine.core.stats().steps == 0
    engine.assert_at_rest()
    assert (await last_of(llm.generate("Hello", GREEDY))).finished


async def test_an_id_that_is_taken_is_named(llm: AsyncLLM) -> None:
    outputs = llm.generate("Hello", ENDLESS, request_id="a")
    await anext(outputs)
    with pytest.raises(InvalidValueError, match="unfinished request 'a'"):
        await anext(llm.generate("Hello", GREEDY, request_id="a"))
    assert (await anext(outputs)).request_id == "a"
    await outputs.aclose()


def test_a_link_has_its_model() -> None:
    link: Any = object()
    with pytest.raises(InvalidValueError, match=r"^model is given beside link"):
        AsyncLLM("m", link=link)
    with pytest.raises(InvalidValueError, match=r"^num_blocks is given beside link"):
        AsyncLLM(link=link, num_blocks=5)
    with pytest.raises(InvalidValueError, match=r"^trust_remote_code is True"):
        AsyncLLM("m", trust_remote_code=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"AsyncLLM\(\) got an unexpected keyword argument 'modle'"):
        AsyncLLM(modle="m")  # type: ignore[call-arg]
    with pytest.raises(EngineStateError, match="not ready yet"):
        _ = AsyncLLM(link=link).info


# --- the engine's end -----------------------------------------------------------------------------------


async def test_a_dead_engine_ends_its_requests_and_new_ones_wait_for_the_next(
    engine: LinkedEngine, llm: AsyncLLM
) -> None:
    outputs = llm.generate("Hello", ENDLESS)
    await anext(outputs)
    engine.may_run.clear()
    question = asyncio.create_task(llm.tokenize("a"))
    await asyncio.sleep(0)
    engine.say(ev.EngineDied(-9, "", restarting=True, log_file="engine.log"))
    with pytest.raises(EngineDeadError, match=r"ended \(signal 9\)\. .* started anew.*engine\.log"):
        await all_of(outputs)
    await asyncio.wait({question})
    assert (llm.is_running, llm.dead_error) == (False, None)
    assert isinstance(engine.sent[-1], cmd.AbortRequests)
    engine.may_run.set()
    engine.say(engine.rig.loaded.info)
    assert (await last_of(llm.generate("Hello", GREEDY))).finished
    assert llm.is_running


async def test_an_engine_that_is_given_up_is_said_until_it_is_started_again(
    engine: LinkedEngine, llm: AsyncLLM
) -> None:
    engine.say(ev.EngineDied(70, "", restarting=False))
    await settled()
    for _ in range(2):
        with pytest.raises(EngineDeadError, match=r"\(exit code 70\), again and again"):
            await anext(llm.generate("Hello"))
    for call in (lambda: llm.tokenize("a"), llm.check_health):
        with pytest.raises(EngineDeadError):
            await call()
    engine.say(engine.rig.loaded.info)
    await llm.start()
    await llm.check_health()
    assert (await last_of(llm.generate("Hello", GREEDY))).finished


async def test_books_that_disagree_end_everything(engine: LinkedEngine, llm: AsyncLLM) -> None:
    outputs = llm.generate("Hello", ENDLESS)
    await anext(outputs)
    engine.say(ev.IntegrityBroken(4, "1 and 2 differ", "dump.json"))
    with pytest.raises(EngineDeadError, match=r"books disagree: 1 and 2 differ\..*dump\.json"):
        await all_of(outputs)
    with pytest.raises(EngineDeadError, match="books disagree"):
        await anext(llm.generate("Hello"))


async def test_a_closed_one_says_so(engine: LinkedEngine) -> None:
    llm = AsyncLLM(link=engine)
    outputs = llm.generate("Hello", ENDLESS)  # begins with the engine, too
    await anext(outputs)
    await llm.shutdown()
    with pytest.raises(EngineStateError, match="closed"):
        await all_of(outputs)
    for call in (lambda: anext(llm.generate("a")), llm.start, lambda: llm.tokenize("a")):
        with pytest.raises(EngineStateError, match="closed"):
            await call()
    await llm.close()


# --- storms ---------------------------------------------------------------------------------------------

KINDS_OF_REQUESTS = [
    changed(ENDLESS, max_tokens=12), changed(ENDLESS, max_tokens=9, n=4), changed(ENDLESS, stop=["h"]),
    SamplingParams(n=2, best_of=3, seed=2, max_tokens=6), changed(ENDLESS, max_tokens=5, logprobs=2),
]  # fmt: skip


async def one_reader(llm: AsyncLLM, choose: random.Random, number: int) -> None:
    """Asks something, and leaves in some way or other."""
    kind = choose.choice(list(RequestOutputKind))
    params = changed(choose.choice(KINDS_OF_REQUESTS), output_kind=kind)
    name = f"request {number}"
    outputs = llm.generate("Hello"[: choose.randint(0, 5)] * choose.randint(1, 5), params, name)
    most = choose.choice([0, 1, 3, 100])
    try:
        async for _ in outputs:
            most -= 1
            if most < 0:
                break
            if choose.random() < 0.1:
                await llm.abort(name)
            await asyncio.sleep(0)
    except RequestError as error:
        if "no tokens" not in str(error):
            raise
    finally:
        if choose.random() < 0.5:
            await outputs.aclose()


async def storm(seed: int) -> None:
    choose = random.Random(seed)
    engine = linked(num_blocks=choose.choice([12, 30, 200]), max_num_batched_tokens=choose.choice([8, 64]))
    async with AsyncLLM(link=engine) as llm:
        readers = []
        for number in range(choose.randint(1, 30)):
            readers.append(asyncio.create_task(one_reader(llm, choose, number)))
            for _ in range(choose.randint(0, 5)):
                await asyncio.sleep(0)
            if choose.random() < 0.3:
                choose.choice(readers).cancel()
        await asyncio.gather(*readers, return_exceptions=True)
        assert [one.exception() for one in readers if not one.cancelled() and one.exception()] == []
        readers.clear()  # what they were cancelled with has their frames
        gc.collect()
        await settled()
        assert (llm._streams, llm._names) == ({}, {})
        assert len(engine.rig.loop.programs) == 0
        engine.assert_at_rest()


@settings(deadline=None, max_examples=25)
@given(st.integers(0, 2**32))
def test_nothing_is_left_of_a_storm_of_readers_who_come_and_go(seed: int) -> None:
    asyncio.run(storm(seed))


async def test_outputs_say_when_a_request_came_how_far(llm: AsyncLLM) -> None:
    outputs = await all_of(llm.generate("Hi", msgspec.structs.replace(GREEDY, output_kind=DELTA)))
    stats = [output.metrics for output in outputs]
    assert all(each is not None for each in stats)
    first, last = stats[0], stats[-1]
    assert first is not None
    assert last is not None
    assert 0 < last.queued_ts <= last.scheduled_ts <= last.first_token_ts <= last.last_token_ts
    assert (last.first_token_ts, last.num_generation_tokens) == (first.first_token_ts, 6)
    assert [each.num_generation_tokens for each in stats if each is not None] == sorted(
        each.num_generation_tokens for each in stats if each is not None
    )
