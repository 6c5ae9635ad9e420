"""Captured decode steps: same tokens as without, whatever comes and goes. On a CPU they are run, not captured."""

import random
from collections.abc import Iterator

import pytest
import torch

from pagedchat.engine.core import EngineCore
from pagedchat.engine.output import BlockOp, ModelRunnerOutput, ScheduledSequence, SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence
from pagedchat.runtime.batch_inputs import flatten
from pagedchat.runtime.decode_graph import decode_steps, step_store
from pagedchat.runtime.decode_graph.ahead import RunningStep, begins_with, may_run_ahead
from pagedchat.runtime.decode_graph.buckets import Bucket, batch_sizes, bucket_of, context_lens
from pagedchat.runtime.decode_graph.check import keep_if_right
from pagedchat.runtime.decode_graph.decode_steps import DecodeSteps
from pagedchat.runtime.decode_graph.mixed import execute_mixed
from pagedchat.runtime.decode_graph.state_buffers import HISTORY_LEN, Batch, StateBuffers
from pagedchat.runtime.decode_graph.step_store import MAX_FUSED, StepStore
from pagedchat.runtime.decode_graph.steps import ModuleStep
from pagedchat.runtime.native_runner import NativeModelRunner
from tests.ops.paged_case import DEVICES
from tests.runtime.decode_case import BLOCK_SIZE, VOCAB_SIZE, make_engine, make_runner, tiny_model

FAMILIES = ["opt", "llama"]
GREEDY = SamplingParams(temperature=0, max_tokens=None)


# --- sizes ----------------------------------------------------------------------------------------------


def test_batch_and_context_are_rounded_up() -> None:
    assert batch_sizes(20) == (1, 2, 4, 8, 16, 20)
    assert batch_sizes(600) == (1, 2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 600)
    assert context_lens(2048) == (256, 512, 1024, 2048)
    assert context_lens(100) == (100,)
    assert context_lens(700) == (256, 512, 700)
    assert bucket_of(3, 256, 20, 2048) == Bucket(4, 256)
    assert bucket_of(17, 257, 20, 2048) == Bucket(20, 512)
    assert bucket_of(21, 1, 20, 2048) is None
    assert bucket_of(1, 2049, 20, 2048) is None
    assert Bucket(1, 100).num_blocks(16) == 7


# --- buffers --------------------------------------------------------------------------------------------


def test_a_batch_is_laid_out_with_padding() -> None:
    buffers = StateBuffers(Bucket(8, 64), 16, torch.device("cpu"))
    bucket = Bucket(4, 32)
    tables = torch.tensor([[5, 6, 7], [8, 9, 10]], dtype=torch.int32)
    buffers.upload(bucket, Batch([11, 12], [30, 3], tables), 9)
    state = buffers.state(bucket)
    state.check()
    assert state.step.tolist() == [9]
    assert state.token_ids.tolist() == [11, 12, 0, 0]
    assert state.positions.tolist() == [30, 3, -1, -1]
    assert state.seq_lens.tolist() == [31, 4, 0, 0]
    assert state.block_tables[:2].tolist() == [[5, 6], [8, 9]]
    buffers.set_table(bucket, 1, [8, 3, 7])
    buffers.upload_places(bucket, [31, -1])
    assert state.block_tables[:2].tolist() == [[5, 6], [8, 3]]
    assert state.token_ids.tolist() == [11, 12, 0, 0]
    assert state.positions.tolist() == [31, -1, -1, -1]
    assert state.seq_lens.tolist() == [32, 0, 0, 0]


def test_tokens_of_the_last_steps_are_kept() -> None:
    buffers = StateBuffers(Bucket(4, 64), 16, torch.device("cpu"))
    state = buffers.state(Bucket(2, 64))
    buffers.upload(Bucket(2, 64), Batch([1, 2], [0, 0], torch.zeros((2, 1), dtype=torch.int32)), HISTORY_LEN - 1)
    state.advance(torch.tensor([5, 6], dtype=torch.int32))
    state.advance(torch.tensor([7, 8], dtype=torch.int32))
    assert buffers.tokens(Bucket(2, 64), HISTORY_LEN - 1, 2) == [5, 6]
    assert buffers.tokens(Bucket(2, 64), HISTORY_LEN, 1) == [7]
    assert state.positions.tolist() == [2, 2]


