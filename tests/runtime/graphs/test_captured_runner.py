"""Decodes and prefills beside each other, and first decodes behind their prompts: the same tokens, sooner."""

from collections.abc import Iterator
from types import SimpleNamespace

import pytest
import torch

from pagedchat.engine.core import EngineCore
from pagedchat.engine.output import BlockOp, DecodeRun, ModelRunnerOutput, ScheduledSequence, SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence
from pagedchat.runtime.attention import cuda_backend
from pagedchat.runtime.graphs.captured_runner import CapturedRunner
from pagedchat.runtime.graphs.decode.buckets import Bucket
from pagedchat.runtime.graphs.decode.state_buffers import StateBuffers
from tests.ops.paged_case import DEVICES
from tests.runtime.graphs.case import VOCAB_SIZE, batch_of, chunk, decoding, make_engine, make_runner, tiny_model

GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)


def captured_runner(device: str = "cpu", family: str = "opt") -> CapturedRunner:
    return make_runner(tiny_model(family, device, torch.float32), 200, captured=True, max_num_tokens=256)


# --- both kinds -----------------------------------------------------------------------------------------


class Recorded:
    """Stands for decode steps, for prefill steps and an eager runner; notes who is asked what, in which order."""

    chooses_beams = False

    def __init__(self, name: str, asked: list[tuple[object, ...]], runs: bool = True) -> None:
        self.name, self.asked, self.runs = name, asked, runs

    def begin(self, batch: SchedulerOutput, goes_on: bool | None = None) -> SimpleNamespace | None:
        self.asked.append((self.name, len(batch.scheduled), len(batch.block_ops), goes_on))
        return SimpleNamespace(batch=batch, sampled=[]) if self.runs else None

    def finish(self, begun: SimpleNamespace) -> ModelRunnerOutput:
        self.asked.append((self.name,))
        return self.output(begun.batch)

    def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        self.asked.append((self.name, len(batch.scheduled), len(batch.block_ops), batch.num_tokens))
        return self.output(batch)

    def output(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        token_ids = [[len(self.name), part.start] for part in batch.scheduled]
        return ModelRunnerOutput(token_ids, copy_seconds=0.5, forward_seconds=1.0)


@pytest.mark.parametrize(
    ("runs", "expected"),
    [
        ((True, True), [("decode", 2, 1, False), ("prompt", 1, 0, None), ("decode",), ("prompt",)]),
        ((True, False), [("decode", 2, 1, False), ("prompt", 1, 0, None), ("eager", 1, 0, 8), ("decode",)]),
        ((False, True), [("decode", 2, 1, False), ("prompt", 1, 1, None), ("eager", 2, 0, 2), ("prompt",)]),
        ((False, False), [("decode", 2, 1, False), ("prompt", 1, 1, None), ("eager", 3, 1, 10)]),
    ],
)
def test_both_kinds_are_queued_before_either_is_waited_for(
    runs: tuple[bool, bool], expected: list[tuple[object, ...]]
) -> None:
    asked: list[tuple[object, ...]] = []
    parts = [chunk([1] * 5, [1], 4), chunk([1] * 9, [2], 1), chunk([1] * 9, [3], 8)]
    batch = SchedulerOutput(1, parts, [BlockOp("copy", 5, 6)], 10)
    decodes, prefills = Recorded("decode", asked, runs[0]), Recorded("prompt", asked, runs[1])
    output = CapturedRunner(Recorded("eager", asked), decodes, prefills).execute(batch)  # type: ignore[arg-type]
    assert asked == expected
    assert [tokens[1] for tokens in output.token_ids] == [4, 1, 8]
    num_outputs = sum(len(call) == 1 or call[0] == "eager" for call in expected)
    assert (output.copy_seconds, output.forward_seconds) == (0.5 * num_outputs, num_outputs)


def test_without_captured_prefills_chunks_are_run_while_the_device_decodes() -> None:
    asked: list[tuple[object, ...]] = []
    unfinished = ScheduledSequence(Sequence(1), 0, 5, False)
    parts = [decoding(0, 5, [1]), unfinished, decoding(2, 9, [2])]
    batch = SchedulerOutput(1, parts, [BlockOp("copy", 1, 2)], 7)
    runner = CapturedRunner(Recorded("eager", asked), Recorded("decode", asked))  # type: ignore[arg-type]
    output = runner.execute(batch)
    assert output.token_ids == [[6, 4], [5, 0], [6, 8]]
    assert asked == [("decode", 2, 1, True), ("eager", 1, 0, 5), ("decode",)]


@pytest.mark.parametrize(
    ("runs", "expected"),
    [(True, [("decode", 2, 0, None), ("decode",)]), (False, [("decode", 2, 0, None), ("eager", 2, 0, 2)])],
)
def test_a_run_has_nothing_but_decodes(runs: bool, expected: list[tuple[object, ...]]) -> None:
    asked: list[tuple[object, ...]] = []
    batch = SchedulerOutput(1, [decoding(0, 5, [1]), decoding(2, 9, [2])], [], 2, DecodeRun(room=4))
    decodes, prefills = Recorded("decode", asked, runs), Recorded("prompt", asked)
    output = CapturedRunner(Recorded("eager", asked), decodes, prefills).execute(batch)  # type: ignore[arg-type]
    assert asked == expected
    assert [tokens[1] for tokens in output.token_ids] == [4, 8]


def test_the_engine_has_its_turn_between_queueing_and_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    runner = captured_runner()
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


def test_decodes_run_ahead_while_a_long_prompt_is_computed() -> None:
    runner = captured_runner()
    core = make_engine(runner, max_num_batched_tokens=64)
    core.extend(core.open(), [1, 2, 3], SamplingParams(temperature=0, max_tokens=40, ignore_eos=True))
    for _ in range(3):
        core.step()
    assert runner.prefills is not None
    core.extend(core.open(), [5] * 400, SamplingParams(temperature=0, max_tokens=3, ignore_eos=True))
    ahead, replays = runner.decodes.num_ahead, runner.prefills.num_replays
    for _ in range(6):
        core.step()
    assert runner.decodes.num_ahead - ahead == 6
    assert runner.prefills.num_replays - replays == 6


# --- replies behind prompts -----------------------------------------------------------------------------

KINDS: list[dict[str, float]] = [
    {"temperature": 0.0},
    {"temperature": 1.0},
    {"temperature": 0.0, "frequency_penalty": 2.0, "repetition_penalty": 1.5},
]
"""How tokens are chosen."""


def text(length: int, salt: int) -> list[int]:
    return [(7 * i + 31 * salt + i * i * salt) % VOCAB_SIZE for i in range(length)]


def ask(core: EngineCore, prompts: list[list[int]], params: list[SamplingParams]) -> list[int]:
    ids = [core.open() for _ in prompts]
    for seq_id, prompt, each in zip(ids, prompts, params, strict=True):
        core.extend(seq_id, prompt, each)
    return ids


def replies(core: EngineCore, ids: list[int]) -> list[list[int]]:
    while core.has_work:
        core.step()
    core.check_integrity()
    return [core.sequences[seq_id].output_token_ids for seq_id in ids]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", ["opt", "llama", "qwen3"])
@pytest.mark.parametrize("kind", KINDS, ids=["greedy", "drawn", "penalised"])
def test_the_first_decode_follows_the_prompts_at_once(kind: dict[str, float], family: str, device: str) -> None:
    prompts = [text(length, salt) for salt, length in enumerate((16, 33, 5, 48))]  # two fill their last block
    params = [SamplingParams(**kind, max_tokens=6, ignore_eos=True, seed=i) for i in range(4)]  # type: ignore[arg-type]
    plain = make_engine(make_runner(tiny_model(family, device, torch.float32), 200, captured=False))
    expected = replies(plain, ask(plain, prompts, params))
    runner = captured_runner(device, family)
    decodes = runner.decodes
    assert decodes.prepare(4, 64)
    core = make_engine(runner, max_num_batched_tokens=256)
    ids = ask(core, prompts, params)
    core.step()
    assert (decodes.num_replays, decodes.num_ahead) == (1, 0)
    core.step()
    assert (decodes.num_replays, decodes.num_ahead) == (2, 1)
    assert replies(core, ids) == expected
    assert decodes.num_replays == decodes.num_ahead == 5


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS, ids=["greedy", "drawn", "penalised"])
def test_decodes_beside_prompts_go_on_with_the_first_ones_behind_them(kind: dict[str, float], device: str) -> None:
    prompts = [text(length, salt) for salt, length in enumerate((16, 33, 5, 48, 20, 64))]
    params = [SamplingParams(**kind, max_tokens=4 + 3 * i, ignore_eos=True, seed=i) for i in range(6)]  # type: ignore[arg-type]
    found = []
    for captured in (False, True):
        runner = (
            captured_runner(device)
            if captured
            else make_runner(tiny_model("opt", device, torch.float32), 200, captured=False)
        )
        if captured:
            assert runner.decodes.prepare(4, 64)
            assert runner.decodes.prepare(8, 96)
        core = make_engine(runner, max_num_batched_tokens=256)
        ids = ask(core, prompts[:3], params[:3])
        for _ in range(4):  # the first chat ends with the fourth token, beside the prompts
            if len(core.sequences[ids[0]].output_token_ids) == 3:
                ids += ask(core, prompts[3:], params[3:])
            core.step()
        if captured:
            assert (runner.decodes.num_replays, runner.decodes.num_ahead) == (4, 3)  # one more is under way
        core.step()
        if captured:
            assert runner.decodes.num_ahead == 4
        found.append(replies(core, ids))
    assert found[0] == found[1]


