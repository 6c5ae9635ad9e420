"""Prefill on CUDA cores against dense attention in float64."""

import pytest
import torch

from pagedchat.ops.attention.call import AttentionOptions
from pagedchat.ops.attention.prefill_simt import launch, supported
from pagedchat.ops.attention.simt_plan import shared_memory, tile_shape
from pagedchat.ops.common.choices import HEAD_SIZES
from tests.ops.cuda_layout_case import (
    BLOCK_SIZES,
    DTYPES,
    GROUP_SIZES,
    LayoutCase,
    check_attention,
    make_layout_case,
    random_layout_case,
    results,
)

SEQ_LENS = [1, 40, 64, 65, 300, 129]
QUERY_LENS = [1, 40, 1, 65, 100, 128]
PLAIN = AttentionOptions(scale=0.125)
NUM_RANDOM_CASES = 24
SHARED_MEMORY_OF_SM_75 = 64 * 1024


def attend(
    case: LayoutCase, options: AttentionOptions, output: torch.Tensor | None = None
) -> tuple[torch.Tensor, torch.Tensor]:
    call = case.call(options)
    if output is not None:
        call = call.between(call.query, output)
    assert supported(call)
    launch(call, case.cu_seqlens_q, case.max_query_len)
    return results(call)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("head_size", sorted(HEAD_SIZES))
def test_every_head_size_and_type(head_size: int, dtype: torch.dtype) -> None:
    case = make_layout_case(SEQ_LENS, QUERY_LENS, head_size=head_size, dtype=dtype, device="cuda")
    check_attention(case, PLAIN, *attend(case, PLAIN))


@pytest.mark.gpu
@pytest.mark.parametrize("group_size", GROUP_SIZES)
@pytest.mark.parametrize("block_size", BLOCK_SIZES)
def test_every_block_size_and_group_size(block_size: int, group_size: int) -> None:
    case = make_layout_case(SEQ_LENS, QUERY_LENS, num_heads=2 * group_size, block_size=block_size, device="cuda")
    check_attention(case, PLAIN, *attend(case, PLAIN))


@pytest.mark.gpu
@pytest.mark.parametrize("seed", range(NUM_RANDOM_CASES))
def test_random_shapes_and_options(seed: int) -> None:
    case, options = random_layout_case(seed, "cuda", max_query_len=200)
    check_attention(case, options, *attend(case, options))


@pytest.mark.gpu
def test_output_of_any_stride() -> None:
    case = make_layout_case(SEQ_LENS, QUERY_LENS, device="cuda")
    wide = torch.full((*case.query.shape[:2], 2, case.query.shape[2]), float("nan"), device="cuda")
    output, lse = attend(case, PLAIN, wide[:, :, 1])
    check_attention(case, PLAIN, output, lse)
    assert wide[:, :, 0].isnan().all()


@pytest.mark.gpu
def test_tokens_of_empty_sequences_give_zeros() -> None:
    case = make_layout_case([5, 0, 40], [5, 1, 3], device="cuda")
    output, lse = attend(case, PLAIN)
    check_attention(case, PLAIN, output, lse)
    assert not output[5].any()


def test_fits_the_shared_memory_of_every_gpu() -> None:
    assert all(shared_memory(size, *tile_shape(size)) <= SHARED_MEMORY_OF_SM_75 for size in HEAD_SIZES)


def test_tensors_on_the_cpu_are_not_supported() -> None:
    case = make_layout_case([5])
    assert not supported(case.call(PLAIN))
