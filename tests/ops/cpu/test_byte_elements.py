"""CPU kernels over a cache of bytes: the bits of `ops.cache.byte_cache`, and attention against float64."""

import pytest
import torch

from pagedchat.jit.cpu.pool import Job, Program
from pagedchat.ops.cache.byte_cache import (
    DTYPES,
    dequantised,
    elements_bytes,
    elements_of,
    page_bytes,
    quantised,
    scales_of,
)
from pagedchat.ops.cache.byte_kinds import CacheKind
from pagedchat.ops.cpu.kernels import CpuKernels
from pagedchat.ops.cpu.product import float_bits

KINDS = ["int8", "fp8"]
SHAPES = [(1, 1, 16, 4), (4, 2, 64, 16), (14, 2, 64, 1), (3, 3, 80, 7), (8, 1, 256, 16)]
"""Heads, KV heads, width of a head, block size."""
ROUNDING = 2.0**-24


class Pages:
    """Keys and values of a layer, nothing but ones in all bits where nothing was written."""

    def __init__(self, kind: CacheKind, num_blocks: int, block_size: int, num_kv_heads: int, head_dim: int) -> None:
        sizes = (block_size, num_kv_heads, head_dim)
        self.pages = torch.full((2, num_blocks, page_bytes(*sizes)), 255, dtype=torch.uint8)
        self.caches = [elements_of(side, kind, *sizes) for side in self.pages]
        self.scales = [scales_of(cache, block_size, num_kv_heads) for cache in self.caches]
        self.arguments = (self.pages.shape[2], elements_bytes(*sizes))

    def read(self, side: int, blocks: torch.Tensor) -> torch.Tensor:
        """`[num_blocks, block_size, num_kv_heads, head_dim]`, float64."""
        return dequantised(self.caches[side][blocks], self.scales[side][blocks], torch.float64)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("num_heads", "num_kv_heads", "head_dim", "block_size"), SHAPES)
def test_heads_are_kept_in_the_bits_of_torch(
    kernels: CpuKernels, kind: CacheKind, num_heads: int, num_kv_heads: int, head_dim: int, block_size: int
) -> None:
    torch.manual_seed(head_dim)
    num_rows, num_blocks = 40, 60
    pages = Pages(kind, num_blocks, block_size, num_kv_heads, head_dim)
    rows = torch.randn(num_rows, num_heads + 2 * num_kv_heads, head_dim)
    rows *= 10.0 ** torch.randint(-8, 8, (*rows.shape[:2], 1))
    rows[3] = 0
    slots = torch.randperm(num_blocks * block_size)[:num_rows]
    expected = rows.clone()
    arguments = [
        rows.data_ptr(), pages.caches[0].data_ptr(), pages.caches[1].data_ptr(), slots.data_ptr(), 0, num_heads,
        num_kv_heads, head_dim, 0, 0, 0, float_bits(0.0), float_bits(1.0), block_size, *pages.arguments,
    ]  # fmt: skip
    units = num_rows * rows.shape[1]
    Program(kernels.pool, [Job(kernels.address(f"heads_{kind}"), units, 2, arguments)]).run()
    kept = expected[:, num_heads:].split(num_kv_heads, dim=1)
    for side, part in enumerate(kept):
        elements, scales = quantised(part, DTYPES[kind])
        blocks, offsets = slots // block_size, slots % block_size
        assert torch.equal(pages.scales[side][blocks, offsets], scales)
        found = pages.caches[side].view(torch.uint8)[blocks, offsets]
        assert torch.equal(found.view(DTYPES[kind]).float(), elements.float())
    assert int((pages.pages == 255).sum()) >= (num_blocks * block_size - num_rows) * 2 * num_kv_heads * head_dim


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("window", [None, 9])
@pytest.mark.parametrize(("num_heads", "num_kv_heads", "head_dim", "block_size"), SHAPES)
def test_attention_over_bytes(
    kernels: CpuKernels,
    kind: CacheKind,
    num_heads: int,
    num_kv_heads: int,
    head_dim: int,
    block_size: int,
    window: int | None,
) -> None:
    torch.manual_seed(head_dim + block_size)
    lens = [1, 33, 70]
    counts = [-(-length // block_size) for length in lens]
    ids = torch.randperm(sum(counts) + 3)
    pages = Pages(kind, len(ids), block_size, num_kv_heads, head_dim)
    query, output = torch.randn(len(lens), num_heads + 1, head_dim), torch.empty(len(lens), num_heads, head_dim)
    tables, expected, largest = torch.zeros(len(lens), max(counts) + 2, dtype=torch.int64), [], [0.0, 0.0]
    for row, length in enumerate(lens):
        blocks = ids[sum(counts[:row]) : sum(counts[: row + 1])]
        tables[row, : len(blocks)] = blocks
        seen = slice(max(0, length - (window or length)), None)
        read = []
        for side in range(2):
            tokens = torch.randn(length, num_kv_heads, head_dim) * torch.rand(length, num_kv_heads, 1) * 3
            elements, scales = quantised(tokens, DTYPES[kind])
            positions = torch.arange(length)
            at = (blocks[positions // block_size], positions % block_size)
            pages.caches[side].view(torch.uint8)[at] = elements.view(torch.uint8)
            pages.scales[side][at] = scales
            kept = pages.read(side, blocks).flatten(0, 1)[:length][seen]
            largest[side] = max(largest[side], float(kept.norm(dim=2).max() if side == 0 else kept.abs().max()))
            read.append(kept.repeat_interleave(num_heads // num_kv_heads, dim=1))
        scores = torch.einsum("hd,thd->ht", query[row, :num_heads].double(), read[0])
        expected.append(torch.einsum("ht,thd->hd", scores.softmax(dim=1), read[1]))
    lengths, runs = torch.tensor(lens), torch.tensor([[row, 1] for row in range(len(lens))])
    arguments = [
        query.data_ptr(), output.data_ptr(), pages.caches[0].data_ptr(), pages.caches[1].data_ptr(),
        tables.data_ptr(), lengths.data_ptr(), num_heads, num_kv_heads, head_dim, block_size, tables.shape[1],
        query[0].numel(), window or 1 << 62, 1, 1 << 62, len(lens), 0, runs.data_ptr(), *pages.arguments,
    ]  # fmt: skip
    Program(kernels.pool, [Job(kernels.address(f"attention_{kind}"), len(lens) * num_kv_heads, 1, arguments)]).run()
    # As in test_attention.py; a dequantised key or value is rounded once more.
    off = (head_dim / 16 + 6) * ROUNDING * float(query.norm(dim=2).max()) * largest[0] + 8e-7 + 140 * ROUNDING
    assert (output - torch.stack(expected)).abs().max() <= 3 * off * largest[1]