def test_nobody_waits_for_a_graph_with_a_first_token() -> None:
    runner = captured_runner()
    core = make_engine(runner, max_num_batched_tokens=256)
    ask(core, [text(20, 1)], [GREEDY])
    core.step()
    assert runner.decodes.num_replays == 0
    core.step()
    assert runner.decodes.num_ahead == 0


def test_none_is_begun_that_nobody_asks_for() -> None:
    runner = captured_runner()
    runner.decodes.prepare(1, 64)
    core = make_engine(runner, max_num_batched_tokens=256)
    ask(core, [text(20, 1)], [SamplingParams(temperature=0, max_tokens=1)])
    core.step()
    assert runner.decodes.num_replays == 0


def test_one_that_ends_with_its_first_token_is_left_out() -> None:
    runner = captured_runner()
    decodes = runner.decodes
    decodes.prepare(2, 64)
    core = make_engine(runner, max_num_batched_tokens=256)
    ids = ask(core, [text(20, 1), text(32, 2)], [SamplingParams(temperature=0, max_tokens=1), GREEDY])
    plain = make_engine(make_runner(tiny_model("opt", "cpu", torch.float32), 200, captured=False))
    expected = replies(
        plain, ask(plain, [text(20, 1), text(32, 2)], [core.sequences[i].sampling_params for i in ids])
    )
    assert replies(core, ids) == expected
    assert decodes.num_ahead > 0


