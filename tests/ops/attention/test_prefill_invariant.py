"""Attention of which a token's bits follow from its own sequence alone: however that is cut, whatever is beside."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace
from itertools import product

import pytest
import torch

from pagedchat.ops.attention import prefill_mma
from pagedchat.ops.attention.call import AttentionCall, AttentionOptions
from pagedchat.ops.attention.prefill import paged_prefill
from pagedchat.ops.attention.prefill_plan import MAX_PARTIAL_BYTES, PART_KEYS, choose_parts
from tests.ops.cuda_layout_case import LayoutCase, check_attention, make_layout_case, make_sinks, results
from tests.tools.emulator_case import needs_compiler
from tools.emulator.ops import kernels_on_cpu

WHERE = [pytest.param("emulated", marks=needs_compiler), pytest.param("cuda", marks=pytest.mark.gpu)]
SEQ_LENS, QUERY_LENS = [600, 33, 300, 1], [90, 33, 1, 1]
"""A later chunk over three parts, a whole prompt, a decode, a sequence that begins."""
SHAPES = [(64, 16, 4), (128, 32, 6), (80, 8, 2)]
"""Head size, block size, query heads of two KV heads."""
KINDS: list[tuple[int | None, str]] = [(None, ""), (100, ""), (None, "slopes"), (100, "all")]
"""Sliding window, and what finishes scores."""
TYPES = [torch.float16, torch.bfloat16]
CASES = [
    *(
        pytest.param(*shape, *kind, TYPES[j // 2], "emulated", marks=needs_compiler)
        for i, shape in enumerate(SHAPES)
        for j, kind in enumerate(KINDS)
        if i % 2 == j % 2  # each shape, kind and type, not each with each
    ),
    *(
        pytest.param(*shape, *kind, dtype, "cuda", marks=pytest.mark.gpu)
        for shape, kind, dtype in product(SHAPES, KINDS, TYPES)
    ),
]
PEAKED = 2.0
"""A scale with which maxima are often raised in the middle of a row's keys."""


@contextmanager
def device_of(where: str) -> Iterator[str]:
    """`"emulated"`: the kernels on tensors of the CPU."""
    with kernels_on_cpu(seed=1) if where == "emulated" else nullcontext():
        yield "cpu" if where == "emulated" else where


def attend(call: AttentionCall, starts: torch.Tensor, longest: int, num_splits: int) -> None:
    """With the parts of the keys shared out over so many thread blocks, or all by one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(prefill_mma, "choose_parts", lambda *_: num_splits)
        paged_prefill(call, starts, max_query_len=longest, batch_invariant=True)


def whole_batch(case: LayoutCase, options: AttentionOptions, num_splits: int) -> AttentionCall:
    call = case.call(options)
    attend(call, case.cu_seqlens_q, case.max_query_len, num_splits)
    return call


def part_of(
    case: LayoutCase, options: AttentionOptions, sequence: int, first: int, end: int, num_splits: int
) -> AttentionCall:
    """Queries `first` to `end` - 1 of a sequence's chunk, by themselves."""
    row, next_row = case.cu_seqlens_q[sequence : sequence + 2].tolist()
    length = int(case.seq_lens[sequence]) - (next_row - row) + end
    query = case.query[row + first : row + end]
    device = query.device
    call = AttentionCall(
        query,
        case.key_cache,
        case.value_cache,
        case.block_tables[sequence : sequence + 1],
        torch.tensor([length], dtype=torch.int32, device=device),
        options,
        torch.empty(query.shape, dtype=query.dtype, device=device),
        torch.empty(query.shape[:2], device=device),
    )
    attend(call, torch.tensor([0, end - first], dtype=torch.int32, device=device), end - first, num_splits)
    return call


