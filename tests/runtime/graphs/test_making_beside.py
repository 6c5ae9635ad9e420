"""A batch that nothing is captured for is served at once, with the same tokens, until its own step is there."""

import threading
from pathlib import Path

import pytest
import torch

from pagedchat.engine.core import EngineCore
from pagedchat.engine.output import ModelRunnerOutput, SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.jit import builder as builder_module
from pagedchat.jit import launch
from pagedchat.jit.builder import KernelBuilder
from pagedchat.jit.cache import KernelCache
from pagedchat.runtime.graphs.capture import GraphRecorder
from pagedchat.runtime.graphs.captured_runner import CapturedRunner
from pagedchat.runtime.graphs.decode.buckets import Bucket
from pagedchat.runtime.graphs.decode.steps import Step
from tests.fakes import FakeClock
from tests.ops.paged_case import DEVICES
from tests.runtime.graphs.case import LATE, VOCAB_SIZE, make_engine, make_runner, tiny_model

GREEDY = SamplingParams(temperature=0, max_tokens=None)
KINDS = (
    GREEDY,
    SamplingParams(temperature=1.0, seed=1, max_tokens=None),
    SamplingParams(
        temperature=0.7, top_p=0.9, presence_penalty=1.0, repetition_penalty=1.2, seed=2, max_tokens=None
    ),
)


class Eager:
    """Notes what the eager runner is left with."""

    def __init__(self, runner: CapturedRunner, monkeypatch: pytest.MonkeyPatch) -> None:
        self.sizes: list[int] = []
        execute = runner.eager.execute

        def noting(batch: SchedulerOutput) -> ModelRunnerOutput:
            self.sizes.append(len(batch.scheduled))
            return execute(batch)

        monkeypatch.setattr(runner.eager, "execute", noting)


def join(core: EngineCore, salt: int, length: int = 9, params: SamplingParams = GREEDY) -> None:
    core.extend(core.open(), [(7 * i + 31 * salt) % VOCAB_SIZE for i in range(length)], params)


def run(core: EngineCore, num_steps: int) -> None:
    for _ in range(num_steps):
        core.step()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", ["opt", "gelu"])
def test_the_tokens_are_the_same_whatever_serves(family: str, device: str) -> None:
    model, replies = tiny_model(family, device, torch.float32), []
    for runner in (
        make_runner(model, 200, captured=False),
        make_runner(model, 200, captured=True, max_num_tokens=256, clock=FakeClock(LATE)),
    ):
        core = make_engine(runner)
        for salt in range(6):
            join(core, salt, 9 + 60 * salt, KINDS[salt % 3])
            run(core, 25)
        replies.append([sequence.token_ids for sequence in core.sequences.values()])
    assert replies[0] == replies[1]
    if device == "cpu":  # where there is nothing to compile
        assert runner.decodes.num_ahead > 20
        assert runner.prefills.num_replays == 11  # two of sizes that came before, nine pieces of others


def test_one_piece_comes_between_two_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = make_runner(tiny_model("opt", "cpu", torch.float32), 60, captured=True, clock=FakeClock(LATE))
    eager, tried = Eager(runner, monkeypatch), list[int]()
    monkeypatch.setattr(GraphRecorder, "try_out", lambda _recorder, _step: tried.append(len(eager.sizes)))
    core = make_engine(runner)
    join(core, 1)
    run(core, 8)
    # The prompt and the decode that misses its step; four more while one is made. The last piece serves already.
    assert eager.sizes == [1] * 6
    assert tried == [4]
    assert runner.decodes.num_replays > 0


