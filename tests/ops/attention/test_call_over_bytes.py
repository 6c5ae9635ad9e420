"""Attention over a cache of one byte an element against float64 over what the bytes stand for: decode and prefill,
with all that is done to scores, and values whose heads are of very different sizes.
"""

from contextlib import nullcontext
from dataclasses import replace

import pytest
import torch

from pagedchat.ops.attention.call import AttentionCall, AttentionOptions
from pagedchat.ops.attention.decode_grid import BYTE_WARPS, DecodeShape, SplitPlan
from pagedchat.ops.attention.decode_plan import MAX_TILES
from pagedchat.ops.attention.decode_shared import decode_shared
from pagedchat.ops.attention.decode_split import decode_shape, decode_split, launch_on_splits, launch_split
from pagedchat.ops.attention.prefill import paged_prefill
from pagedchat.ops.cache.byte_cache import DTYPES, dequantised, quantised
from pagedchat.ops.cache.byte_kinds import CacheKind
from pagedchat.ops.cache.layout import tokens_of
from tests.ops.byte_case import KINDS, in_bytes
from tests.ops.cuda_layout_case import (
    BLOCK_SIZES,
    HEAD_SIZES,
    LayoutCase,
    check_attention,
    make_layout_case,
    make_options,
    results,
)
from tools.emulator.ops import kernels_on_cpu

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
TYPES = [torch.float16, torch.bfloat16]
LENS = [1, 15, 16, 17, 31, 32, 33, 100, 517, 0]
CHUNK_LENS, QUERY_LENS = [5, 1, 140, 33, 700, 300], [5, 1, 140, 33, 1, 200]
RULES: list[dict[str, float]] = [
    {}, {"cap": 2.0}, {"sliding_window": 20}, {"sliding_window": 1}, {"alibi": True},
    {"cap": 2.0, "sliding_window": 20, "alibi": True, "sinks": True},
]  # fmt: skip
GROUPS = [(4, 4), (3, 1), (8, 1), (40, 1)]


def check_decode(case: LayoutCase, options: AttentionOptions, max_seq_len: int = 3000) -> None:
    call = case.call(options)
    decode_split(call, max_seq_len=max_seq_len)
    check_decoded(case, options, call)


def check_decoded(case: LayoutCase, options: AttentionOptions, call: AttentionCall) -> None:
    check_attention(case, options, *results(call), lse_atol=2e-5 + scores_off(case, options))


def scores_off(case: LayoutCase, options: AttentionOptions) -> float:
    """How far a score is off, six times what is usual of the worst row, if the query was rounded to whole numbers.

    Beside int8 keys it is: the largest element of a row is 32,512, any is off by up to a half with no other's
    leave, so that their errors have a variance of 1 / 12. A log-sum-exp is off by no more than the worst score.
    """
    if case.key_cache.dtype != torch.int8:
        return 0.0
    largest = case.query.double().abs().amax(-1).amax(-1)
    longest = torch.stack(
        [key.double().norm(dim=-1).max() if len(key) else largest.new_zeros(()) for key in case.keys]
    )
    return 6 / 12**0.5 * options.scale * (largest / 32_512 * longest).max().item()


def check_prefill(case: LayoutCase, options: AttentionOptions, *, batch_invariant: bool = False) -> None:
    """Its kernel rounds what the bytes stand for to the type of the queries."""
    call = case.call(options)
    paged_prefill(call, case.cu_seqlens_q, max_query_len=case.max_query_len, batch_invariant=batch_invariant)
    output, lse = results(call)
    check_attention(case, options, output)
    rounding = 8 * torch.finfo(case.query.dtype).eps
    torch.testing.assert_close(lse.double(), case.attend(options, torch.float64)[1], atol=rounding, rtol=1e-5)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("block_size", BLOCK_SIZES)
