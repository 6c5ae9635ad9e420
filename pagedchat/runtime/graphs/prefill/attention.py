"""The attention of a captured prefill: chunks of sequences; which, and how long, is for the device to know."""

import torch

from pagedchat.ops.attention.call import AttentionCall, AttentionOptions
from pagedchat.ops.attention.prefill import paged_prefill
from pagedchat.ops.cache.heads_to_cache import heads_to_cache
from pagedchat.ops.cache.heads_to_slots import heads_to_slots
from pagedchat.ops.cache.reshape_and_cache import reshape_and_cache
from pagedchat.ops.common.norm import HeadNorms
from pagedchat.ops.products.model_tensors import LayerTensors
from pagedchat.runtime.attention.backend import CacheShape
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.graphs.prefill.buckets import PrefillBucket
from pagedchat.runtime.graphs.prefill.buffers import PrefillRows


class PrefillAttention:
    """`layers.paged.PagedAttention` for the chunks of a step.

    Args:
        backend: has the cache.
        rows: the chunks.
        bucket: how much there is room for.
    """

    def __init__(self, backend: CudaAttention, rows: PrefillRows, bucket: PrefillBucket) -> None:
        self._backend = backend
        self._rows = rows
        self._max_query_len = min(bucket.num_tokens, bucket.context_len)
        self._slots = torch.empty(0, dtype=torch.int64)
        self._token_tables = torch.empty(0, dtype=torch.int32)

    @property
    def shape(self) -> CacheShape:
        """See `transformers_attention.Attended`."""
        return self._backend.shape

    def begin(self) -> torch.Tensor:
        """A step begins: find the slots of its tokens.

        Returns:
            Their positions, `[num_tokens]`, int32; 0 in padding, which goes to no slot.
        """
        rows, block_size = self._rows, self._backend.shape.block_size
        positions = rows.positions.clamp(min=0)
        places = torch.add(positions // block_size, rows.seq_rows, alpha=rows.block_tables.shape[1])
        blocks = rows.block_tables.view(-1).index_select(0, places)
        slots = torch.add(positions % block_size, blocks.long(), alpha=block_size)
        self._slots = torch.where(rows.positions < 0, -1, slots)
        return positions

    def prepare_changing(self) -> None:
        """Make what `change_and_write` needs, early in a step: a block table for every token."""
        self._token_tables = self._rows.block_tables.index_select(0, self._rows.seq_rows)

    def change_and_write(self, layer: LayerTensors, heads: torch.Tensor) -> torch.Tensor:
        """Norm queries and keys, turn them by their positions and write keys and values, in one launch.

        Args:
            layer: whose.
            heads: `[num_tokens, num_heads + 2 * num_kv_heads, head_dim]`, contiguous: queries, keys, values.

        Returns:
            The queries, `[num_tokens, num_heads, head_dim]`.
        """
        caches, places = self._backend.layer_cache(layer.layer_idx), (self._token_tables, self._rows.positions)
        norms, rotations = layer.head_norms, layer.rotations
        return heads_to_cache(heads, *caches, *places, norms=norms, rotations=rotations, overlap=True)

    def write(self, layer_idx: int, key: torch.Tensor, value: torch.Tensor) -> None:
        """See `layers.paged.PagedAttention`."""
        reshape_and_cache(key, value, *self._backend.layer_cache(layer_idx), self._slots, overlap=True)

    def place_heads(
        self, layer_idx: int, heads: torch.Tensor, norms: HeadNorms | None, turns: torch.Tensor | None
    ) -> torch.Tensor:
        """What `write` does, and before it what happens to heads, in one launch; see `heads_to_slots`."""
        return heads_to_slots(heads, *self._backend.layer_cache(layer_idx), self._slots, norms=norms, turns=turns)

    def attend(
        self,
        layer_idx: int,
        query: torch.Tensor,
        _key: torch.Tensor,
        _value: torch.Tensor,
        *,
        scale: float,
        sliding_window: int | None,
        cap: float | None,
        alibi_slopes: torch.Tensor | None = None,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See `layers.paged.PagedAttention`. Rows of padding are left as they are: nobody reads them."""
        options = AttentionOptions(
            scale=scale, sliding_window=sliding_window, cap=cap, alibi_slopes=alibi_slopes, sinks=sinks
        )
        rows, caches = self._rows, self._backend.layer_cache(layer_idx)
        call = AttentionCall.to_new(query, *caches, rows.block_tables, rows.seq_lens, options)
        return paged_prefill(
            call,
            rows.cu_seqlens_q,
            max_query_len=self._max_query_len,
            overlap=True,
            batch_invariant=self._backend.batch_invariant,
        )
