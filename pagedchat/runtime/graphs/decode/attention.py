"""The attention of a captured step: one token of each row, which rows being for the device to know."""

import torch

from pagedchat.ops.attention.call import AttentionCall, AttentionOptions
from pagedchat.ops.attention.decode_shared import launch_shared
from pagedchat.ops.attention.decode_simt import decode_simt
from pagedchat.ops.attention.decode_split import decode_split, launch_split
from pagedchat.ops.attention.prefill import paged_prefill
from pagedchat.ops.cache.heads_to_cache import heads_to_cache
from pagedchat.ops.cache.heads_to_slots import heads_to_slots
from pagedchat.ops.cache.reshape_and_cache import reshape_and_cache
from pagedchat.ops.common.norm import HeadNorms
from pagedchat.ops.products.model_tensors import LayerTensors
from pagedchat.ops.sampling.decode_state import DecodeState, slots_of
from pagedchat.runtime.attention.backend import CacheShape
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.graphs.decode.buckets import Bucket
from pagedchat.runtime.graphs.decode.state_buffers import StateBuffers

_FILLED = 0.75
"""Share of a bucket's context that is taken to be used, where the work of attention is divided."""


def options_of(layer: LayerTensors) -> AttentionOptions:
    """How queries of a layer are held against keys."""
    sizes = layer.sizes
    return AttentionOptions(
        scale=sizes.scale,
        sliding_window=layer.sliding_window,
        cap=sizes.score_cap,
        alibi_slopes=layer.alibi_slopes,
        sinks=layer.sinks,
    )


class DecodeAttention:
    """`layers.paged.PagedAttention` for one token of each row.

    Args:
        backend: has the cache.
        buffers: the step's memory.
        bucket: its sizes.
    """

    def __init__(self, backend: CudaAttention, buffers: StateBuffers, bucket: Bucket) -> None:
        self._backend = backend
        self._state: DecodeState = buffers.state(bucket)
        self._shared = buffers.shared(bucket)
        self._bucket = bucket
        self._slots = torch.empty(0, dtype=torch.int64)
        # Of chunks of one token, as which decodes are taken where no company is to change them.
        num_starts = bucket.num_seqs + 1 if backend.batch_invariant else 0
        self._starts = torch.arange(num_starts, dtype=torch.int32, device=backend.device)

    @property
    def shape(self) -> CacheShape:
        """See `transformers_attention.Attended`."""
        return self._backend.shape

    def begin(self) -> None:
        """A step begins: find the slots of its tokens."""
        state = self._state
        self._slots = slots_of(state.positions, state.block_tables, self._backend.shape.block_size)

    def write(self, layer_idx: int, key: torch.Tensor, value: torch.Tensor) -> None:
        """See `layers.paged.PagedAttention`."""
        reshape_and_cache(key, value, *self._backend.layer_cache(layer_idx), self._slots)

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
        """See `layers.paged.PagedAttention`."""
        options = AttentionOptions(
            scale=scale, sliding_window=sliding_window, cap=cap, alibi_slopes=alibi_slopes, sinks=sinks
        )
        return self.read(layer_idx, query, options)

    def write_and_read(self, layer: LayerTensors, heads: torch.Tensor) -> torch.Tensor:
        """From the product for queries, keys and values to what the way out multiplies, in launches that overlap.

        Args:
            layer: whose.
            heads: `[num_seqs, (num_heads + 2 * num_kv_heads) * head_dim]`, of the kernel before; written.

        Returns:
            `[num_seqs, num_heads * head_dim]`.
        """
        layer_idx, sizes, options = layer.layer_idx, layer.sizes, options_of(layer)
        by_token = heads.view(len(heads), -1, sizes.head_dim)
        # The kernel that reads can write the newest keys and values, if nothing happens to them before.
        overlap = not self._bucket.reads_rows  # else all rows write before any reads
        if overlap and heads.is_cuda and self._backend.on_tensor_cores and not layer.changes_heads:
            query = by_token[:, : sizes.num_heads]
            return self.read(layer_idx, query, options, overlap=True, writes_new=True).flatten(1)
        caches, state = self._backend.layer_cache(layer_idx), self._state
        places = (state.block_tables, state.positions)
        query = heads_to_cache(
            by_token, *caches, *places, norms=layer.head_norms, rotations=layer.rotations, overlap=True
        )
        return self.read(layer_idx, query, options, overlap=overlap).flatten(1)

    def read(
        self,
        layer_idx: int,
        query: torch.Tensor,
        options: AttentionOptions,
        *,
        overlap: bool = False,
        writes_new: bool = False,
    ) -> torch.Tensor:
        """Attention over what is in the cache; `overlap` and `writes_new` as in `launch_split`."""
        state, longest = self._state, self._bucket.context_len
        caches = self._backend.layer_cache(layer_idx)
        call = AttentionCall.to_new(query, *caches, state.block_tables, state.seq_lens, options)
        if self._backend.batch_invariant:  # as chunks of one token
            return paged_prefill(call, self._starts, max_query_len=1, overlap=overlap, batch_invariant=True)
        if not (query.is_cuda and self._backend.on_tensor_cores):
            return decode_split(call, max_seq_len=longest) if call.cache_kind else decode_simt(call)
        if self._bucket.num_groups > 0 and options.sliding_window is None:
            self._read_shared(call, overlap, writes_new)
        else:
            num_tokens = int(len(query) * longest * _FILLED)
            launch_split(call, longest, num_tokens, any_lengths=True, overlap=overlap, writes_new=writes_new)
        return call.output

    def _read_shared(self, call: AttentionCall, overlap: bool, writes_new: bool) -> None:
        launch_shared(
            call,
            *self._shared,
            max_own_len=self._bucket.own_len,
            max_shared_len=self._bucket.context_len,
            max_group_size=self._bucket.num_seqs,
            any_lengths=True,
            overlap=overlap,
            writes_new=writes_new,
        )
