import random

import pytest
import torch

from pagedchat.ops.cache.gather_cached_kv import gather_cached_kv
from pagedchat.ops.cache.layout import from_token_major
from tests.ops.paged_case import DEVICES

DTYPES = [torch.float16, torch.bfloat16, torch.float32]
HEAD_SIZES = [64, 80, 96, 112, 128, 256]
BLOCK_SIZES = [8, 16, 32]
SEQ_LENS = [[1], [16], [15, 17, 1, 32], [0, 5, 0, 33, 0], [100, 31, 64, 2] * 5, [3] * 300]
FAR_AWAY = 1 << 30  # a block id that must not be followed


def check(
    seq_lens: list[int],
    *,
    dtype: torch.dtype = torch.float16,
    head_size: int = 64,
    block_size: int = 16,
    num_kv_heads: int = 3,
    device: str = "cpu",
) -> None:
    counts = [-(-length // block_size) for length in seq_lens]
    free = random.Random(0).sample(range(sum(counts) + 3), sum(counts) + 3)
    tables = torch.full((len(seq_lens), max(counts) + 2), FAR_AWAY, dtype=torch.int32)
    tokens = [torch.full((len(free), block_size, num_kv_heads, head_size), float("nan")) for _ in range(2)]
    wanted: list[list[torch.Tensor]] = [[], []]
    for seq, (length, count) in enumerate(zip(seq_lens, counts, strict=True)):
        table = [free.pop() for _ in range(count)]
        tables[seq, :count] = torch.tensor(table, dtype=torch.int32)
        for side in range(2):
            rows = torch.randn(length, num_kv_heads, head_size).to(dtype)
            wanted[side].append(rows)
            for position, row in enumerate(rows):
                tokens[side][table[position // block_size], position % block_size] = row.float()
    caches = [cache.to(device) for cache in from_token_major(tokens[0].to(dtype), tokens[1].to(dtype))]
    starts = torch.tensor([0, *seq_lens]).cumsum(0).to(torch.int32)
    gathered = gather_cached_kv(*caches, tables.to(device), starts.to(device), sum(seq_lens))
    for got, parts in zip(gathered, wanted, strict=True):
        assert got.dtype == dtype
        assert torch.equal(got.cpu(), torch.cat(parts))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("seq_lens", SEQ_LENS, ids=lambda lens: f"{len(lens)} sequences, {sum(lens)} tokens")
def test_sequences_after_one_another(seq_lens: list[int], device: str) -> None:
    check(seq_lens, device=device)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_type(dtype: torch.dtype) -> None:
    check([7, 40], dtype=dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("block_size", BLOCK_SIZES)
@pytest.mark.parametrize("head_size", HEAD_SIZES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_every_size_and_type(dtype: torch.dtype, head_size: int, block_size: int) -> None:
    check([7, 40, 1, 64], dtype=dtype, head_size=head_size, block_size=block_size, device="cuda")


@pytest.mark.gpu
@pytest.mark.parametrize("num_kv_heads", [1, 2, 8, 32])
def test_any_number_of_heads(num_kv_heads: int) -> None:
    check([7, 40, 1], num_kv_heads=num_kv_heads, device="cuda")


@pytest.mark.gpu
def test_blocks_past_four_gibi_elements() -> None:
    num_blocks = (1 << 32) // (64 * 16) + 10
    key_cache = torch.empty(num_blocks, 1, 8, 16, 8, device="cuda", dtype=torch.float16)
    value_cache = torch.empty(num_blocks, 1, 64, 16, device="cuda", dtype=torch.float16)
    key_cache[-1].normal_()
    value_cache[-1].normal_()
    table = torch.tensor([[num_blocks - 1]], dtype=torch.int32, device="cuda")
    key, value = gather_cached_kv(
        key_cache, value_cache, table, torch.tensor([0, 16], dtype=torch.int32, device="cuda"), 16
    )
    assert torch.equal(key[:, 0], key_cache[-1, 0].transpose(0, 1).flatten(1))
    assert torch.equal(value[:, 0], value_cache[-1, 0].T)


@pytest.mark.gpu
def test_captured_in_a_graph() -> None:
    tokens = torch.randn(6, 16, 2, 64).half()
    caches = [cache.cuda() for cache in from_token_major(tokens, -tokens)]
    tables = torch.tensor([[0, 1], [2, 3]], dtype=torch.int32, device="cuda")
    starts = torch.tensor([0, 20, 37], dtype=torch.int32, device="cuda")
    gather_cached_kv(*caches, tables, starts, 37)  # compiles
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        key, value = gather_cached_kv(*caches, tables, starts, 37)
    tables.copy_(torch.tensor([[5, 4], [3, 0]]))
    starts.copy_(torch.tensor([0, 10, 37]))
    graph.replay()
    wanted = torch.cat([tokens[5, :10], tokens[3], tokens[0, :11]])
    assert torch.equal(key.cpu(), wanted)
    assert torch.equal(value.cpu(), -wanted)


def test_wrong_arguments_are_named() -> None:
    key_cache, value_cache = torch.zeros(5, 2, 16, 16, 4), torch.zeros(5, 2, 64, 16)
    tables, starts = torch.zeros(2, 3, dtype=torch.int32), torch.tensor([0, 4, 8], dtype=torch.int32)
    with pytest.raises(ValueError, match=r"block_tables is torch\.int64, expected torch\.int32"):
        gather_cached_kv(key_cache, value_cache, tables.long(), starts, 8)
    with pytest.raises(ValueError, match=r"cu_seq_lens has shape \[2\], expected \[3\]"):
        gather_cached_kv(key_cache, value_cache, tables, starts[:2], 8)
    with pytest.raises(ValueError, match=r"key_cache has shape \[5, 2, 16, 8, 4\], expected \[5, 2, 16, 16, 4\]"):
        gather_cached_kv(torch.zeros(5, 2, 16, 8, 4), value_cache, tables, starts, 8)
