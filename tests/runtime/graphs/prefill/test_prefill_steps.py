"""Captured prefills: same tokens as without, whatever comes and goes. On a CPU they are run, not captured."""

import random
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
import torch

from pagedchat.engine.core import EngineCore
from pagedchat.engine.output import BlockOp, ModelRunnerOutput, ScheduledSequence, SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence
from pagedchat.models.native_model import NativeModel
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.graphs import which_step
from pagedchat.runtime.graphs.decode.mixed import execute_mixed
from pagedchat.runtime.graphs.prefill import attention
from pagedchat.runtime.graphs.prefill.attention import PrefillAttention
from pagedchat.runtime.graphs.prefill.buckets import (
    PrefillBucket,
    PrefillSizes,
    context_lens,
    seq_counts,
    token_counts,
)
from pagedchat.runtime.graphs.prefill.buffers import PrefillBuffers
from pagedchat.runtime.graphs.prefill.check import keep_if_right
from pagedchat.runtime.graphs.prefill.prefill_steps import PrefillSteps
from pagedchat.runtime.graphs.prefill.step import PrefillStep
from pagedchat.runtime.graphs.step_wants import tables_for_tokens
from pagedchat.runtime.graphs.token_choice import sampling_rows
from pagedchat.runtime.step.batch_inputs import flatten
from pagedchat.runtime.step.native_runner import NativeModelRunner
from pagedchat.runtime.step.sampler import sample
from tests.ops.paged_case import DEVICES
from tests.runtime.graphs.case import (
    BLOCK_SIZE,
    MAX_NUM_SEQS,
    MODEL_LEN,
    VOCAB_SIZE,
    make_engine,
    make_runner,
    tiny_model,
)

FAMILIES = ["opt", "llama"]
MAX_NUM_TOKENS = 256
SIZES = PrefillSizes(MAX_NUM_TOKENS, MAX_NUM_SEQS, MODEL_LEN)


def runner_with_prefills(model: NativeModel, num_blocks: int, num_host_blocks: int = 0) -> NativeModelRunner:
    runner = make_runner(model, num_blocks, captured=True, num_host_blocks=num_host_blocks)
    assert isinstance(runner.backend, CudaAttention) or runner.device.type == "cpu"
    runner.prefills = PrefillSteps(model, runner.backend, SIZES)  # type: ignore[arg-type]
    return runner


def chunk(token_ids: list[int], table: list[int], start: int = 0, end: int | None = None) -> ScheduledSequence:
    sequence = Sequence(table[0])
    sequence.token_ids, sequence.block_table = token_ids, table
    sequence.sampling_params = SamplingParams(temperature=0)
    end = len(token_ids) if end is None else end
    return ScheduledSequence(sequence, start, end - start, end == len(token_ids))


def batch_of(*parts: ScheduledSequence) -> SchedulerOutput:
    return SchedulerOutput(1, [*parts], [], sum(part.num_tokens for part in parts))


# --- sizes and buffers ----------------------------------------------------------------------------------


def test_steps_are_rounded_up() -> None:
    assert token_counts(100) == (16, 32, 64, 100)
    assert token_counts(1 << 20)[-1] == 32768
    assert seq_counts(20) == (1, 8, 20)
    assert seq_counts(4) == (1, 4)
    assert context_lens(2048) == (512, 2048)
    assert context_lens(600) == (512, 600)
    assert SIZES.bucket_of(17, 1, 17) == PrefillBucket(32, 1, 512)
    assert SIZES.bucket_of(16, 2, 513) == PrefillBucket(16, 8, 600)
    assert SIZES.bucket_of(257, 1, 257) is None
    assert SIZES.bucket_of(200, 21, 100) is None
    assert SIZES.bucket_of(20, 2, 601) is None
    assert SIZES.largest == PrefillBucket(256, 20, 600)


def test_all_buckets_are_those_that_steps_need() -> None:
    buckets = list(SIZES.all())
    assert len(set(buckets)) == len(buckets) == 28
    assert buckets[0] == PrefillBucket(16, 1, 512)
    assert PrefillBucket(16, 20, 512) not in buckets  # no chunk has less than one token
    for num_tokens, num_seqs, longest in ((3, 1, 3), (256, 20, 600), (60, 5, 512)):
        assert SIZES.bucket_of(num_tokens, num_seqs, longest) in buckets