@pytest.mark.parametrize("head_size", HEAD_SIZES)
def test_every_shape_of_head_and_block(
    head_size: int, block_size: int, kind: CacheKind, dtype: torch.dtype, device: str
) -> None:
    shape = {"head_size": head_size, "block_size": block_size, "dtype": dtype, "device": device}
    options = AttentionOptions(scale=head_size**-0.5)
    check_decode(in_bytes(make_layout_case(LENS, **shape), kind), options)  # type: ignore[arg-type]
    case = in_bytes(make_layout_case(CHUNK_LENS, QUERY_LENS, **shape), kind)  # type: ignore[arg-type]
    check_prefill(case, options)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("rule", RULES, ids=str)
@pytest.mark.parametrize("batch_invariant", [False, True])
def test_every_rule_of_scores(
    rule: dict[str, float], kind: CacheKind, device: str, *, batch_invariant: bool
) -> None:
    options = make_options(rule, device)
    shape = {"head_size": 128, "dtype": torch.float16, "device": device}
    case = in_bytes(make_layout_case(CHUNK_LENS, QUERY_LENS, **shape), kind)  # type: ignore[arg-type]
    check_prefill(case, options, batch_invariant=batch_invariant)
    if not batch_invariant:
        check_decode(in_bytes(make_layout_case(LENS, **shape), kind), options)  # type: ignore[arg-type]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("num_heads", "num_kv_heads"), GROUPS)
def test_every_size_of_group(num_heads: int, num_kv_heads: int, kind: CacheKind, device: str) -> None:
    heads = {"num_heads": num_heads, "num_kv_heads": num_kv_heads, "dtype": torch.float16, "device": device}
    options = AttentionOptions(scale=0.125)
    check_decode(in_bytes(make_layout_case(LENS, **heads), kind), options)  # type: ignore[arg-type]
    case = in_bytes(make_layout_case(CHUNK_LENS, QUERY_LENS, **heads), kind)  # type: ignore[arg-type]
    check_prefill(case, options)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(("num_warps", "head_size"), [(2, 64), (4, 80), (BYTE_WARPS, 128)])
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("grows", [False, True])
def test_values_of_very_different_sizes_leave_no_trace_of_each_other(
    kind: CacheKind, num_warps: int, head_size: int, device: str, *, grows: bool
) -> None:
    """From a hundred thousandth to ten, up or down, one tile of a warp after the other: the small ones come to
    nothing beside the large, but are themselves where nothing else is."""
    case = make_layout_case([64, 300, 900], dtype=torch.bfloat16, device=device, head_size=head_size)
    values = []
    for value in case.values:
        powers = torch.linspace(-5, 1, len(value), device=device)[:, None, None]
        values.append((value.float() * 10 ** (powers if grows else powers.flip(0))).to(value.dtype))
    case = in_bytes(replace(case, values=values), kind)
    options = [AttentionOptions(scale=0.02, sliding_window=window) for window in (None, 40)]
    for each in options:
        call = case.call(each)
        plan = SplitPlan(num_warps, MAX_TILES, 1)
        with kernels_on_cpu(seed=3) if device == "cpu" else nullcontext():
            launch_on_splits(call, decode_shape(call), plan)
        check_decoded(case, each, call)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("steepness", [0.05, 0.5, 20.0, -20.0])
