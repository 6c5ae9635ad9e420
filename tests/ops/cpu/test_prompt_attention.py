"""Attention of prompts over a paged cache against float64, and however a prompt is cut the same bits."""

from itertools import pairwise

import pytest
import torch

from pagedchat.jit.cpu.pool import Job, Program
from pagedchat.ops.cpu.kernels import CpuKernels
from pagedchat.ops.cpu.prompt_attention import QUERIES

ROUNDING = 2.0**-24
ALL = 1 << 62
SHAPES = [
    (4, 2, 64, 0, 100, ALL), (3, 3, 80, 37, 70, ALL), (14, 2, 64, 100, 150, 60), (8, 1, 256, 0, 50, ALL),
    (64, 1, 32, 5, 3, 4), (2, 2, 16, 47, 1, ALL), (6, 3, 48, 48, 49, 48),
]  # fmt: skip
"""Heads, KV heads, width of a head, tokens before, tokens, tokens that are seen."""
TYPES = {"f32": torch.float32, "bf16": torch.bfloat16}


class Text:
    """A sequence in a cache whose blocks lie in any order, and its queries."""

    def __init__(self, heads: int, kv_heads: int, head_dim: int, length: int, dtype: torch.dtype) -> None:
        torch.manual_seed(length)
        self.block_size, self.heads, self.kv_heads = 4, heads, kv_heads
        num_blocks = -(-length // self.block_size)
        self.table = torch.randperm(num_blocks + 3)[:num_blocks]
        shape = (num_blocks + 3, self.block_size, kv_heads, head_dim)
        self.keys, self.values = (torch.randn(shape).to(dtype) for _ in range(2))
        self.rows = torch.randn(length, heads + 2 * kv_heads, head_dim)
        self.sinks: torch.Tensor | None = None

    def attended(self, kernels: CpuKernels, element: str, start: int, stop: int, window: int) -> torch.Tensor:
        """Of the tokens from one to before another."""
        rows = self.rows[start:stop].contiguous()
        output = torch.full((stop - start, self.heads, rows.shape[2]), torch.nan)
        height = QUERIES // (self.heads // self.kv_heads)
        runs = range(0, stop - start, height)
        tiles = torch.tensor([[row, min(height, stop - start - row), 0, start + row] for row in runs])
        arguments = (
            rows.data_ptr(), output.data_ptr(), self.keys.data_ptr(), self.values.data_ptr(), self.table.data_ptr(),
            tiles.data_ptr(), self.heads, self.kv_heads, rows.shape[2], self.block_size, len(self.table),
            rows[0].numel(), window, 0 if self.sinks is None else self.sinks.data_ptr(),
        )  # fmt: skip
        name = f"prompt_attention_{element}"
        Program(kernels.pool, [Job(kernels.address(name), len(tiles) * self.kv_heads, 1, arguments)]).run()
        return output

    def exact(self, start: int, stop: int, window: int) -> torch.Tensor:
        shared = self.heads // self.kv_heads
        keys, values = (
            cache[self.table].flatten(0, 1)[:stop].double().repeat_interleave(shared, dim=1)
            for cache in (self.keys, self.values)
        )
        scores = torch.einsum("qhd,khd->hqk", self.rows[start:stop, : self.heads].double(), keys)
        queries, tokens = torch.arange(start, stop)[:, None], torch.arange(stop)[None]
        hidden = (tokens > queries) | (tokens <= queries - window)
        scores = scores.masked_fill(hidden, -torch.inf)
        if self.sinks is not None:
            sinks = self.sinks.double()[:, None, None].expand(-1, stop - start, 1)
            scores = torch.cat((scores, sinks), dim=-1)
        return torch.einsum("hqk,khd->qhd", scores.softmax(-1)[..., :stop], values)


@pytest.fixture
def able(kernels: CpuKernels) -> CpuKernels:
    if not kernels.has_prompts:
        pytest.skip("no kernels of prompts for such a processor")
    return kernels


@pytest.mark.parametrize("element", TYPES)
@pytest.mark.parametrize("has_sinks", [False, True])
@pytest.mark.parametrize(("heads", "kv_heads", "head_dim", "before", "tokens", "window"), SHAPES)
def test_attention_is_within_rounding(
    able: CpuKernels, heads: int, kv_heads: int, head_dim: int, before: int, tokens: int, window: int,
    has_sinks: bool, element: str,
) -> None:  # fmt: skip
    text = Text(heads, kv_heads, head_dim, before + tokens, TYPES[element])
    text.sinks = torch.linspace(-3, 12, heads) if has_sinks else None
    result = text.attended(able, element, before, before + tokens, window)
    exact = text.exact(before, before + tokens, window)
    # A score is off by its products' rounding, which is a factor of its weight; values are some units large.
    largest = (text.rows.double().norm(dim=-1).max() * text.keys.double().norm(dim=-1).max()).item()
    assert (result - exact).abs().max() <= 8 * (head_dim + before + tokens + 2 * largest) * ROUNDING


@pytest.mark.parametrize("window", [ALL, 50])
def test_numbers_are_the_same_however_a_prompt_is_cut(able: CpuKernels, window: int) -> None:
    text = Text(6, 2, 64, 130, torch.bfloat16)
    whole = text.attended(able, "bf16", 0, 130, window)
    cuts = [0, 1, 20, 48, 97, 130]
    pieces = [text.attended(able, "bf16", *cut, window) for cut in pairwise(cuts)]
    assert torch.equal(torch.cat(pieces), whole)