@pytest.mark.parametrize(
    ("head_size", "block_size", "num_heads", "sliding_window", "finished", "dtype", "where"), CASES
)
def test_a_token_is_the_same_alone_and_in_any_chunk(
    head_size: int,
    block_size: int,
    num_heads: int,
    sliding_window: int | None,
    finished: str,
    dtype: torch.dtype,
    where: str,
) -> None:
    with device_of(where) as device:
        options = AttentionOptions(
            scale=PEAKED * head_size**-0.5,
            sliding_window=sliding_window,
            cap=5.0 if finished == "all" else None,
            alibi_slopes=torch.linspace(0.4, 0.01, num_heads, device=device) if finished else None,
            sinks=make_sinks(num_heads, device) if finished == "all" else None,
        )
        case = make_layout_case(
            SEQ_LENS, QUERY_LENS, num_heads=num_heads, num_kv_heads=2, head_size=head_size, block_size=block_size,
            dtype=dtype, device=device,
        )  # fmt: skip
        together = whole_batch(case, options, 1)
        output, lse = results(together)
        split = whole_batch(case, options, 3)
        assert torch.equal(split.output, output)
        assert torch.equal(results(split)[1], lse)
        for sequence, num_queries in enumerate(QUERY_LENS):
            row = int(case.cu_seqlens_q[sequence])
            middle = num_queries // 2
            for first, end in {(0, 1), (middle, middle + 1), (num_queries - 1, num_queries), (middle, num_queries)}:
                for num_splits in (1, 3) if where == "cuda" else (3,):
                    part = part_of(case, options, sequence, first, end, num_splits)
                    assert torch.equal(part.output, output[row + first : row + end])
                    assert torch.equal(results(part)[1], lse[row + first : row + end])


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("num_splits", [1, 3])
@pytest.mark.parametrize("finished", [False, True])
def test_agrees_with_the_definition(finished: bool, num_splits: int, where: str) -> None:
    with device_of(where) as device:
        options = AttentionOptions(
            scale=0.1,
            sliding_window=130,
            alibi_slopes=torch.linspace(0.4, 0.01, 6, device=device) if finished else None,
            sinks=make_sinks(6, device) if finished else None,
        )
        case = make_layout_case(SEQ_LENS, QUERY_LENS, num_heads=6, dtype=torch.bfloat16, device=device)
        check_attention(case, options, *results(whole_batch(case, options, num_splits)))


@pytest.mark.parametrize("where", WHERE)
def test_the_size_of_a_block_makes_no_difference(where: str) -> None:
    options = AttentionOptions(scale=0.2)
    with device_of(where) as device:
        cases = [
            make_layout_case(SEQ_LENS, QUERY_LENS, block_size=size, dtype=torch.float16, device=device)
            for size in (8, 16, 32)
        ]
        outputs = [whole_batch(replace(case, query=cases[0].query), options, 1).output for case in cases]
    assert torch.equal(outputs[0], outputs[1])
    assert torch.equal(outputs[0], outputs[2])


def test_parts_are_shared_out_where_the_gpu_would_idle_and_memory_allows() -> None:
    assert choose_parts(8, 8 * PART_KEYS, 132, 1 << 10) == 8
    assert choose_parts(8, 8 * PART_KEYS + 1, 132, 1 << 10) == 9
    assert choose_parts(8, PART_KEYS, 132, 1 << 10) == 1
    assert choose_parts(264, 8 * PART_KEYS, 132, 1 << 10) == 1
    assert choose_parts(8, 8 * PART_KEYS, 132, MAX_PARTIAL_BYTES // 8) == 8
    assert choose_parts(8, 8 * PART_KEYS, 132, MAX_PARTIAL_BYTES // 8 + 1) == 1


@needs_compiler
def test_without_tensor_cores_it_is_refused() -> None:
    case = make_layout_case([5], dtype=torch.float32)
    with kernels_on_cpu(), pytest.raises(ValueError, match="regardless of their batch"):
        paged_prefill(
            case.call(AttentionOptions(scale=0.1)), case.cu_seqlens_q, max_query_len=1, batch_invariant=True
        )