def test_nothing_is_captured_twice(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = make_runner(tiny_model("opt", "cpu", torch.float32), 60, captured=True, clock=FakeClock(LATE))
    captured: list[Step] = []
    capture = GraphRecorder.capture

    def noting(recorder: GraphRecorder, step: Step) -> object:
        captured.append(step)
        return capture(recorder, step)

    monkeypatch.setattr(GraphRecorder, "capture", noting)
    core = make_engine(runner)
    join(core, 1)
    run(core, 10)
    assert len(captured) == 1
    assert runner.decodes.prepare(1, 30)
    assert len(captured) == 2  # that of drawn tokens
    assert not runner.decodes.store.making


def test_a_roomier_step_serves_until_the_own_one_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = FakeClock(LATE)
    runner = make_runner(tiny_model("opt", "cpu", torch.float32), 100, captured=True, clock=clock)
    decodes, served = runner.decodes, list[Bucket]()
    assert decodes.prepare(4, 600)
    eager = Eager(runner, monkeypatch)
    replay = decodes._replay
    monkeypatch.setattr(decodes, "_replay", lambda running: (served.append(running.bucket), replay(running)))
    core = make_engine(runner)
    for salt in range(2):
        join(core, salt)
    core.step()
    assert eager.sizes == [2]  # the prompts
    monkeypatch.setattr(runner._workshop, "is_due", lambda _waiting: False)
    run(core, 10)
    assert set(served) == {Bucket(4, 600)}
    assert decodes.num_ahead == 9
    monkeypatch.undo()
    run(core, 8)
    assert eager.sizes == [2]
    assert (Bucket(2, 384), "greedy") in decodes.store
    assert decodes._ahead is not None
    assert decodes._ahead.bucket.num_seqs == 2


def test_steps_that_draw_serve_greedy_batches_and_not_the_other_way_round() -> None:
    runner = make_runner(tiny_model("opt", "cpu", torch.float32), 60, captured=True, clock=FakeClock(LATE))
    store = runner.decodes.store
    assert store.capture((Bucket(4, 600), "greedy"))
    assert store.at_hand(Bucket(2, 384), "drawn") is None
    assert store.capture((Bucket(4, 512), "drawn"))
    assert store.at_hand(Bucket(2, 384), "drawn")[:2] == (Bucket(4, 512), "drawn")
    assert store.at_hand(Bucket(2, 384), "greedy")[:2] == (Bucket(4, 600), "greedy")
    assert store.at_hand(Bucket(8, 384), "greedy") is None


def test_first_decodes_behind_their_prompts_are_noted_too() -> None:
    runner = make_runner(tiny_model("opt", "cpu", torch.float32), 60, captured=True, clock=FakeClock(LATE))
    store = runner.decodes.store
    assert store.at_hand(Bucket(2, 384), "greedy") is None
    assert [*store.making] == [(Bucket(2, 384), "greedy")]
    now = make_runner(tiny_model("opt", "cpu", torch.float32), 60, captured=True).decodes.store
    assert now.at_hand(Bucket(2, 384), "greedy") is None
    assert not now.making


def test_who_measures_has_all_that_was_lacking_made_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    model = tiny_model("opt", "cpu", torch.float32)
    runner = make_runner(model, 60, captured=True, max_num_tokens=256, clock=FakeClock(LATE))
    eager = Eager(runner, monkeypatch)
    core = make_engine(runner)
    for salt in (1, 2):
        join(core, salt)
        run(core, 2)
        runner.make_all_wanted()
    num_eager = len(eager.sizes)
    run(core, 4)
    assert len(eager.sizes) == num_eager
    assert not runner.decodes.store.making
    assert not runner.prefills.store.making
    assert (Bucket(2, 384), "greedy") in runner.decodes.store


def test_a_failed_step_leaves_the_batch_to_others_for_good(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_recorder: GraphRecorder, _step: Step) -> None:
        raise RuntimeError("no")

    monkeypatch.setattr(GraphRecorder, "capture", fail)
    runner = make_runner(tiny_model("opt", "cpu", torch.float32), 60, captured=True, clock=FakeClock(LATE))
    eager = Eager(runner, monkeypatch)
    core = make_engine(runner)
    join(core, 1)
    run(core, 10)
    assert eager.sizes == [1] * 10
    assert not runner.decodes.store.making


@pytest.mark.gpu
@pytest.mark.parametrize("family", ["opt", "llama", "gelu"])
def test_no_step_calls_the_compiler(family: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cold = KernelBuilder(cache=KernelCache(tmp_path))
    monkeypatch.setattr(launch._store, "_builder", cold)
    monkeypatch.setattr(launch._store, "_found", {})
    monkeypatch.setattr(launch._store, "_loaded", {})
    model = tiny_model(family, "cuda", torch.float16)
    plain = make_engine(make_runner(model, 200, captured=False))
    for salt, params in enumerate(KINDS):  # the kernels of eager steps are there since loading
        join(plain, salt, 60, params)
        run(plain, 2)
    compiling: list[bool] = []
    compile_kernel = builder_module.compile_kernel

    def noting(*args: object) -> object:
        compiling.append(threading.current_thread() is threading.main_thread())
        return compile_kernel(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(builder_module, "compile_kernel", noting)
    runner = make_runner(model, 200, captured=True, max_num_tokens=256, clock=FakeClock(LATE))
    core = make_engine(runner)
    for salt, params in enumerate(KINDS):
        join(core, salt, 60, params)
        for _ in range(12):
            core.step()
            for making in runner.decodes.store.making.values():
                assert making.kernels is None or making.kernels.wait(120)
    assert compiling, "in other threads"
    assert not any(compiling)
    assert runner.decodes.num_replays > 0
    assert runner.decodes.num_ahead > 0