# --- running ahead --------------------------------------------------------------------------------------


def decoding(seq_id: int, length: int, table: list[int], writable_len: int = 1000) -> ScheduledSequence:
    sequence = Sequence(seq_id)
    sequence.token_ids = list(range(length))
    sequence.block_table = table
    sequence.writable_len, sequence.stop_length = writable_len, 1000
    return ScheduledSequence(sequence, length - 1, 1, True)


def running(parts: list[ScheduledSequence]) -> RunningStep:
    step = RunningStep(
        Bucket(4, 256), 1, None, [p.sequence for p in parts], "greedy",
        [p.sequence.sampling_params for p in parts], [p.sequence.seed for p in parts],
        [p.start for p in parts], [p.sequence.block_table.copy() for p in parts],
    )  # fmt: skip
    step.token_ids = [p.sequence.token_ids[-1] for p in parts]
    return step


def test_the_next_step_is_known_unless_something_changes() -> None:
    parts = [decoding(1, 9, [4]), decoding(2, 20, [5, 6])]
    step = running(parts)
    assert step.rows_of(parts) == [0, 1]
    assert step.rows_of(parts[1:]) == [1]
    assert step.rows_of([*parts, decoding(3, 2, [7])]) is None
    parts[1].sequence.block_table.append(9)
    assert step.rows_of(parts) == [0, 1]
    parts[1].sequence.block_table[0] = 3
    assert step.rows_of(parts) is None
    assert step.rows_of(parts[:1]) == [0]
    parts[0].sequence.seed = 3
    assert step.rows_of(parts[:1]) is None
    parts[0].sequence.seed = 0
    parts[0].sequence.token_ids[-1] += 1
    assert step.rows_of(parts[:1]) is None
    assert begins_with([1, 2, 3], [1, 2])
    assert not begins_with([1], [1, 2])


def test_nobody_runs_ahead_of_a_block_or_a_bucket() -> None:
    part = decoding(1, 16, [4], writable_len=17)
    assert may_run_ahead([part], 256)
    assert not may_run_ahead([part, decoding(2, 16, [5], writable_len=16)], 256)
    assert not may_run_ahead([part], 16)


def test_rows_of_sequences_that_ended_are_padding_in_the_next_step() -> None:
    parts = [decoding(1, 9, [4]), decoding(2, 20, [5, 6])]
    step = running(parts)
    parts[0].sequence.block_table.append(7)
    later = step.next(parts[1:], [1])
    assert later.starts == [-1, 20]
    assert later.sequences == [None, parts[1].sequence]
    assert later.take_new_tables() == []
    later = step.next(parts, [0, 1])
    assert later.starts == [9, 20]
    assert later.take_new_tables() == [0]
    assert later.tables == [[4, 7], [5, 6]]
    assert step.tables == [[4], [5, 6]]


# --- engines --------------------------------------------------------------------------------------------