def test_scores_that_grow_pass_their_reference(kind: CacheKind, steepness: float, device: str) -> None:
    """By less than is let pass, by more in some tiles, and by so much that nothing before or behind counts."""
    case = make_layout_case([64, 300, 900], dtype=torch.float16, device=device, head_size=80)
    towards = case.query[:, :1, :].float().sign()
    keys = []
    for seq, key in enumerate(case.keys):
        slope = torch.linspace(0, 1, len(key), device=device)[:, None, None] * steepness * 0.3
        keys.append((key.float() + slope * towards[seq]).to(key.dtype))
    case = in_bytes(replace(case, keys=keys), kind)
    options = AttentionOptions(scale=0.1)
    call = case.call(options)
    with kernels_on_cpu(seed=5) if device == "cpu" else nullcontext():
        launch_on_splits(call, decode_shape(call), SplitPlan(4, MAX_TILES, 1))
    check_attention(case, options, results(call)[0])


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("size", [1e-6, 1e6])
def test_queries_that_no_half_float_holds(kind: CacheKind, size: float, device: str) -> None:
    """Over bytes a bfloat16 becomes a half, or a whole number, in a unit of its row."""
    case = make_layout_case([64, 300], dtype=torch.bfloat16, device=device)
    case = in_bytes(replace(case, query=(case.query.float() * size).bfloat16()), kind)
    options = AttentionOptions(scale=0.125 / size)
    call = case.call(options)
    with kernels_on_cpu(seed=4) if device == "cpu" else nullcontext():
        launch_on_splits(call, decode_shape(call), SplitPlan(2, MAX_TILES, 1))
    check_decoded(case, options, call)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("kind", KINDS)
def test_small_values_keep_their_precision_in_half_floats(kind: CacheKind, device: str) -> None:
    """A weight times a scale would be a number that a half float has no digits for."""
    case = make_layout_case([900, 40], dtype=torch.float16, device=device)
    values = [value * 1e-3 for value in case.values]
    check_decode(in_bytes(replace(case, values=values), kind), AttentionOptions(scale=0.02))


@pytest.mark.gpu
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("head_size", [64, 128, 256])
def test_the_newest_token_is_written_on_the_way(kind: CacheKind, head_size: int) -> None:
    """Of a step whose heads nothing happens to."""
    lens = [1, 17, 40, 64, 500]
    case = in_bytes(make_layout_case(lens, dtype=torch.float16, device="cuda", head_size=head_size), kind)
    heads = torch.randn(len(lens), 4 + 2 * 2, head_size, device="cuda").half()
    call = replace(case.call(AttentionOptions(scale=0.1)), query=heads[:, :4])
    launch_split(call, 500, None, any_lengths=True, overlap=True, writes_new=True)
    kept = dequantised(*quantised(heads[:, 4:], DTYPES[kind]), torch.float32)
    for seq, length in enumerate(lens):
        case.keys[seq][-1], case.values[seq][-1] = kept[seq, :2], kept[seq, 2:]
        block = case.block_tables[seq, (length - 1) // 16].long()[None]
        written = tokens_of(call.key_cache, call.value_cache, block, torch.float32)
        for part, expected in zip(written, (kept[seq, :2], kept[seq, 2:]), strict=True):
            assert torch.equal(part[0, (length - 1) % 16], expected)
    check_decoded(replace(case, query=heads[:, :4]), AttentionOptions(scale=0.1), call)


@pytest.mark.gpu
def test_no_kernel_reads_a_shared_beginning_of_bytes() -> None:
    call = in_bytes(make_layout_case([40, 40], dtype=torch.float16, device="cuda"), "int8").call(
        AttentionOptions(scale=0.1)
    )
    lens, starts = (torch.tensor(each, dtype=torch.int32, device="cuda") for each in ([16, 16], [0, 2]))
    with pytest.raises(ValueError, match="shared prefix"):
        decode_shared(call, lens, starts, max_own_len=40, max_shared_len=16, max_group_size=2)


def test_half_the_bytes_let_more_warps_stay() -> None:
    whole, half = (DecodeShape(8, 4, 128, element_bytes) for element_bytes in (2, 1))
    assert half.resident_thread_blocks(4) > whole.resident_thread_blocks(4)
    assert half.resident_thread_blocks(8) == whole.resident_thread_blocks(8)
    assert half.resident_thread_blocks(BYTE_WARPS) == 1
    assert whole.resident_thread_blocks(BYTE_WARPS) == 0
    wide = DecodeShape(8, 4, 256, 1)
    assert wide.resident_thread_blocks(4) == DecodeShape(8, 4, 256).resident_thread_blocks(4)
