"""The wgmma prefill kernel against float64, where it does things of its own: tiles, persistent grid, wide batches.

What it shares with the other prefill kernels is in test_prefill.py.
"""

import pytest
import torch

from pagedchat.ops.attention import prefill_wgmma
from pagedchat.ops.attention.call import AttentionOptions
from pagedchat.ops.attention.prefill_wgmma import launch, supported
from pagedchat.ops.attention.wgmma_plan import TILES, WgmmaTile, choose_tile, max_items, tiles_of
from pagedchat.ops.common.choices import BLOCK_SIZES
from tests.ops.cuda_layout_case import LayoutCase, check_attention, make_layout_case, make_sinks, results

DTYPES = [torch.float16, torch.bfloat16]
SHARED_LIMIT = 227 << 10
SEQ_LENS = [5, 1, 140, 33, 700, 64, 300, 555, 129]
QUERY_LENS = [5, 1, 140, 33, 1, 64, 7, 200, 128]
"""Whole prompts, chunks of one token, later chunks, ends on and beside the tiles' edges."""
OTHER_TILES = [
    WgmmaTile(consumers=1, keys=64),
    WgmmaTile(consumers=2, keys=96, stages=3),
    WgmmaTile(consumers=2, keys=160),
    WgmmaTile(consumers=3, keys=128),
]


def attend(case: LayoutCase, options: AttentionOptions) -> tuple[torch.Tensor, torch.Tensor]:
    call = case.call(options)
    if not supported(call):
        pytest.skip("needs a Hopper GPU")
    launch(call, case.cu_seqlens_q, case.max_query_len)
    return results(call)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block_size", BLOCK_SIZES)
@pytest.mark.parametrize("head_size", TILES)
def test_every_shape_of_head_and_block(dtype: torch.dtype, block_size: int, head_size: int) -> None:
    case = make_layout_case(
        SEQ_LENS, QUERY_LENS, head_size=head_size, block_size=block_size, dtype=dtype, device="cuda"
    )
    options = AttentionOptions(scale=head_size**-0.5)

    output, lse = attend(case, options)

    check_attention(case, options, output, lse)


@pytest.mark.gpu
@pytest.mark.parametrize("window", [1, 63, 64, 65, 128, 129, 400])
@pytest.mark.parametrize("head_size", [64, 128])
def test_windows_that_end_beside_a_tile(window: int, head_size: int) -> None:
    case = make_layout_case(SEQ_LENS, QUERY_LENS, head_size=head_size, dtype=torch.float16, device="cuda")
    options = AttentionOptions(scale=0.1, sliding_window=window)

    output, lse = attend(case, options)

    check_attention(case, options, output, lse)


@pytest.mark.gpu
@pytest.mark.parametrize("capped", [False, True])
@pytest.mark.parametrize("sloped", [False, True])
@pytest.mark.parametrize("has_sinks", [False, True])
@pytest.mark.parametrize("head_size", TILES)
def test_soft_cap_slopes_and_sinks(head_size: int, capped: bool, sloped: bool, has_sinks: bool) -> None:
    case = make_layout_case(
        SEQ_LENS, QUERY_LENS, num_heads=6, head_size=head_size, dtype=torch.bfloat16, device="cuda"
    )
    options = AttentionOptions(
        scale=0.1,
        cap=5.0 if capped else None,
        alibi_slopes=torch.linspace(0.01, 0.5, 6, device="cuda") if sloped else None,
        sinks=make_sinks(6, "cuda") if has_sinks else None,
    )

    output, lse = attend(case, options)

    check_attention(case, options, output, lse)


@pytest.mark.gpu
@pytest.mark.parametrize(("num_heads", "num_kv_heads"), [(1, 1), (6, 2), (7, 1), (64, 8)])
def test_heads_of_a_group_are_rows_of_a_tile(num_heads: int, num_kv_heads: int) -> None:
    case = make_layout_case(
        SEQ_LENS, QUERY_LENS, num_heads=num_heads, num_kv_heads=num_kv_heads, dtype=torch.float16, device="cuda"
    )
    options = AttentionOptions(scale=0.125)

    output, lse = attend(case, options)

    check_attention(case, options, output, lse)


@pytest.mark.gpu
def test_thread_blocks_take_several_items_of_many_sequences() -> None:
    query_lens = [1 + 7 * i % 90 for i in range(150)]
    seq_lens = [length + 31 * i % 200 for i, length in enumerate(query_lens)]
    case = make_layout_case(seq_lens, query_lens, num_heads=8, dtype=torch.float16, device="cuda")
    options = AttentionOptions(scale=0.125)

    output, lse = attend(case, options)

    check_attention(case, options, output, lse)


@pytest.mark.gpu
@pytest.mark.parametrize("tile", OTHER_TILES, ids=str)
def test_every_tile_gives_the_same(tile: WgmmaTile, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prefill_wgmma, "choose_tile", lambda *_, **__: tile)
    case = make_layout_case(SEQ_LENS, QUERY_LENS, head_size=64, block_size=8, dtype=torch.float16, device="cuda")
    options = AttentionOptions(scale=0.125, sliding_window=170)

    output, lse = attend(case, options)

    check_attention(case, options, output, lse)


@pytest.mark.gpu
def test_a_launch_repeats_itself_bit_for_bit() -> None:
    case = make_layout_case([3000, 700], [1500, 700], num_heads=16, dtype=torch.float16, device="cuda")
    options = AttentionOptions(scale=0.125)

    first, second = attend(case, options), attend(case, options)

    assert torch.equal(first[0], second[0])
    assert torch.equal(first[1], second[1])


@pytest.mark.parametrize("head_size", TILES)
def test_tiles_fit_into_shared_memory(head_size: int) -> None:
    for finishes_scores in (False, True):
        for tile in tiles_of(head_size, finishes_scores=finishes_scores):
            assert tile.shared_bytes(head_size) <= SHARED_LIMIT
            assert tile.keys % max(BLOCK_SIZES) == 0


def test_tiles_are_as_large_as_leaves_every_multiprocessor_one() -> None:
    def consumers(num_tokens: int, heads: int, kv_heads: int, head_size: int, *, finishes: bool = False) -> int:
        tile = choose_tile(
            head_size,
            finishes_scores=finishes,
            num_rows=num_tokens * heads // kv_heads,
            num_kv_heads=kv_heads,
            num_multiprocessors=132,
        )
        return tile.consumers

    assert [consumers(length, 14, 2, 64) for length in (512, 1536, 4096)] == [1, 2, 3]
    assert [consumers(length, 16, 8, 128) for length in (512, 1536)] == [1, 2]
    assert consumers(1536, 32, 8, 64) == 3
    assert consumers(1536, 32, 8, 64, finishes=True) == 2
    assert consumers(64, 8, 8, 256) == 2


def test_items_are_enough_for_any_lengths() -> None:
    tile = WgmmaTile(consumers=2, keys=128)
    for lens in ([1, 1, 1], [128, 1, 127], [129, 400, 0], [7]):
        needed = sum(-(-length * 3 // tile.rows) for length in lens)
        assert needed <= max_items(tile, sum(lens) * 3, len(lens))