def chats(core: EngineCore, seed: int, num_steps: int) -> Iterator[tuple[int, list[int]]]:
    """Sequences come, are forked, rewound, stopped and closed; yields those that are closed, with their tokens."""
    source = random.Random(seed)
    for _ in range(num_steps):
        ids = list(core.sequences)
        action = source.random()
        if action < 0.12 or not ids:
            seq_id = core.open()
            prompt = source.choices(range(VOCAB_SIZE), k=source.choice([1, 5, 16, 40, 150]))
            limit = source.choice([3, 20, 200])
            core.extend(seq_id, prompt, SamplingParams(temperature=0, max_tokens=limit, ignore_eos=True))
        elif action < 0.16:
            core.fork(source.choice(ids))
        elif action < 0.20:
            seq_id = source.choice(ids)
            core.rewind(seq_id, source.randint(1, len(core.sequences[seq_id])))
            core.extend(seq_id, [source.randrange(VOCAB_SIZE)], GREEDY)
        elif action < 0.24 and len(ids) > 12:
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
def test_chats_that_come_and_go_get_the_same_tokens(family: str, preemption_mode: str, device: str) -> None:
    model = tiny_model(family, device, torch.float32)
    replies, runners = [], []
    for captured in (False, True):
        runner = make_runner(model, 48, captured=captured, num_host_blocks=64)
        core = make_engine(runner, preemption_mode=preemption_mode, num_host_blocks=64)
        replies.append(list(chats(core, 1, 400)))
        assert core.scheduler.num_preemptions > 0
        core.check_integrity()
        runners.append(runner)
    assert replies[0] == replies[1]
    decodes = runners[1].decodes
    assert decodes is not None
    assert decodes.num_replays > 200
    assert decodes.num_ahead > 20


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("penalty", [1.0, 1.1])
def test_drawn_tokens_are_the_same_too(penalty: float, device: str) -> None:
    model = tiny_model("opt", device, torch.float32)
    replies = []
    for captured in (False, True):
        runner = make_runner(model, 100, captured=captured)
        core = make_engine(runner)
        for seed in range(5):
            params = SamplingParams(
                temperature=seed % 3, max_tokens=40, seed=seed, repetition_penalty=penalty, top_p=1 - seed / 10
            )
            core.extend(core.open(), [seed + 3] * 5, params)
        while core.has_work:
            core.step()
        replies.append([sequence.token_ids for sequence in core.sequences.values()])
    assert replies[0] == replies[1]
    assert runner.decodes is not None
    assert (runner.decodes.num_ahead > 30) == (penalty == 1)


