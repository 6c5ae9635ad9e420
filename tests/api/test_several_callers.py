"""Threads, interrupts, errors, forks and calls within calls: no reply is wrong, no block stays in use."""

import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

import pytest

from pagedchat import LLM, LLMEngine, SamplingParams
from pagedchat.config import EngineConfig
from pagedchat.engine.limits import EngineLimits
from pagedchat.errors import EngineStateError, IntegrityError
from tests.api.fakes_llm import FakeLoadedModel, use_fake_model
from tests.fakes import FakeModelRunner, byte_tokenizer, scrambled

GREEDY = SamplingParams(temperature=0, max_tokens=6)
PROMPTS = [f"Prompt number {number} " + "x" * number for number in range(8)]
TIGHT = EngineLimits(
    num_blocks=24, block_size=4, model_len=128, num_host_blocks=8, preemption_mode="swap", max_num_batched_tokens=24
)
"""Chunks, preemptions and swaps."""


def model(limits: EngineLimits = TIGHT) -> FakeLoadedModel:
    return FakeLoadedModel(limits=limits, runner=FakeModelRunner())


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> FakeLoadedModel:
    loaded = model()
    use_fake_model(monkeypatch, loaded)
    return loaded


@pytest.fixture
def llm(loaded: FakeLoadedModel) -> LLM:
    return LLM("fake")


@pytest.fixture
def fast_switches() -> Iterator[None]:
    """Threads take turns between a few bytecodes."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


def expected(prompt: str, count: int = 6) -> list[int]:
    token_ids = byte_tokenizer().encode(prompt).ids
    for _ in range(count):
        token_ids.append(scrambled(token_ids))
    return token_ids[-count:]


def assert_as_new(llm: LLM) -> None:
    """Nothing is left of what was asked for, and replies are right."""
    core = llm._engine._core
    core.check_integrity()
    stats = llm.stats()
    assert (stats.blocks_in_use, stats.num_running, stats.num_waiting, stats.num_parked) == (0, 0, 0, 0)
    assert not llm._unread
    assert not core.sequences
    assert [output.outputs[0].token_ids for output in llm.generate(PROMPTS, GREEDY, use_tqdm=False)] == [
        expected(prompt) for prompt in PROMPTS
    ]


def run_threads(work: list[Callable[[], None]]) -> None:
    failures: list[BaseException] = []

    def run(one: Callable[[], None]) -> None:
        try:
            one()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run, args=(one,), daemon=True) for one in work]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    assert failures == []


def within_a_step(loaded: FakeLoadedModel, action: Callable[[], None]) -> None:
    """Have the third step do this in its midst, as a signal's handler or a collection of garbage might."""
    next_token, steps = loaded.runner.next_token, [0]

    def reenter(token_ids: list[int]) -> int:
        steps[0] += 1
        if steps[0] == 3:
            action()
        return next_token(token_ids)

    loaded.runner.next_token = reenter


# --- threads ------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("fast_switches")
def test_threads_in_one_llm_get_the_replies_they_would_get_alone(llm: LLM) -> None:
    wrong: list[str] = []

    def generate(number: int) -> None:
        for turn in range(4):
            prompts = [f"{number} {turn} {prompt}" for prompt in PROMPTS[:3]]
            for prompt, output in zip(prompts, llm.generate(prompts, GREEDY, use_tqdm=False), strict=True):
                wrong.extend([prompt] if output.outputs[0].token_ids != expected(prompt) else [])

    def stream(number: int) -> None:
        for turn in range(4):
            prompt = f"{number} {turn} streamed"
            *_, last = llm.stream(prompt, GREEDY)
            wrong.extend([prompt] if last.outputs[0].token_ids != expected(prompt) else [])
            for _ in llm.stream(prompt, GREEDY):
                break  # and left

    run_threads([lambda n=n: generate(n) for n in range(2)] + [lambda n=n: stream(n) for n in (2, 3)])  # type: ignore[misc]
    assert wrong == []
    assert_as_new(llm)


def test_who_adds_and_who_aborts_waits_for_a_step_under_way(loaded: FakeLoadedModel) -> None:
    engine, threads, seen = LLMEngine(EngineConfig()), [], []

    def call_from_others() -> None:
        for call in (lambda: engine.add_request("b", "b", GREEDY), lambda: engine.abort_request("a")):
            thread = threading.Thread(target=call, daemon=True)
            thread.start()
            threads.append(thread)
            while len(engine._turns._line) <= len(threads) and thread.is_alive():
                thread.join(0.001)
        seen.extend(engine._core.sequences)

    within_a_step(loaded, call_from_others)
    engine.add_request("a", "a", GREEDY)
    told = []
    while engine.has_unfinished_requests():
        told += engine.step()
    for thread in threads:
        thread.join(10)
    assert len(seen) == 1
    told += [output for _ in range(6) for output in engine.step()]
    replies = {output.request_id: output.outputs[0].token_ids for output in told}
    assert replies == {"a": expected("a", 3), "b": expected("b")}
    assert engine.stats().blocks_in_use == 0


# --- calls within calls -------------------------------------------------------------------------------


def test_a_call_within_a_call_is_refused_and_the_outer_one_goes_on(llm: LLM, loaded: FakeLoadedModel) -> None:
    told: list[str] = []

    def again() -> None:
        for call in (lambda: llm.generate("again"), lambda: next(llm.stream("again")), llm.close):
            with pytest.raises(EngineStateError) as caught:
                call()
            told.append(caught.value.message)

    within_a_step(loaded, again)
    [output] = llm.generate(PROMPTS[0], GREEDY)
    assert output.outputs[0].token_ids == expected(PROMPTS[0])
    assert told == ["This LLM is in the middle of a call of the same thread."] * 3
    assert_as_new(llm)


