"""One prompt computed at once: its queries, keys and values, and the same keys and values in a paged cache."""

from collections.abc import Sequence

import torch

from pagedchat.bench.kernels.figures import relative_error
from pagedchat.bench.kernels.random_cache import DEVICE, RandomCache, random_tensor, reference_attention
from pagedchat.bench.kernels.shapes import BLOCK_SIZE, PrefillShape
from pagedchat.bench.kernels.timing import Call
from pagedchat.ops.attention.call import AttentionOptions

_NUM_CHECKED = 16
"""Queries of the beginning and of the end that are compared with float64."""


class PrefillInputs:
    """A prompt of `shape.num_tokens`, a multiple of the block size, with nothing before it."""

    def __init__(self, shape: PrefillShape) -> None:
        self.shape = shape
        self.cache = RandomCache(
            1, shape.num_tokens // BLOCK_SIZE, num_kv_heads=shape.num_kv_heads, head_size=shape.head_size
        )
        self.block_tables = self.cache.block_tables
        self.key, self.value = self.cache.gathered(self.block_tables[0])
        self.query = random_tensor(shape.num_tokens, shape.num_heads, shape.head_size)
        self.output = torch.empty_like(self.query)
        self.seq_lens = torch.tensor([shape.num_tokens], device=DEVICE, dtype=torch.int32)
        self.cu_seqlens = torch.tensor([0, shape.num_tokens], device=DEVICE, dtype=torch.int32)
        self.options = AttentionOptions(scale=shape.head_size**-0.5)

    def check(self, calls: Sequence[Call]) -> float:
        """Error of the first and the last queries; a call gives or writes `[num_tokens, num_heads, head_size]`."""
        self.output.fill_(torch.nan)
        result = calls[0]()
        result = result if isinstance(result, torch.Tensor) else self.output
        num_tokens = self.shape.num_tokens
        rows = [*range(_NUM_CHECKED), *range(num_tokens - _NUM_CHECKED, num_tokens)]
        expected = [
            reference_attention(self.query[row], self.key[: row + 1], self.value[: row + 1]) for row in rows
        ]
        return relative_error(result[rows], torch.stack(expected))