def test_what_cannot_be_captured_runs_as_before(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("operation not permitted when stream is capturing")

    monkeypatch.setattr(StepStore, "_step", fail)
    model = tiny_model("opt", "cpu", torch.float32)
    replies = []
    for captured in (False, True):
        core = make_engine(make_runner(model, 60, captured=captured))
        core.extend(core.open(), [1, 2, 3], SamplingParams(temperature=0, max_tokens=20))
        while core.has_work:
            core.step()
        replies.append(core.sequences[1].token_ids)
    assert replies[0] == replies[1]
    assert "Steps of 1 sequences are not captured: operation not permitted" in caplog.text
    assert len(caplog.records) == 1


def test_batches_of_another_kind_are_left_to_others(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(decode_steps, "_SHARING_GAIN", 1)
    runner = make_runner(tiny_model("opt", "cpu", torch.float16), 80, captured=True)
    decodes = runner.decodes
    assert decodes is not None
    first, second = prefilled(runner, [300, 300])
    single = one_token_each([first, second])
    chunk = ScheduledSequence(first, len(first) - 2, 2, True)
    assert decodes.begin(SchedulerOutput(0, [chunk, single[1]], [], 3)) is None
    assert decodes.begin(SchedulerOutput(0, single, [], 2), goes_on=False) is not None
    second.block_table[:18] = first.block_table[:18]
    assert decodes.begin(SchedulerOutput(0, single, [], 2)) is None
    assert decodes.begin(SchedulerOutput(0, one_token_each([first] * 21), [], 21)) is None


@pytest.mark.parametrize(("factor", "is_kept"), [(1, True), (-1, False)])
def test_a_captured_step_that_is_off_is_not_used(
    factor: int, is_kept: bool, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    compute = ModuleStep.__call__
    monkeypatch.setattr(ModuleStep, "__call__", lambda step: factor * compute(step))
    runner = make_runner(tiny_model("llama", "cpu", torch.float32), 4, captured=True)
    keep_if_right(runner, VOCAB_SIZE)
    assert (runner.decodes is not None) == is_kept
    assert ("a captured one is off by 2" in caplog.text) == (not is_kept)


def test_prefills_beside_decodes_come_back_in_order() -> None:
    class Decodes:
        def begin(self, batch: SchedulerOutput, *, goes_on: bool) -> SchedulerOutput:
            asked.append((len(batch.scheduled), len(batch.block_ops), goes_on))
            return batch

        def finish(self, begun: SchedulerOutput) -> ModelRunnerOutput:
            return ModelRunnerOutput([[10 + part.sequence.seq_id] for part in begun.scheduled], 1.0, 2.0)

    def others(batch: SchedulerOutput) -> ModelRunnerOutput:
        asked.append((len(batch.scheduled), len(batch.block_ops), batch.num_tokens))
        return ModelRunnerOutput([[20 + part.sequence.seq_id] for part in batch.scheduled], 0.5, 0.25)

    asked: list[tuple[int, int, int]] = []
    chunk = ScheduledSequence(Sequence(1), 0, 5, False)
    single = [decoding(0, 5, [1]), decoding(2, 9, [2])]
    batch = SchedulerOutput(1, [single[0], chunk, single[1]], [BlockOp("copy", 1, 2)], 7)
    output = execute_mixed(Decodes(), batch, others)  # type: ignore[arg-type]
    assert output.token_ids == [[10], [21], [12]]
    assert (output.copy_seconds, output.forward_seconds) == (1.5, 2.25)
    assert asked == [(2, 1, True), (1, 0, 5)]


# --- fused kernels --------------------------------------------------------------------------------------


def prefilled(runner: NativeModelRunner, lens: list[int]) -> list[Sequence]:
    sequences, next_block = [], 0
    source = random.Random(5)
    for seq_id, length in enumerate(lens):
        sequence = Sequence(seq_id)
        sequence.token_ids = source.choices(range(VOCAB_SIZE), k=length)
        num_blocks = length // BLOCK_SIZE + 3
        sequence.block_table = list(range(next_block, next_block + num_blocks))
        sequence.sampling_params, sequence.stop_length = GREEDY, 10_000
        next_block += num_blocks
        sequences.append(sequence)
        runner.execute(SchedulerOutput(0, [ScheduledSequence(sequence, 0, length - 1, False)], [], length - 1))
    return sequences


def one_token_each(sequences: list[Sequence]) -> list[ScheduledSequence]:
    return [ScheduledSequence(sequence, len(sequence) - 1, 1, True) for sequence in sequences]


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize(
    ("num_seqs", "merge"), [(1, False), (3, False), (8, False), (13, False), (40, False), (40, True)]
)
def test_logits_of_captured_steps(
    num_seqs: int, merge: bool, family: str, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(step_store, "MERGE_NORMS", merge)
    model = tiny_model(family, "cuda", dtype)
    lens = [(i * 83) % 240 + 4 for i in range(num_seqs)]
    plain, captured = (make_runner(model, 800, captured=flag, max_num_seqs=64) for flag in (False, True))
    sequences, others = prefilled(plain, lens), prefilled(captured, lens)
    decodes = captured.decodes
    assert decodes is not None
    for _ in range(20):
        parts = one_token_each(sequences)
        logits = plain.forward(flatten(parts, BLOCK_SIZE, plain.device))
        begun = decodes.begin(SchedulerOutput(0, one_token_each(others), [], num_seqs), goes_on=False)
        assert begun is not None
        output = decodes.finish(begun)
        computed = decodes.last_logits[:num_seqs]
        error = (computed.float() - logits.float()).norm() / logits.float().norm()
        assert float(error) < 8 * torch.finfo(dtype).eps
        chosen = computed.float().max(dim=-1).indices.tolist()
        assert [tokens[0] for tokens in output.token_ids] == chosen
        for sequence, other, token_id in zip(sequences, others, chosen, strict=True):
            sequence.token_ids.append(token_id)
            other.token_ids.append(token_id)
    assert decodes.num_replays >= 20
    assert num_seqs > MAX_FUSED or decodes._store._fused is not None


@pytest.mark.gpu
def test_captured_before_there_are_any() -> None:
    runner = make_runner(tiny_model("opt", "cuda", torch.float16), 40, captured=True)
    assert runner.decodes is not None
    assert runner.decodes.prepare(1, 1)
    assert isinstance(runner.decodes, DecodeSteps)