def test_a_stream_that_is_dropped_within_a_call_ends_with_that(llm: LLM, loaded: FakeLoadedModel) -> None:
    stream = llm.stream("Hello", SamplingParams(max_tokens=100, temperature=0))
    next(stream)
    within_a_step(loaded, stream.close)  # type: ignore[attr-defined]
    [output] = llm.generate(PROMPTS[0], GREEDY)
    assert output.outputs[0].token_ids == expected(PROMPTS[0])
    assert_as_new(llm)


# --- errors and interrupts ----------------------------------------------------------------------------


@pytest.mark.parametrize("error", [RuntimeError("out of memory"), KeyboardInterrupt()])
def test_whatever_step_fails_the_engine_stays_usable(error: BaseException, monkeypatch: pytest.MonkeyPatch) -> None:
    failed = 0
    for number in range(1, 16):
        loaded, steps = model(), [0]
        use_fake_model(monkeypatch, loaded)
        llm, execute = LLM("fake"), loaded.runner.execute

        def fail(batch: Any, number=number, steps=steps, execute=execute) -> Any:  # type: ignore[no-untyped-def]
            steps[0] += 1
            if steps[0] == number:
                raise error
            return execute(batch)

        loaded.runner.execute = fail  # type: ignore[method-assign]
        try:
            outputs = llm.generate(PROMPTS, GREEDY, use_tqdm=False)
        except type(error):
            failed += 1
            assert_as_new(llm)
        else:  # its parts were run one by one
            assert [output.outputs[0].token_ids for output in outputs] == [expected(prompt) for prompt in PROMPTS]
    assert failed > 8 or isinstance(error, Exception)


@pytest.fixture
def default_interrupts() -> Iterator[None]:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    yield
    signal.signal(signal.SIGINT, before)


@pytest.mark.usefixtures("default_interrupts")
def test_an_interrupt_on_any_line_leaves_the_engine_usable(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every 97th line that runs in the engine and the API, one after the other, until there is none any more."""
    lines, at, interrupted = 0, 0, 0

    def trace(frame: FrameType, event: str, _: Any) -> Any:
        nonlocal lines
        if (
            "/pagedchat/api/" not in frame.f_code.co_filename
            and "/pagedchat/engine/" not in frame.f_code.co_filename
        ):
            return None
        if event == "line":
            lines += 1
            if lines == at:
                signal.raise_signal(signal.SIGINT)
        return trace

    while lines >= at:
        at, lines = at + 97, 0
        use_fake_model(monkeypatch, model())
        llm = LLM("fake")
        sys.settrace(trace)
        try:
            llm.generate(PROMPTS[:2], GREEDY, use_tqdm=False)
        except KeyboardInterrupt:
            interrupted += 1
        finally:
            sys.settrace(None)
        assert_as_new(llm)
    assert interrupted > 20


def break_the_books(llm: LLM) -> None:
    llm._engine._core.blocks.pool.free_blocks.pop()


def test_whoever_breaks_the_books_learns_it_from_every_call(llm: LLM) -> None:
    stream = llm.stream("streamed", GREEDY)
    next(stream)
    break_the_books(llm)
    calls: list[Callable[[], object]] = [
        lambda: llm.generate("Hello", GREEDY),
        lambda: llm.generate("Hello", GREEDY),
        lambda: next(stream),
        llm.stats,
        lambda: llm._engine.add_request("a", "Hello"),
        llm._engine.step,
    ]
    for call in calls:
        with pytest.raises(IntegrityError, match=r"24 blocks, but .* free") as caught:
            call()
        assert caught.value.dump is not None
        assert len(caught.value.dump["pool"]["ref_counts"]) == 24
        assert caught.value.dump["sequences"]
    llm.close()


def test_a_step_that_breaks_off_and_leaves_the_books_wrong_is_found_out(llm: LLM, loaded: FakeLoadedModel) -> None:
    def fail(_batch: object) -> None:
        break_the_books(llm)
        raise KeyboardInterrupt

    loaded.runner.execute = fail  # type: ignore[method-assign, assignment]
    with pytest.raises(KeyboardInterrupt):
        llm.generate("Hello", GREEDY)
    with pytest.raises(IntegrityError, match="24 blocks, but"):
        llm.generate("Hello", GREEDY)


# --- forks --------------------------------------------------------------------------------------------


def in_a_fork(work: Callable[[], None]) -> int:
    """Exit status of a forked process that does this: 0 where it returns."""
    process = os.fork()
    if process == 0:
        try:
            work()
            os._exit(0)
        except EngineStateError as error:
            os._exit(7 if "belongs to process" in error.message else 1)
        except BaseException:
            os._exit(1)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1])


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_process_is_told_and_frees_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def release(_drop: object) -> None:
        os._exit(9)

    use_fake_model(monkeypatch, FakeLoadedModel(release=release))
    llm = LLM("fake")
    llm._engine._free.atexit = False
    stream = llm.stream("Hello", GREEDY)
    next(stream)
    for call in (lambda: llm.generate("Hello"), lambda: next(stream), llm.stats):
        assert in_a_fork(call) == 7  # type: ignore[arg-type]
    for call in (llm.close, stream.close):  # type: ignore[attr-defined]
        assert in_a_fork(call) == 0
    assert len(llm.generate("Hello", GREEDY)) == 1
    llm._engine._free.detach()
