"""One decode step at a shape, over several sets of sequences in turn."""

from collections.abc import Sequence

import torch

from pagedchat.bench.kernels.figures import relative_error
from pagedchat.bench.kernels.random_cache import (
    DEVICE,
    RandomCache,
    num_rotated_sets,
    random_tensor,
    reference_attention,
)
from pagedchat.bench.kernels.shapes import BLOCK_SIZE, DecodeShape, PrefixShape
from pagedchat.bench.kernels.timing import Call
from pagedchat.ops.attention.call import AttentionCall, AttentionOptions


class DecodeInputs:
    """Set `i` is the sequences of `block_tables[i]`; queries and lengths are the same in all sets."""

    def __init__(self, shape: DecodeShape, cache: RandomCache, block_tables: torch.Tensor) -> None:
        """`block_tables` is `[num_sets, batch, blocks of a sequence]`, int32, into `cache`."""
        self.shape = shape
        self.cache = cache
        self.block_tables = block_tables
        self.query = random_tensor(shape.batch, shape.num_heads, shape.head_size)
        self.output = torch.empty_like(self.query)
        self.seq_lens = torch.full((shape.batch,), shape.context, device=DEVICE, dtype=torch.int32)
        self.options = AttentionOptions(scale=shape.head_size**-0.5)

    @classmethod
    def apart(cls, shape: DecodeShape) -> "DecodeInputs":
        """Sequences that have no block in common."""
        per_sequence = -(-shape.context // BLOCK_SIZE)
        num_sets = num_rotated_sets(shape.kv_bytes)
        cache = RandomCache(
            num_sets, shape.batch, per_sequence, num_kv_heads=shape.num_kv_heads, head_size=shape.head_size
        )
        return cls(shape, cache, cache.block_tables)

    @classmethod
    def over_one_prefix(cls, shape: PrefixShape) -> "DecodeInputs":
        """Sequences whose tables begin with the same blocks, other ones in each set."""
        shared, own = shape.shared // BLOCK_SIZE, -(-shape.own // BLOCK_SIZE)
        num_sets = num_rotated_sets(shape.kv_bytes)
        cache = RandomCache(
            num_sets, shared + shape.batch * own, num_kv_heads=shape.num_kv_heads, head_size=shape.head_size
        )
        prefixes = cache.block_tables[:, None, :shared].expand(-1, shape.batch, -1)
        rest = cache.block_tables[:, shared:].reshape(num_sets, shape.batch, own)
        return cls(shape.unshared, cache, torch.cat([prefixes, rest], dim=2))

    def attention(self, set_number: int) -> AttentionCall:
        """Over one of the sets."""
        caches, tables = (self.cache.key_cache, self.cache.value_cache), self.block_tables[set_number]
        return AttentionCall(self.query, *caches, tables, self.seq_lens, self.options, self.output)

    def check(self, calls: Sequence[Call]) -> float:
        """Error of the first and the last sequence of the first set; a call gives or writes `[batch, ...]`."""
        self.output.fill_(torch.nan)
        result = calls[0]()
        result = result if isinstance(result, torch.Tensor) else self.output
        rows = [0, self.shape.batch - 1]
        expected = torch.stack([self._reference(row) for row in rows])
        return relative_error(result.reshape(self.query.shape)[rows], expected)

    def _reference(self, sequence: int) -> torch.Tensor:
        key, value = self.cache.gathered(self.block_tables[0, sequence])
        context = self.shape.context
        return reference_attention(self.query[sequence], key[:context], value[:context])