def test_a_chat_that_is_rewound_meanwhile_gets_other_tokens() -> None:
    runner = captured_runner()
    runner.decodes.prepare(1, 64)
    core = make_engine(runner, max_num_batched_tokens=256)
    [seq_id] = ask(core, [text(32, 3)], [GREEDY])
    core.step()
    core.rewind(seq_id, 20)
    core.extend(seq_id, text(12, 4), GREEDY)
    plain = make_engine(make_runner(tiny_model("opt", "cpu", torch.float32), 200, captured=False))
    assert replies(core, [seq_id]) == replies(plain, ask(plain, [text(32, 3)[:20] + text(12, 4)], [GREEDY]))


def test_rows_that_share_a_beginning_get_their_own_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cuda_backend, "MIN_SAVED_BYTES", 1)
    monkeypatch.setattr(cuda_backend, "uses_tensor_cores", lambda *_: True)
    orders: list[list[int]] = []
    take = StateBuffers.take_tokens

    def noting(buffers: StateBuffers, bucket: Bucket, rows: list[int], tokens: torch.Tensor) -> None:
        orders.append(rows)
        take(buffers, bucket, rows, tokens)

    monkeypatch.setattr(StateBuffers, "take_tokens", noting)
    runners = captured_runner(), make_runner(tiny_model("opt", "cpu", torch.float32), 200, captured=False)
    ours, theirs = ([*rounds(make_engine(runner, max_num_batched_tokens=512))] for runner in runners)
    assert ours == theirs
    assert [3, 0, 4, 1, 2] in orders


def rounds(core: EngineCore) -> Iterator[list[list[int]]]:
    """Three chats of five over one beginning: it is computed, then found, then all that it takes is captured."""
    prefix = text(272, 1)
    for salt in range(3):
        lens = {9: [], 5: prefix, 40: [], 7: prefix, 16: prefix}
        prompts = [before + text(length, 10 * salt + length) for length, before in lens.items()]
        yield replies(core, ask(core, prompts, [GREEDY] * len(prompts)))
