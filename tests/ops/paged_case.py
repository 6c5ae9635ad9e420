"""Random sequences in a paged cache with shuffled blocks, and their attention computed densely in float64."""

from dataclasses import dataclass

import pytest
import torch

from pagedchat.ops.attention.call import AttentionOptions
from tests.ops.cuda_layout_case import dense

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]


@dataclass
class PagedCase:
    query: list[torch.Tensor]
    """For each sequence `[query_len, num_heads, head_dim]`."""
    key: list[torch.Tensor]
    """For each sequence `[seq_len, num_kv_heads, head_dim]`."""
    value: list[torch.Tensor]
    key_cache: torch.Tensor
    value_cache: torch.Tensor
    block_tables: list[list[int]]
    seq_lens: list[int]
    query_lens: list[int]

    def expected(
        self,
        scale: float,
        window: int | None = None,
        cap: float | None = None,
        alibi_slopes: torch.Tensor | None = None,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """`[num_tokens, num_heads, head_dim]`, float64, on the CPU."""
        parts = zip(self.query, self.key, self.value, strict=True)
        options = AttentionOptions(
            scale=scale,
            sliding_window=window,
            cap=cap,
            alibi_slopes=None if alibi_slopes is None else alibi_slopes.cpu().double(),
            sinks=None if sinks is None else sinks.cpu().double(),
        )
        texts = ([tensor.cpu().double() for tensor in part] for part in parts)
        return torch.cat([dense(*text, options)[0] for text in texts])


def make_case(
    seq_lens: list[int],
    query_lens: list[int],
    *,
    num_heads: int = 4,
    num_kv_heads: int = 2,
    head_dim: int = 8,
    block_size: int = 4,
    dtype: torch.dtype = torch.float32,
    device: str = "cpu",
    seed: int = 0,
) -> PagedCase:
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> torch.Tensor:
        return torch.randn(shape, generator=generator).to(device, dtype)

    counts = [-(-length // block_size) for length in seq_lens]
    num_blocks = sum(counts) + 3
    order = torch.randperm(num_blocks, generator=generator).tolist()
    tables = [[order.pop() for _ in range(count)] for count in counts]
    # What is in no sequence's slots must never reach a result.
    caches = [
        torch.full((num_blocks, block_size, num_kv_heads, head_dim), float("nan"), device=device, dtype=dtype)
        for _ in range(2)
    ]
    keys = [normal(length, num_kv_heads, head_dim) for length in seq_lens]
    values = [normal(length, num_kv_heads, head_dim) for length in seq_lens]
    for table, key, value in zip(tables, keys, values, strict=True):
        for position in range(len(key)):
            place = table[position // block_size], position % block_size
            caches[0][place], caches[1][place] = key[position], value[position]
    queries = [normal(length, num_heads, head_dim) for length in query_lens]
    return PagedCase(queries, keys, values, caches[0], caches[1], tables, seq_lens, query_lens)


def tolerance(dtype: torch.dtype) -> dict[str, float]:
    return {
        torch.float64: {"atol": 1e-12, "rtol": 1e-12},
        torch.float32: {"atol": 1e-5, "rtol": 1e-5},
        torch.float16: {"atol": 4e-3, "rtol": 4e-3},
        torch.bfloat16: {"atol": 3e-2, "rtol": 3e-2},
    }[dtype]
