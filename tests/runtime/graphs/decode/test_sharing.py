"""Captured steps of chats that begin with the same blocks."""

import random

import pytest
import torch

from pagedchat.engine.core import EngineCore
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.runtime.attention import cuda_backend
from pagedchat.runtime.attention.prefix_groups import SharingRule
from pagedchat.runtime.graphs.decode.buckets import MAX_GROUPS, Bucket, shared_bucket
from pagedchat.runtime.graphs.decode.sharing import share_rows
from pagedchat.runtime.graphs.decode.state_buffers import Batch, StateBuffers
from tests.ops.paged_case import DEVICES
from tests.runtime.graphs.case import VOCAB_SIZE, make_engine, make_runner, tiny_model


def test_groups_are_told_to_the_device_behind_the_number_of_the_step() -> None:
    buffers = StateBuffers(Bucket(8, 64), 16, torch.device("cpu"), VOCAB_SIZE)
    bucket = Bucket(4, 64, MAX_GROUPS, 64)
    tables = torch.zeros((3, 2), dtype=torch.int32)
    buffers.upload(bucket, Batch([1, 2, 3], [20, 21, 5], tables, None, [16, 16, 0], [0, 2]), 7)
    shared = buffers.shared(bucket)
    assert shared.lens.tolist() == [16, 16, 0, 0]
    assert shared.group_starts.tolist() == [0] + [2] * MAX_GROUPS  # the other groups have no members
    assert buffers.state(bucket).step.tolist() == [7]
    assert buffers.state(bucket).token_ids.tolist() == [1, 2, 3, 0]
    buffers.upload(bucket, Batch([1], [20], tables[:1]), 8)
    assert shared.lens.tolist() == [0] * 4
    assert shared.group_starts.tolist() == [0] * (MAX_GROUPS + 1)


def test_groups_come_first_and_those_that_save_most_before_others() -> None:
    rule = SharingRule(16, 1)
    tables = [[1, 2, 3], [8, 9], [1, 2, 4], [7], [8, 10], [1, 2, 5]]
    shared = share_rows(tables, [40, 20, 40, 5, 20, 40], 16, rule)
    assert shared is not None
    assert shared.order == [0, 2, 5, 1, 4, 3]
    assert shared.lens == [32, 32, 32, 16, 16, 0]
    assert shared.group_starts == [0, 3, 5]
    assert shared.num_groups == 2
    assert shared.rows == [0, 3, 1, 5, 4, 2]
    assert shared.own_starts == [32, 0, 32, 0, 0, 32]
    assert share_rows(tables, [40, 20, 40, 5, 20, 40], 16, None) is None
    assert share_rows(tables, [40, 20, 40, 5, 20, 40], 16, SharingRule(16, 100)) is None
    assert share_rows(tables[:1], [40], 16, rule) is None


def test_more_groups_than_a_step_has_are_not_read_together() -> None:
    tables = [[group, 100 + 2 * group + member] for group in range(10) for member in range(2)]
    shared = share_rows(tables, [20] * 20, 16, SharingRule(16, 1))
    assert shared is not None
    assert shared.num_groups == MAX_GROUPS
    assert shared.lens == [16] * 16 + [0] * 4
    assert sorted(shared.order) == list(range(20))
    assert shared_bucket(Bucket(20, 1024), 3, 300) == Bucket(20, 1024, 4, 512)
    assert shared_bucket(Bucket(20, 1024), 1, 3) == Bucket(20, 1024, 1, 256)
    assert shared_bucket(Bucket(20, 600), 1, 640) == Bucket(20, 600, 1, 600)


def run_all(core: EngineCore, prompts: list[tuple[list[int], int]]) -> list[int]:
    """New chats that say so many tokens at most."""
    ids = [core.open() for _ in prompts]
    for seq_id, (prompt, limit) in zip(ids, prompts, strict=True):
        core.extend(seq_id, prompt, SamplingParams(temperature=0, max_tokens=limit, ignore_eos=True))
    while core.has_work:
        core.step()
    return ids


def over_prefixes(core: EngineCore, prefixes: list[list[int]]) -> list[list[int]]:
    """Chats in turn over these beginnings and one over none, some of which end early; their tokens."""
    source = random.Random(4)
    run_all(core, [(prefix, 1) for prefix in prefixes])  # computed once, found by all that follow
    chats = [
        (prefixes[i % len(prefixes)] + source.choices(range(VOCAB_SIZE), k=5 + i), 12 if i % 4 == 1 else 40)
        for i in range(3 * len(prefixes))
    ]
    ids = run_all(core, [*chats, ([5, 6, 7], 40)])
    return [list(core.sequences[seq_id].token_ids) for seq_id in ids]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("num_prefixes", [1, 3])
@pytest.mark.parametrize("family", ["opt", "llama", "qwen3"])
def test_chats_over_one_beginning_run_captured_too(
    family: str, num_prefixes: int, device: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_backend, "MIN_SAVED_BYTES", 1)
    dtype = torch.float16 if device == "cuda" else torch.float32
    model = tiny_model(family, device, dtype)
    monkeypatch.setattr(cuda_backend, "uses_tensor_cores", lambda *_: True)
    prefixes = [[(7 * i + 31 * k) % VOCAB_SIZE for i in range(272)] for k in range(num_prefixes)]
    replies = []
    for captured in (False, True):
        runner = make_runner(model, 200, captured=captured)
        replies.append(over_prefixes(make_engine(runner), prefixes))
    buckets = {bucket.num_groups for bucket, _ in runner.decodes.store._steps}
    assert (1 if num_prefixes == 1 else 4) in buckets
    assert runner.decodes.num_ahead > 20
    same = [ours == theirs for ours, theirs in zip(*replies, strict=True)]
    assert sum(same) >= (len(same) if device == "cpu" else 0.7 * len(same))