def test_chunks_are_laid_out_with_padding() -> None:
    buffers = PrefillBuffers(PrefillBucket(32, 8, 128), 16, torch.device("cpu"))
    buffers.upload(PrefillBucket(32, 8, 128), [chunk(list(range(900, 930)), [99, 98])])
    bucket = PrefillBucket(16, 4, 64)
    buffers.upload(bucket, [chunk([5, 6, 7, 8, 9], [3], 2), chunk(list(range(40)), [4, 1, 2], 15, 19)])
    rows = buffers.rows(bucket)
    assert rows.cu_seqlens_q.tolist() == [0, 3, 7, 7, 7]
    assert rows.seq_lens.tolist() == [5, 19, 0, 0]
    assert rows.token_ids.tolist() == [7, 8, 9, 15, 16, 17, 18] + [0] * 9
    assert rows.positions.tolist() == [2, 3, 4, 15, 16, 17, 18] + [-1] * 9
    assert rows.seq_rows.tolist() == [0, 0, 0, 1, 1, 1, 1] + [0] * 9
    assert rows.block_tables.shape == (4, 4)
    assert rows.block_tables[0, :1].tolist() == [3]
    assert rows.block_tables[1, :2].tolist() == [4, 1]  # the third is past the chunk's end


def test_tokens_go_to_their_slots_and_padding_to_none() -> None:
    runner = make_runner(tiny_model("opt", "cpu", torch.float32), 8, captured=False)
    bucket = PrefillBucket(16, 4, 64)
    buffers = PrefillBuffers(bucket, BLOCK_SIZE, torch.device("cpu"))
    rows = buffers.rows(bucket)
    paged = PrefillAttention(runner.backend, rows, bucket)  # type: ignore[arg-type]
    buffers.upload(bucket, [chunk([5, 6, 7, 8, 9], [3], 2), chunk(list(range(40)), [4, 1, 2], 15, 19)])
    assert paged.begin().tolist() == [2, 3, 4, 15, 16, 17, 18] + [0] * 9
    assert paged._slots.tolist() == [50, 51, 52, 79, 16, 17, 18] + [-1] * 9


# --- one step -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", FAMILIES)
def test_nothing_but_the_slots_of_the_chunks_is_written(family: str, device: str) -> None:
    runner = runner_with_prefills(tiny_model(family, device, torch.float32), 12)
    prefills, backend = runner.prefills, runner.backend
    assert prefills is not None
    backend.cache.normal_()  # type: ignore[attr-defined]
    before = [slots_of_layer(backend, index) for index in (0, 1)]
    parts = [chunk(list(range(37)), [3, 9, 4], 5), chunk(list(range(50)), [7, 1, 2, 8], 0, 20)]
    begun = prefills.begin(batch_of(*parts))
    assert begun is not None
    prefills.finish(begun)
    written = [(3, range(5, 16)), (9, range(16)), (4, range(5)), (7, range(16)), (1, range(4))]
    slots = [block * BLOCK_SIZE + offset for block, offsets in written for offset in offsets]
    kept = sorted(set(range(12 * BLOCK_SIZE)) - set(slots))
    for index, old in enumerate(before):
        new = slots_of_layer(backend, index)
        assert torch.equal(new[kept], old[kept])
        assert not (new[slots] == old[slots]).all(dim=1).any()


def slots_of_layer(backend: object, index: int) -> torch.Tensor:
    """Layer 0's keys (index 0) or values (1), slot by slot: `[num_slots, elements]`."""
    cache: torch.Tensor = backend.layer_cache(0)[index]  # type: ignore[attr-defined]
    if index == 0:  # [num_blocks, num_kv_heads, chunks, block_size, x]
        return cache.permute(0, 3, 1, 2, 4).flatten(2).flatten(0, 1).clone()
    return cache.permute(0, 3, 1, 2).flatten(2).flatten(0, 1).clone()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", FAMILIES)
