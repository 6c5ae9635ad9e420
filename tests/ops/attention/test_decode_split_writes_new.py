"""Decode attention that puts the newest keys and values into the cache itself."""

import pytest
import torch

from pagedchat.ops.attention.call import AttentionCall, AttentionOptions
from pagedchat.ops.attention.decode_grid import SplitPlan
from pagedchat.ops.attention.decode_split import launch_split
from tests.ops.attention.changed_case import without_newest
from tests.ops.cuda_layout_case import check_attention, make_layout_case

SEQ_LENS = [1, 15, 16, 17, 31, 32, 33, 64, 65, 100, 517, 0]


@pytest.mark.gpu
@pytest.mark.parametrize("window", [None, 40])
@pytest.mark.parametrize("plan", [(2, 1), (4, 3), (8, 2)], ids=str)
@pytest.mark.parametrize("gathers", [False, True])
@pytest.mark.parametrize(
    ("num_heads", "num_kv_heads", "head_size", "block_size"),
    [(12, 12, 64, 16), (8, 2, 128, 16), (6, 2, 80, 8), (4, 1, 256, 32), (40, 1, 64, 16)],
)
def test_newest_tokens_are_written_and_read(
    num_heads: int,
    num_kv_heads: int,
    head_size: int,
    block_size: int,
    plan: tuple[int, int],
    gathers: bool,
    window: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    case = make_layout_case(
        SEQ_LENS,
        num_heads=num_heads,
        num_kv_heads=num_kv_heads,
        head_size=head_size,
        block_size=block_size,
        dtype=torch.float16,
        device="cuda",
    )
    heads, key_cache, value_cache = without_newest(case)
    num_warps, num_splits = plan if num_heads < 40 else (2, plan[1])
    split = SplitPlan(num_warps, -(-17 // num_splits), num_splits, gathers=gathers)
    monkeypatch.setattr("pagedchat.ops.attention.decode_split.plan_split", lambda *_sizes, **_: split)
    options, output = AttentionOptions(scale=0.1, sliding_window=window), case.poisoned_output()
    inputs = (heads[:, :num_heads], key_cache, value_cache, case.block_tables, case.seq_lens)
    lse = case.poisoned_lse()
    call = AttentionCall(*inputs, options, output, lse)
    launch_split(call, 517, None, overlap=True, writes_new=True)
    check_attention(case, options, output, lse)
    for ours, wanted in ((key_cache, case.key_cache), (value_cache, case.value_cache)):
        assert torch.equal(ours.nan_to_num(7.0), wanted.nan_to_num(7.0))
