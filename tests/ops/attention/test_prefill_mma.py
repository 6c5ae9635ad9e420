"""The mma prefill kernel against float64, where it does things of its own: tiles, and keys split over the grid.

What it shares with the other prefill kernels is in test_prefill.py.
"""

import pytest
import torch

from pagedchat.ops.attention import prefill_mma, prefill_plan, prefill_wgmma
from pagedchat.ops.attention.call import AttentionOptions
from pagedchat.ops.attention.prefill import paged_prefill
from pagedchat.ops.attention.prefill_plan import (
    PrefillTile,
    choose_splits,
    choose_tile,
    max_thread_blocks,
    splits_pay,
)
from tests.ops.cuda_layout_case import HEAD_SIZES, check_attention, make_layout_case, make_sinks, results

SEQ_LENS = [5, 1, 140, 33, 700, 64, 300, 555, 18]
QUERY_LENS = [5, 1, 140, 33, 1, 64, 7, 200, 17]
"""Whole prompts, chunks of one token, later chunks."""
TILES = [
    PrefillTile(4, 32, 64),
    PrefillTile(8, 16, 64, stages=3),
    PrefillTile(2, 16, 32),
    PrefillTile(4, 16, 128, min_thread_blocks=2, query_in_registers=True),
]


@pytest.mark.gpu
@pytest.mark.parametrize("tile", TILES, ids=str)
@pytest.mark.parametrize("num_splits", [1, 2, 19])
@pytest.mark.parametrize("head_size", [64, 112])
@pytest.mark.parametrize("has_sinks", [False, True])
def test_every_tile_and_split_gives_the_same(
    tile: PrefillTile, num_splits: int, head_size: int, has_sinks: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(prefill_wgmma, "supported", lambda *_: False)
    monkeypatch.setattr(prefill_mma, "choose_tile", lambda *_: tile)
    monkeypatch.setattr(prefill_mma, "choose_splits", lambda *_: num_splits)
    case = make_layout_case(
        SEQ_LENS, QUERY_LENS, num_heads=6, head_size=head_size, dtype=torch.bfloat16, device="cuda"
    )
    options = AttentionOptions(scale=0.1, sliding_window=130, sinks=make_sinks(6, "cuda") if has_sinks else None)

    call = case.call(options)
    paged_prefill(call, case.cu_seqlens_q, max_query_len=case.max_query_len)

    check_attention(case, options, *results(call))


@pytest.mark.parametrize("shared_limit", [64 << 10, 99 << 10, 227 << 10])
@pytest.mark.parametrize("num_rows", [1, 64, 65, 5000])
def test_a_tile_fits_into_shared_memory(shared_limit: int, num_rows: int) -> None:
    for head_size in HEAD_SIZES:
        tile = choose_tile(head_size, 16, num_rows, shared_limit)
        if tile is None:
            assert (head_size, shared_limit) == (256, 64 << 10)
        else:
            assert tile.shared_bytes(head_size, 16) <= shared_limit


def test_thread_blocks_are_enough_for_any_lengths() -> None:
    tile = PrefillTile(4, 16, 64)
    for lens in ([1, 1, 1], [64, 1, 63], [65, 200, 0], [7]):
        needed = sum(-(-length * 3 // tile.rows) for length in lens)
        assert needed <= max_thread_blocks(tile, sum(lens) * 3, len(lens))


def test_keys_are_split_only_where_the_gpu_would_idle() -> None:
    assert choose_splits(8, 32768, 132) == prefill_plan.THREAD_BLOCKS * 132 // 8
    assert choose_splits(1000, 32768, 132) == 1
    assert choose_splits(8, 2048, 132) == choose_splits(8, 512, 132) == prefill_plan.FEW_SPLITS
    assert choose_splits(8, 200, 132) == 200 // prefill_plan.FEWEST_KEYS
    assert choose_splits(8, prefill_plan.FEWEST_KEYS, 132) == 1
    assert choose_splits(100, 2048, 132) == 2


def test_few_rows_of_a_long_context_are_split_instead_of_going_by_wgmma() -> None:
    assert splits_pay(128, 24, 8192, 132)
    assert not splits_pay(128, 40, 8192, 132)  # too many rows for eight parts each
    assert splits_pay(64, 16, 2048, 132)
    assert not splits_pay(64, 24, 2048, 132)
    assert not splits_pay(128, 16, 2048, 132)
    assert not splits_pay(64, 4, 512, 132)
