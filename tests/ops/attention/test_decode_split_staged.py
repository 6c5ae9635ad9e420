"""Decode attention whose tiles come through shared memory, against float64 over what the bytes stand for."""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from pagedchat.ops.attention.call import AttentionOptions
from pagedchat.ops.attention.decode_plan import DecodeShape, SplitPlan
from pagedchat.ops.attention.decode_split import decode_shape, launch_on_splits
from pagedchat.ops.attention.decode_workspace import partial_states
from pagedchat.ops.cache.byte_cache import DTYPES, dequantised, quantised
from pagedchat.ops.cache.byte_kinds import CacheKind
from tests.ops.byte_case import KINDS, in_bytes
from tests.ops.cuda_layout_case import check_attention, make_layout_case, results
from tests.tools.emulator_case import needs_compiler
from tools.emulator.ops import kernels_on_cpu

DEVICES = [pytest.param("cpu", marks=needs_compiler), pytest.param("cuda", marks=pytest.mark.gpu)]
LENS = [1, 17, 33, 100, 517, 0]
PLANS = [SplitPlan(2, 5, 4, staged=2), SplitPlan(8, 17, 1, staged=1), SplitPlan(2, 17, 1, staged=3)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("plan", PLANS, ids=str)
@pytest.mark.parametrize(("block_size", "window"), [(16, None), (8, 40), (32, None)])
def test_tiles_come_through_shared_memory(
    block_size: int, window: int | None, plan: SplitPlan, kind: CacheKind, device: str
) -> None:
    shape = {"head_size": 128 if block_size == 16 else 64, "block_size": block_size, "num_kv_heads": 2}
    case = in_bytes(make_layout_case(LENS, dtype=torch.float16, device=device, **shape), kind)
    options = AttentionOptions(scale=0.1, sliding_window=window)
    for seed in (0, 3):
        call = case.call(options)
        with kernels_on_cpu(seed=seed) if device == "cpu" else nullcontext():
            launch_on_splits(call, decode_shape(call), plan, partial_states(case.query, plan.num_splits))
        check_attention(case, options, *results(call))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
def test_the_newest_token_is_written_before_its_tile_is_copied(kind: CacheKind, device: str) -> None:
    lens, head_size, options = [1, 17, 64, 500], 128, AttentionOptions(scale=0.1)
    case = in_bytes(make_layout_case(lens, dtype=torch.float16, device=device, head_size=head_size), kind)
    heads = torch.randn(len(lens), 4 + 2 * 2, head_size, device=device).half()
    call, plan = replace(case.call(options), query=heads[:, :4]), SplitPlan(2, 6, 3, staged=3)
    partial = partial_states(case.query, plan.num_splits)
    with kernels_on_cpu(seed=3) if device == "cpu" else nullcontext():
        launch_on_splits(call, decode_shape(call), plan, partial, overlap=True, writes_new=True)
    kept = dequantised(*quantised(heads[:, 4:], DTYPES[kind]), torch.float32)
    for seq in range(len(lens)):
        case.keys[seq][-1], case.values[seq][-1] = kept[seq, :2], kept[seq, 2:]
    check_attention(replace(case, query=heads[:, :4]), options, *results(call))


def test_what_is_staged_leaves_room_for_what_warps_share() -> None:
    shape = DecodeShape(8, 4, 128, 1)
    shared = 8 * shape.rows * (shape.head_size + 4) * 4
    assert SplitPlan(8, 64, 16).staged_bytes(128) == 0
    assert SplitPlan(8, 64, 16, staged=2).staged_bytes(128) == 8 * 2 * (2 * 32 * 128 + 8)
    assert SplitPlan(8, 64, 16, staged=2).staged_bytes(128) + shared < 227 << 10
