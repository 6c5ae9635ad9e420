"""Heads into the cache and attention over it, against float64."""

import math

import pytest
import torch

from pagedchat.jit.cpu.pool import Job, Program
from pagedchat.ops.cpu.kernels import CpuKernels
from pagedchat.ops.cpu.product import float_bits

ROUNDING = 2.0**-24
CASES = [
    (1, 1, 16, [1], None),
    (4, 2, 64, [5, 16, 17], None),
    (14, 2, 64, [130, 1], None),
    (3, 3, 80, [33, 40], 7),
    (8, 1, 256, [64], 16),
]
"""Heads, KV heads, width of a head, tokens of sequences, window."""


def elements(dtype: torch.dtype) -> str:
    return {torch.float32: "f32", torch.bfloat16: "bf16"}[dtype]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("has_sinks", [False, True])
@pytest.mark.parametrize(("block_size", "part"), [(4, None), (16, None), (4, 32), (16, 10)])
@pytest.mark.parametrize(("num_heads", "num_kv_heads", "head_dim", "lens", "window"), CASES)
def test_attention_over_blocks(
    kernels: CpuKernels,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    lens: list[int],
    window: int | None,
    block_size: int,
    part: int | None,
    has_sinks: bool,
    dtype: torch.dtype,
) -> None:
    torch.manual_seed(sum(lens))
    sinks = torch.linspace(-3, 12, num_heads)
    num_blocks = [-(-length // block_size) for length in lens]
    ids = torch.randperm(sum(num_blocks) + 3)
    cache = torch.full((2, len(ids), block_size, num_kv_heads, head_dim), float("nan")).to(dtype)
    tables = torch.zeros(len(lens), max(num_blocks) + 2, dtype=torch.int64)
    query, output = torch.randn(len(lens), num_heads + 2, head_dim), torch.empty(len(lens), num_heads, head_dim)
    expected = []
    for row, length in enumerate(lens):
        first = sum(num_blocks[:row])
        blocks = ids[first : first + num_blocks[row]]
        tables[row, : len(blocks)] = blocks
        keys, values = (torch.randn(length, num_kv_heads, head_dim).to(dtype) * 2 for _ in range(2))
        for side, tokens in zip(cache, (keys, values), strict=True):
            positions = torch.arange(length)
            side[blocks[positions // block_size], positions % block_size] = tokens
        seen = slice(max(0, length - (window or length)), None)
        keys, values = (
            side[seen].double().repeat_interleave(num_heads // num_kv_heads, dim=1) for side in (keys, values)
        )
        scores = torch.einsum("hd,thd->ht", query[row, :num_heads].double(), keys)
        if has_sinks:
            scores = torch.cat((scores, sinks[:, None].double()), dim=1)
        expected.append(torch.einsum("ht,thd->hd", scores.softmax(dim=1)[:, : len(values)], values))
    lengths, runs = torch.tensor(lens), torch.tensor([[row, 1] for row in range(len(lens))])
    parts, num_units = 1 if part is None else -(-max(lens) // part), len(lens) * num_heads
    of_parts, statistics = torch.full((parts, *output.shape), float("nan")), torch.empty(2, parts, num_units)
    arguments = [
        query.data_ptr(), (output if parts == 1 else of_parts).data_ptr(), cache[0].data_ptr(), cache[1].data_ptr(),
        tables.data_ptr(), lengths.data_ptr(), num_heads, num_kv_heads, head_dim, block_size, tables.shape[1],
        query[0].numel(), window or 1 << 62, parts, part or 1 << 62, len(lens), statistics.data_ptr(),
        runs.data_ptr(), 0, 0, sinks.data_ptr() if has_sinks else 0,
    ]  # fmt: skip
    jobs = [Job(kernels.address(f"attention_{elements(dtype)}"), len(lens) * num_kv_heads * parts, 1, arguments)]
    if parts > 1:
        arguments = [of_parts.data_ptr(), statistics.data_ptr(), output.data_ptr(), parts, num_units, head_dim]
        jobs.append(Job(kernels.address("merge_attention"), num_units, 1, arguments))
    Program(kernels.pool, jobs).run()
    # A score is off by its roundings, and the exponential takes that and its own; sums of weights add theirs.
    largest = float(query.norm(dim=2).max() * cache[0].nan_to_num().float().norm(dim=3).max())
    off = (head_dim / 16 + 5) * ROUNDING * largest + 8e-7 + max(lens) * 2 * ROUNDING
    bound = 3 * off * float(cache[1].nan_to_num().float().abs().max())
    assert (output - torch.stack(expected)).abs().max() <= bound


RUNS = [(4, 4, 64, 45, 6, None), (4, 2, 80, 31, 9, None), (14, 2, 128, 70, 5, 32), (12, 3, 16, 1, 16, None)]
"""Heads, KV heads, width of a head, tokens of the first row, rows of the sequence, tokens of a part."""


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("num_heads", "num_kv_heads", "head_dim", "first", "count", "part"), RUNS)
def test_rows_of_one_sequence_are_the_same_alone_and_together(
    kernels: CpuKernels, num_heads: int, num_kv_heads: int, head_dim: int, first: int, count: int,
    part: int | None, dtype: torch.dtype,
) -> None:  # fmt: skip
    torch.manual_seed(first)
    num_blocks, lens = -(-(first + count) // 16), torch.arange(first, first + count)
    cache = (torch.randn(2, num_blocks, 16, num_kv_heads, head_dim) * 2).to(dtype)
    tables = torch.randperm(num_blocks).repeat(count, 1)
    query = torch.randn(count, num_heads, head_dim)
    parts = 1 if part is None else -(-int(lens[-1]) // part)

    def attended(runs: list[tuple[int, int]]) -> list[torch.Tensor]:
        output, statistics = torch.zeros(parts, *query.shape), torch.zeros(2, parts, count, num_heads)
        of_runs = torch.tensor(runs)
        arguments = [
            query.data_ptr(), output.data_ptr(), cache[0].data_ptr(), cache[1].data_ptr(), tables.data_ptr(),
            lens.data_ptr(), num_heads, num_kv_heads, head_dim, 16, num_blocks, query[0].numel(), 1 << 62, parts,
            part or 1 << 62, count, statistics.data_ptr(), of_runs.data_ptr(),
        ]  # fmt: skip
        units = len(runs) * num_kv_heads * parts
        Program(kernels.pool, [Job(kernels.address(f"attention_{elements(dtype)}"), units, 1, arguments)]).run()
        return [output, statistics]

    alone = attended([(row, 1) for row in range(count)])
    assert alone[0].isfinite().all()
    for runs in ([(0, count)], [(0, 1), (1, count - 1)], [(0, count - 2), (count - 2, 2)]):
        for found, expected in zip(attended(runs), alone, strict=True):
            assert torch.equal(found, expected)


@pytest.mark.parametrize("kind", ["f32", "bf16"])
def test_what_a_row_does_not_see_is_not_read(kernels: CpuKernels, kind: str) -> None:
    cache = torch.randn(2, 3, 16, 1, 64).to(torch.float32 if kind == "f32" else torch.bfloat16)
    cache[:, 2, 3:] = torch.nan
    query, tables, lens = torch.randn(5, 64), torch.arange(3).repeat(5, 1), torch.arange(33, 38)
    output, runs = torch.empty(5, 64), torch.tensor([[0, 5]])
    arguments = [
        query.data_ptr(), output.data_ptr(), cache[0].data_ptr(), cache[1].data_ptr(), tables.data_ptr(),
        lens.data_ptr(), 1, 1, 64, 16, 3, 64, 1 << 62, 1, 1 << 62, 5, 0, runs.data_ptr(),
    ]  # fmt: skip
    Program(kernels.pool, [Job(kernels.address(f"attention_{kind}"), 1, 1, arguments)]).run()
    assert output.isfinite().all(dim=1).tolist() == [True, True, True, False, False]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("head_dim", "pairs"), [(64, 32), (80, 16), (48, 20), (32, 0)])
@pytest.mark.parametrize("normed", [False, True])
def test_heads_are_normed_turned_scaled_and_kept(
    kernels: CpuKernels, head_dim: int, pairs: int, dtype: torch.dtype, *, normed: bool
) -> None:
    torch.manual_seed(head_dim)
    num_rows, num_heads, num_kv_heads, scale, eps = 3, 4, 2, 0.3, 1e-5
    rows = torch.randn(num_rows, num_heads + 2 * num_kv_heads, head_dim)
    angles = torch.rand(num_rows, 1, pairs) * 6
    turns = torch.stack((angles[:, 0].cos(), angles[:, 0].sin()), dim=1).contiguous()
    weights = [torch.rand(head_dim) + 0.5 for _ in range(2)] if normed else []
    cache = torch.zeros(2, 7, num_kv_heads, head_dim).to(dtype)
    slots = torch.tensor([5, 0, 3])
    query, key, value = rows.double().split([num_heads, num_kv_heads, num_kv_heads], dim=1)
    if normed:
        query, key = (
            part * (part.square().mean(dim=2, keepdim=True) + eps).rsqrt() * weight.double()
            for part, weight in zip((query, key), weights, strict=True)
        )
    query, key = (turned(part, angles.double()) for part in (query, key))
    arguments = [
        rows.data_ptr(), cache[0].data_ptr(), cache[1].data_ptr(), slots.data_ptr(),
        turns.data_ptr() if pairs else 0, num_heads, num_kv_heads, head_dim, pairs,
        *([weight.data_ptr() for weight in weights] or (0, 0)), float_bits(eps), float_bits(scale),
    ]  # fmt: skip
    units = num_rows * rows.shape[1]
    Program(kernels.pool, [Job(kernels.address(f"heads_{elements(dtype)}"), units, 2, arguments)]).run()
    torch.testing.assert_close(rows[:, :num_heads].double(), query * scale, rtol=1e-5, atol=1e-5)
    rounding = {"rtol": 1e-5, "atol": 1e-5} if dtype == torch.float32 else {"rtol": 2.0**-8, "atol": 1e-5}
    torch.testing.assert_close(cache[0][slots].double(), key, **rounding)
    assert torch.equal(cache[1][slots], value.float().to(dtype))  # rounded to the nearest, as torch does
    untouched = [slot for slot in range(7) if slot not in slots]
    assert not cache[:, untouched].any()


def turned(heads: torch.Tensor, angles: torch.Tensor) -> torch.Tensor:
    pairs = angles.shape[2]
    first, second, rest = heads.split([pairs, pairs, heads.shape[2] - 2 * pairs], dim=2)
    cos, sin = angles.cos(), angles.sin()
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=2)


def test_scores_far_apart_leave_no_trace_of_the_lower_ones(kernels: CpuKernels) -> None:
    cache = torch.zeros(2, 3, 16, 1, 16)
    cache[0, 1, 0, 0, 0], cache[1, 1, 0, 0] = 1.0, 7.0
    cache[1, 0] = 1e30
    query, output = torch.zeros(1, 16), torch.empty(1, 16)
    query[0, 0] = 1e4
    tables, lens, runs = torch.tensor([[0, 1]]), torch.tensor([20]), torch.tensor([[0, 1]])
    arguments = [
        query.data_ptr(), output.data_ptr(), cache[0].data_ptr(), cache[1].data_ptr(), tables.data_ptr(),
        lens.data_ptr(), 1, 1, 16, 16, 2, 16, 1 << 62, 1, 1 << 62, 1, 0, runs.data_ptr(),
    ]  # fmt: skip
    Program(kernels.pool, [Job(kernels.address("attention_f32"), 1, 1, arguments)]).run()
    assert output[0, 0] == pytest.approx(7.0, rel=1e-5)
    assert math.isfinite(float(output.sum()))
