"""First decodes queued behind their prompts, before anybody knows the tokens: the same tokens, one step sooner."""

from collections.abc import Iterator

import pytest
import torch

from pagedchat.engine.core import EngineCore
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.runtime.attention import cuda_backend
from pagedchat.runtime.graphs.decode.buckets import Bucket
from pagedchat.runtime.graphs.decode.decode_steps import DecodeSteps
from pagedchat.runtime.graphs.decode.state_buffers import Batch, StateBuffers
from pagedchat.runtime.graphs.prefill.buckets import PrefillSizes
from pagedchat.runtime.graphs.prefill.prefill_steps import PrefillSteps
from pagedchat.runtime.step.native_runner import NativeModelRunner
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

GREEDY = SamplingParams(temperature=0, max_tokens=6, ignore_eos=True)


def text(length: int, salt: int) -> list[int]:
    return [(7 * i + 31 * salt + i * i * salt) % VOCAB_SIZE for i in range(length)]


def captured_runner(device: str, family: str = "opt") -> NativeModelRunner:
    model = tiny_model(family, device, torch.float32)
    runner = make_runner(model, 200, captured=True)
    runner.prefills = PrefillSteps(model, runner.backend, PrefillSizes(256, MAX_NUM_SEQS, MODEL_LEN))  # type: ignore[arg-type]
    return runner


def decodes_of(runner: NativeModelRunner) -> DecodeSteps:
    assert runner.decodes is not None
    return runner.decodes


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
def test_tokens_that_the_device_has_go_to_their_rows(device: str) -> None:
    bucket = Bucket(4, 64)
    buffers = StateBuffers(bucket, BLOCK_SIZE, torch.device(device), 16)
    tables = torch.zeros((3, 2), dtype=torch.int32)
    for rows, expected in (([0, 1, 2], [7, 8, 9, 0]), ([2, 0, 1], [8, 9, 7, 0])):
        buffers.upload(bucket, Batch([0, 0, 0], [4, 5, 6], tables), 1)
        tokens = torch.tensor([7, 8, 9], dtype=torch.int32, pin_memory=device == "cuda")
        buffers.take_tokens(bucket, rows, tokens)
        assert buffers.state(bucket).token_ids.tolist() == expected
        buffers.counts.zero_()
        buffers.count_taken(bucket, [2, 0])
        assert buffers.counts.nonzero().tolist() == [[0, expected[0]], [2, expected[2]]]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("family", ["opt", "llama"])
@pytest.mark.parametrize(
    "kind",
    [
        {"temperature": 0.0},
        {"temperature": 1.0},
        {"temperature": 0.0, "frequency_penalty": 2.0, "repetition_penalty": 1.5},
    ],
    ids=["greedy", "drawn", "penalised"],
)
def test_the_first_decode_follows_the_prompts_at_once(kind: dict[str, float], family: str, device: str) -> None:
    prompts = [text(length, salt) for salt, length in enumerate((16, 33, 5, 48))]  # two fill their last block
    params = [SamplingParams(**kind, max_tokens=6, ignore_eos=True, seed=i) for i in range(4)]  # type: ignore[arg-type]
    plain = make_engine(make_runner(tiny_model(family, device, torch.float32), 200, captured=False))
    expected = replies(plain, ask(plain, prompts, params))
    runner = captured_runner(device, family)
    decodes = decodes_of(runner)
    assert decodes.prepare(4, 64)
    core = make_engine(runner, max_num_batched_tokens=256)
    ids = ask(core, prompts, params)
    core.step()
    assert (decodes.num_replays, decodes.num_ahead) == (1, 0)
    core.step()
    assert (decodes.num_replays, decodes.num_ahead) == (2, 1)
    assert replies(core, ids) == expected
    assert decodes.num_replays == decodes.num_ahead == 5


def test_nobody_waits_for_a_graph_with_a_first_token() -> None:
    runner = captured_runner("cpu")
    core = make_engine(runner, max_num_batched_tokens=256)
    ask(core, [text(20, 1)], [GREEDY])
    core.step()
    assert decodes_of(runner).num_replays == 0
    core.step()
    assert decodes_of(runner).num_ahead == 0


def test_none_is_begun_that_nobody_asks_for() -> None:
    runner = captured_runner("cpu")
    decodes_of(runner).prepare(1, 64)
    core = make_engine(runner, max_num_batched_tokens=256)
    ask(core, [text(20, 1)], [SamplingParams(temperature=0, max_tokens=1)])
    core.step()
    assert decodes_of(runner).num_replays == 0


def test_one_that_ends_with_its_first_token_is_left_out() -> None:
    runner = captured_runner("cpu")
    decodes = decodes_of(runner)
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
    runner = captured_runner("cpu")
    decodes_of(runner).prepare(1, 64)
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
    runners = captured_runner("cpu"), make_runner(tiny_model("opt", "cpu", torch.float32), 200, captured=False)
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
