"""Decode on CUDA cores against dense attention in float64; on a CPU the torch version of the op."""

from dataclasses import replace

import pytest
import torch

from pagedchat.ops.attention.call import AttentionCall, AttentionOptions
from pagedchat.ops.attention.decode_simt import decode_simt
from tests.ops.cuda_layout_case import (
    BLOCK_SIZES,
    DTYPES,
    GROUP_SIZES,
    HEAD_SIZES,
    LayoutCase,
    check_attention,
    make_layout_case,
    random_layout_case,
    results,
)
from tests.ops.paged_case import DEVICES

LENGTHS = [1, 2, 31, 32, 33, 127, 128, 129, 500]
PLAIN = AttentionOptions(scale=0.125)
NUM_RANDOM_CASES = 24

on_each_device = pytest.mark.parametrize("device", DEVICES)


def attend(case: LayoutCase, options: AttentionOptions) -> tuple[torch.Tensor, torch.Tensor]:
    call = case.call(options)
    assert decode_simt(call) is call.output
    return results(call)


def plain_call(case: LayoutCase) -> AttentionCall:
    tensors = (case.query, case.key_cache, case.value_cache, case.block_tables, case.seq_lens)
    return AttentionCall.to_new(*tensors, PLAIN)


@on_each_device
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("head_size", HEAD_SIZES)
def test_every_head_size_and_type(head_size: int, dtype: torch.dtype, device: str) -> None:
    case = make_layout_case(LENGTHS, head_size=head_size, dtype=dtype, device=device)
    check_attention(case, PLAIN, *attend(case, PLAIN))


@on_each_device
@pytest.mark.parametrize("group_size", GROUP_SIZES)
@pytest.mark.parametrize("block_size", BLOCK_SIZES)
def test_every_block_size_and_group_size(block_size: int, group_size: int, device: str) -> None:
    case = make_layout_case(LENGTHS, num_heads=2 * group_size, block_size=block_size, device=device)
    check_attention(case, PLAIN, *attend(case, PLAIN))


@on_each_device
@pytest.mark.parametrize("seed", range(NUM_RANDOM_CASES))
def test_random_shapes_and_options(seed: int, device: str) -> None:
    case, options = random_layout_case(seed, device)
    check_attention(case, options, *attend(case, options))


@on_each_device
def test_padding_rows_give_zeros(device: str) -> None:
    case = make_layout_case([5, 0, 40, 0], device=device)
    output, lse = attend(case, PLAIN)
    check_attention(case, PLAIN, output, lse)
    assert not output[1].any()
    assert lse[3].isneginf().all()


@on_each_device
def test_long_context_is_split_and_full_batch_is_not(device: str) -> None:
    for lengths in ([5000, 3], [700] * 200):
        case = make_layout_case(lengths, num_heads=2, num_kv_heads=1, device=device)
        first, lse = attend(case, PLAIN)
        check_attention(case, PLAIN, first, lse)
        check_attention(case, PLAIN, *attend(case, PLAIN))  # again: what the parts count must be back at zero


@on_each_device
def test_output_of_its_own_without_one_given(device: str) -> None:
    case = make_layout_case([9, 70], device=device)
    output = decode_simt(plain_call(case))
    check_attention(case, PLAIN, output)


@on_each_device
def test_query_with_rows_off_sixteen_bytes_is_copied(device: str) -> None:
    case = make_layout_case([9, 70], device=device)
    shifted = torch.zeros(case.query.numel() + 1, device=device)[1:].view(case.query.shape)
    shifted.copy_(case.query)
    check_attention(case, PLAIN, *attend(replace(case, query=shifted), PLAIN))


@pytest.mark.gpu
def test_graph_replays_follow_the_lengths() -> None:
    case = make_layout_case([1500, 800], num_heads=4, device="cuda")
    lengths = case.seq_lens.clone()
    calls = [plain_call(replace(case, seq_lens=lengths)) for _ in range(2)]
    decode_simt(calls[0])
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        output = decode_simt(calls[0])
    for shorter in (0, 100, 700):
        lengths.copy_(case.seq_lens - shorter)
        graph.replay()
        assert torch.equal(output, decode_simt(calls[1]))


def test_wrong_shapes_are_refused() -> None:
    case = make_layout_case([9, 70])
    with pytest.raises(ValueError, match="query has shape"):
        decode_simt(plain_call(replace(case, query=case.query[:1])))