def test_logits_are_those_of_the_eager_pass(family: str, device: str) -> None:
    dtypes = (torch.float32,) if device == "cpu" else (torch.float32, torch.float16, torch.bfloat16)
    for dtype in dtypes:
        model = tiny_model(family, device, dtype)
        plain, captured = make_runner(model, 120, captured=False), runner_with_prefills(model, 120)
        assert captured.prefills is not None
        source, next_block, parts = random.Random(2), 0, []
        for length in (2, 70, 16, 33, 100):
            num_blocks = -(-length // BLOCK_SIZE)
            table = list(range(next_block, next_block + num_blocks))
            parts.append(chunk(source.choices(range(VOCAB_SIZE), k=length), table))
            next_block += num_blocks
        for cut in (False, True, False):  # from the beginning, after a part of it, and again
            todo = [half(part) for part in parts] if cut else parts
            begun = captured.prefills.begin(batch_of(*todo))
            assert begun is not None
            output = captured.prefills.finish(begun)
            computed = captured.prefills.logits[: len(todo)].float()
            expected = plain.forward(flatten(todo, BLOCK_SIZE, plain.device)).float()
            error = (computed - expected).norm() / expected.norm()
            assert float(error) < 16 * torch.finfo(dtype).eps
            assert [tokens[0] for tokens in output.token_ids] == computed.max(dim=-1).indices.tolist()


def test_heads_are_turned_by_the_modules_where_a_table_for_every_token_is_too_large(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    turned: list[object] = []
    monkeypatch.setattr(attention, "heads_to_cache", lambda *_args, **_options: turned.append(1))
    narrow = replace(which_step.PREFILLS[0], wants=(tables_for_tokens(0),))
    monkeypatch.setattr(which_step, "PREFILLS", (narrow, *which_step.PREFILLS[1:]))
    test_logits_are_those_of_the_eager_pass("llama", "cpu")
    assert not turned


def half(part: ScheduledSequence) -> ScheduledSequence:
    end = part.start + part.num_tokens
    return ScheduledSequence(part.sequence, end // 2, end - end // 2, True)


# --- engines --------------------------------------------------------------------------------------------


def chats(core: EngineCore, seed: int, num_steps: int) -> Iterator[tuple[int, list[int]]]:
    """Long and short prompts, the same ones again, forks, rewinds and stops; yields what they came to."""
    source = random.Random(seed)
    texts = [source.choices(range(VOCAB_SIZE), k=length) for length in (2, 17, 64, 130, 300, 450)]
    for _ in range(num_steps):
        ids = list(core.sequences)
        action = source.random()
        if action < 0.25 or not ids:
            text = source.choice(texts)
            params = SamplingParams(temperature=0, max_tokens=source.choice([1, 4, 60]), ignore_eos=True)
            core.extend(core.open(), text[: source.choice([len(text), source.randint(1, len(text))])], params)
        elif action < 0.32:
            core.fork(source.choice(ids))
        elif action < 0.40:
            seq_id = source.choice(ids)
            core.rewind(seq_id, source.randint(1, len(core.sequences[seq_id])))
            new = source.choices(range(VOCAB_SIZE), k=source.choice([1, 2, 30]))
            core.extend(seq_id, new, SamplingParams(temperature=0, max_tokens=30, ignore_eos=True))
        elif action < 0.55 and len(ids) > 8:
            seq_id = source.choice(ids)
            yield seq_id, list(core.sequences[seq_id].token_ids)
            core.close(seq_id)
        if core.has_work:
            core.step()
    for seq_id, sequence in core.sequences.items():
        yield seq_id, list(sequence.token_ids)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("preemption_mode", ["recompute", "swap"])
def test_chats_with_captured_prefills_get_the_same_tokens(family: str, preemption_mode: str, device: str) -> None:
    model = tiny_model(family, device, torch.float32)
    replies = []
    for captured in (False, True):
        if captured:
            runner = runner_with_prefills(model, 34, num_host_blocks=64)
        else:
            runner = make_runner(model, 34, captured=False, num_host_blocks=64)
        core = make_engine(
            runner, preemption_mode=preemption_mode, num_host_blocks=64, max_num_batched_tokens=MAX_NUM_TOKENS
        )
        replies.append(list(chats(core, 4, 160)))
        assert core.scheduler.num_preemptions > 0
        assert core.scheduler.prefix_hits > 0
        core.check_integrity()
    assert replies[0] == replies[1]
    assert runner.prefills is not None
    assert runner.prefills.num_replays > 15
    assert runner.decodes is not None
    assert runner.decodes.num_ahead > 10


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("penalty", [1.0, 1.1])
def test_drawn_first_tokens_are_the_same_too(penalty: float, device: str) -> None:
    model = tiny_model("opt", device, torch.float32)
    replies = []
    for captured in (False, True):
        runner = runner_with_prefills(model, 100) if captured else make_runner(model, 100, captured=False)
        core = make_engine(runner, max_num_batched_tokens=MAX_NUM_TOKENS)
        for seed in range(12):
            params = SamplingParams(
                temperature=seed % 3, max_tokens=2, seed=seed, repetition_penalty=penalty, top_p=1 - seed / 20
            )
            core.extend(core.open(), [seed + 3] * (9 * seed + 2), params)
        while core.has_work:
            core.step()
        replies.append([sequence.token_ids for sequence in core.sequences.values()])
    assert replies[0] == replies[1]
    assert runner.prefills is not None
    assert runner.prefills.num_replays > 1


def test_the_engine_has_its_turn_between_queueing_and_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = runner_with_prefills(tiny_model("opt", "cpu", torch.float32), 60)
    done: list[str] = []

    def noting(steps: object, verb: str) -> None:
        call = getattr(steps, verb)
        monkeypatch.setattr(steps, verb, lambda *args, **options: (done.append(verb), call(*args, **options))[1])

    for steps in (runner.decodes, runner.prefills):
        noting(steps, "begin")
        noting(steps, "finish")
    decode, prompt = chunk([1] * 5, [3], 4), chunk([1] * 20, [5, 6])
    for parts in ([prompt], [decode, prompt], [decode]):
        batch = batch_of(*parts)
        batch.meanwhile = lambda: done.append("meanwhile")
        runner.execute(batch)
        assert done == ["begin"] * len(parts) + ["meanwhile"] + ["finish"] * len(parts)
        done.clear()


def test_what_cannot_be_captured_runs_as_before(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(PrefillStep, "__call__", fail)
    runner = runner_with_prefills(tiny_model("opt", "cpu", torch.float32), 60)
    core = make_engine(runner, max_num_batched_tokens=MAX_NUM_TOKENS)
    for length in (3, 40, 100):
        core.extend(core.open(), [1] * length, SamplingParams(temperature=0, max_tokens=2))
        while core.has_work:
            core.step()
    assert [len(sequence) for sequence in core.sequences.values()] == [5, 42, 102]
    assert runner.prefills is not None
    assert runner.prefills.num_replays == 0
    told = [record for record in caplog.records if record.levelname == "WARNING"]
    assert len(told) == 1
    assert "Prefills of 16 tokens are not captured: operation not permitted" in told[0].message
    assert not runner.prefills.prepare(16)


@pytest.mark.parametrize(("factor", "is_kept"), [(1, True), (-1, False)])
def test_a_captured_pass_that_is_off_is_not_used(
    factor: int, is_kept: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compute = PrefillStep.__call__
    monkeypatch.setattr(PrefillStep, "__call__", lambda step: compute(step).mul_(factor))
    runner = runner_with_prefills(tiny_model("llama", "cpu", torch.float32), 4)
    keep_if_right(runner, VOCAB_SIZE)
    assert (runner.prefills is not None) == is_kept
    assert ("a captured one is off by 2" in caplog.text) == (not is_kept)


@pytest.mark.parametrize("device", DEVICES)
def test_graphs_are_made_ready_one_by_one(device: str) -> None:
    runner = runner_with_prefills(tiny_model("opt", device, torch.float32), 60)
    runner.prepare_prefills()
    prefills = runner.prefills
    assert prefills is not None
    assert prefills.prepare(50)
    assert not prefills.prepare(MAX_NUM_TOKENS + 1)
    count = 0
    while runner.prepare_one_more():
        count += 1
    assert count == len(list(SIZES.all())) - 2  # but for those of 32 and 64 tokens
    assert not runner.prepare_one_more()
    runner.prefills = None
    assert not runner.prepare_one_more()


@pytest.mark.gpu
@pytest.mark.parametrize("family", FAMILIES)
def test_a_runner_captures_both_kinds(family: str) -> None:
    runner = make_runner(tiny_model(family, "cuda", torch.bfloat16), 40, captured=False)
    runner.capture_decodes(MAX_NUM_SEQS, MODEL_LEN, MAX_NUM_TOKENS)
    assert runner.decodes is not None
    runner.prepare_prefills()
    assert runner.prefills is not None
    assert runner.prefills.num_replays == 2  # one held against the eager pass, and the one before it
    runner.backend = runner.backend
    assert runner.decodes is None
    assert runner.prefills is None  # type: ignore[unreachable]


def test_a_roomier_graph_is_used_where_there_is_one() -> None:
    runner = runner_with_prefills(tiny_model("opt", "cpu", torch.float32), 60)
    prefills = runner.prefills
    assert prefills is not None
    assert prefills.prepare(32, 5, 600)
    for length in (9, 20, 33):
        begun = prefills.begin(batch_of(chunk([4] * length, [1, 2, 3])))
        assert begun is not None
        prefills.finish(begun)
    captured = [bucket for bucket in SIZES.all() if bucket in prefills._store]
    assert captured == [PrefillBucket(64, 1, 512), PrefillBucket(32, 8, 600)]


# --- beside decodes -------------------------------------------------------------------------------------


class Recorded:
    """Stands for decode steps and for prefill steps; notes who is asked what, and in which order."""

    def __init__(self, name: str, asked: list[tuple[object, ...]], runs: bool = True) -> None:
        self.name, self.asked, self.runs = name, asked, runs

    def begin(self, batch: SchedulerOutput, goes_on: bool | None = None) -> SchedulerOutput | None:
        self.asked.append((self.name, len(batch.scheduled), len(batch.block_ops), goes_on))
        return batch if self.runs else None

    def finish(self, begun: SchedulerOutput) -> ModelRunnerOutput:
        self.asked.append((self.name,))
        return ModelRunnerOutput([[len(self.name), part.start] for part in begun.scheduled], forward_seconds=1.0)


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ((True, True), [("decode", 2, 1, False), ("prompt", 1, 0, None), ("decode",), ("prompt",)]),
        ((True, False), [("decode", 2, 1, False), ("prompt", 1, 0, None), ("eager", 1, 0), ("decode",)]),
        ((False, True), [("decode", 2, 1, False), ("prompt", 1, 1, None), ("eager", 2, 0), ("prompt",)]),
        ((False, False), [("decode", 2, 1, False), ("prompt", 1, 1, None), ("eager", 3, 1)]),
    ],
)
def test_both_kinds_are_queued_before_either_is_waited_for(
    runs: tuple[bool, bool], expected: list[tuple[object, ...]]
) -> None:
    def eager(batch: SchedulerOutput) -> ModelRunnerOutput:
        asked.append(("eager", len(batch.scheduled), len(batch.block_ops)))
        return ModelRunnerOutput([[0, part.start] for part in batch.scheduled], forward_seconds=1.0)

    asked: list[tuple[object, ...]] = []
    parts = [chunk([1] * 5, [1], 4), chunk([1] * 9, [2], 1), chunk([1] * 9, [3], 8)]
    batch = SchedulerOutput(1, parts, [BlockOp("copy", 5, 6)], 10)
    make: Callable[[str, bool], Recorded] = lambda name, runs: Recorded(name, asked, runs)  # noqa: E731
    output = execute_mixed(make("decode", runs[0]), batch, eager, make("prompt", runs[1]))  # type: ignore[arg-type]
    assert asked == expected
    assert [tokens[1] for tokens in output.token_ids] == [4, 1, 8]
    assert output.forward_seconds == sum(len(call) == 1 or call[0] == "eager" for call in expected)


def test_decodes_run_ahead_while_a_long_prompt_is_computed() -> None:
    runner = runner_with_prefills(tiny_model("opt", "cpu", torch.float32), 100)
    core = make_engine(runner, max_num_batched_tokens=64)
    core.extend(core.open(), [1, 2, 3], SamplingParams(temperature=0, max_tokens=40, ignore_eos=True))
    for _ in range(3):
        core.step()
    assert runner.decodes is not None
    assert runner.prefills is not None
    core.extend(core.open(), [5] * 400, SamplingParams(temperature=0, max_tokens=3, ignore_eos=True))
    ahead, replays = runner.decodes.num_ahead, runner.prefills.num_replays
    for _ in range(6):
        core.step()
    assert runner.decodes.num_ahead - ahead == 6
    assert runner.prefills.num_replays - replays == 6


@pytest.mark.parametrize("device", DEVICES)
def test_penalties_count_in_first_tokens(device: str) -> None:
    runner = runner_with_prefills(tiny_model("opt", device, torch.float32), 40)
    assert runner.prefills is not None
    first, second = chunk([*range(200)], [*range(13)]), chunk([5] * 9, [20])
    tokens = []
    for kind in ({}, {"repetition_penalty": 50.0}, {"presence_penalty": 2.0}, {"frequency_penalty": 2.0}):
        first.sequence.sampling_params = SamplingParams(temperature=0, **kind)  # type: ignore[arg-type]
        first.sequence.num_prompt_tokens = 3  # the others were generated before a preemption
        begun = runner.prefills.begin(batch_of(first, second, chunk([6] * 9, [30], 0, 5)))
        assert begun is not None
        chosen = runner.prefills.finish(begun).token_ids
        assert chosen[2] == []
        rows = sampling_rows([first, second])
        assert [token for each in chosen for token in each] == sample(runner.prefills.logits[:2], rows)
        tokens.append(chosen[0][0])
    assert tokens[0] < 200 <= tokens[1]
