"""The attention backend of our own kernels.

Cache: one tensor `[num_layers, 2, num_blocks, page_elements]`, a page being the keys or the values of a block in
one layer, in the order that `ops.cache.layout` describes; of bytes with scales behind them, where an element is a
byte (`ops.cache.byte_cache`). Every op has a torch version on the same order, so this backend runs on a CPU too;
tests use that, nobody else does.
"""

from functools import cached_property

import torch

from pagedchat.ops.attention.call import AttentionCall, AttentionOptions
from pagedchat.ops.attention.decode_shared import decode_shared
from pagedchat.ops.attention.decode_simt import decode_simt
from pagedchat.ops.attention.decode_split import decode_split
from pagedchat.ops.attention.prefill import paged_prefill
from pagedchat.ops.cache.byte_cache import DTYPES, elements_of
from pagedchat.ops.cache.copy_blocks import copy_blocks
from pagedchat.ops.cache.heads_to_slots import heads_to_slots
from pagedchat.ops.cache.layout import key_cache_shape, value_cache_shape
from pagedchat.ops.cache.reshape_and_cache import reshape_and_cache
from pagedchat.ops.common.norm import HeadNorms
from pagedchat.runtime.attention.backend import AttentionBatch, CacheShape
from pagedchat.runtime.attention.kernel_support import uses_tensor_cores
from pagedchat.runtime.attention.prefix_groups import SharingRule
from pagedchat.runtime.attention.step_tables import DecodeTables, StepTables, build_step_tables
from pagedchat.runtime.attention.swapping import BlockSwapper
from pagedchat.runtime.attention.table_rows import BlockTableRows
from pagedchat.runtime.step.upload import int64, upload

MIN_SHARED_TOKENS = 256
"""A prefix shorter than this is left to each sequence."""
MIN_SAVED_BYTES = 16 << 20
"""Keys and values of one layer that sharing must save reading, to pay for its second launch and the merge.

On an H200, with 12 heads of 64 and with 32 heads of 128 in groups of four, sharing is faster from 10 to 16 MB on.
"""


class CudaAttention:
    """`AttentionBackend` over the kernels.

    Args:
        shape: of the model's cache; `kernel_support.missing_support` has nothing against it.
        num_blocks: device blocks.
        num_host_blocks: host blocks, for swapping.
        device: where the model runs.
        batch_invariant: a token's result follows from its sequence alone: decodes and chunks of prompts go the same
            way, none reads a beginning for another.
    """

    def __init__(
        self,
        shape: CacheShape,
        num_blocks: int,
        num_host_blocks: int,
        device: torch.device,
        *,
        batch_invariant: bool = False,
    ) -> None:
        self.shape = shape
        self.batch_invariant = batch_invariant
        """As it was made."""
        self.num_blocks = num_blocks
        self.device = device
        dtype = shape.dtype if shape.kind is None else torch.uint8
        size = (shape.num_layers, 2, num_blocks, shape.page_bytes // 2 // dtype.itemsize)
        self.cache = torch.empty(size, dtype=dtype, device=device)
        self._layers = [self._views(layer) for layer in self.cache]
        self.on_tensor_cores = uses_tensor_cores(shape.dtype, device)
        """Whether decodes go through tensor cores."""
        self._swapper = BlockSwapper(self.cache, num_host_blocks)
        self._rows = BlockTableRows()
        self._options: dict[tuple[float, int | None, float | None], AttentionOptions] = {}
        self._slot_mapping: torch.Tensor | None = None
        self._tables: StepTables | None = None

    def _views(self, layer: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        s = self.shape
        if s.kind is not None:
            in_rows = key_cache_shape(1, s.num_kv_heads, s.head_dim, s.block_size, DTYPES[s.kind])[1:]
            of_values = (s.num_kv_heads, s.head_dim, s.block_size)
            return elements_of(layer[0], s.kind, *in_rows), elements_of(layer[1], s.kind, *of_values)
        keys = key_cache_shape(self.num_blocks, s.num_kv_heads, s.head_dim, s.block_size, s.dtype)
        values = value_cache_shape(self.num_blocks, s.num_kv_heads, s.head_dim, s.block_size)
        return layer[0].view(keys), layer[1].view(values)

    @cached_property
    def sharing(self) -> SharingRule | None:
        """See `AttentionBackend`."""
        if not self.on_tensor_cores or self.batch_invariant or self.shape.kind is not None:
            return None
        token_bytes = self.shape.page_bytes // self.shape.block_size
        return SharingRule(MIN_SHARED_TOKENS, MIN_SAVED_BYTES // token_bytes)

    @property
    def host_cache(self) -> torch.Tensor:
        """`[num_layers, 2, num_host_blocks, page_elements]`, once what was swapped out has arrived."""
        self._swapper.synchronize()
        return self._swapper.host.tensor

    def prepare_swapping(self) -> None:
        """See `AttentionBackend`."""
        self._swapper.host.prepare()

    def layer_cache(self, layer_idx: int) -> tuple[torch.Tensor, torch.Tensor]:
        """A layer's key cache and value cache, in the layout of `ops.cache.layout`."""
        return self._layers[layer_idx]

    def wait_for_swaps(self) -> None:
        """What the current stream is given from now on comes after all swaps."""
        self._swapper.wait_for_all()

    def begin(self, batch: AttentionBatch) -> None:
        """See `AttentionBackend`."""
        self._slot_mapping = batch.slot_mapping
        num_decodes = 0 if self.batch_invariant else batch.num_decodes
        self._tables = build_step_tables(batch, self._rows, self.shape.block_size, self.device, num_decodes)

    def write(self, layer_idx: int, key: torch.Tensor, value: torch.Tensor) -> None:
        """See `AttentionBackend`."""
        if self._slot_mapping is None:
            raise RuntimeError("no step has begun")
        self._swapper.wait_for_layer(layer_idx)
        reshape_and_cache(key, value, *self._layers[layer_idx], self._slot_mapping)

    def place_heads(
        self, layer_idx: int, heads: torch.Tensor, norms: HeadNorms | None, turns: torch.Tensor | None
    ) -> torch.Tensor:
        """What `write` does, and before it what happens to heads, in one launch; see `heads_to_slots`."""
        if self._slot_mapping is None:
            raise RuntimeError("no step has begun")
        self._swapper.wait_for_layer(layer_idx)
        return heads_to_slots(heads, *self._layers[layer_idx], self._slot_mapping, norms=norms, turns=turns)

    def attend(
        self,
        layer_idx: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        *,
        scale: float,
        sliding_window: int | None,
        cap: float | None,
        alibi_slopes: torch.Tensor | None = None,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:
        """See `AttentionBackend`. Keys and values are read from the cache, the new ones too."""
        if self._tables is None:
            raise RuntimeError("no step has begun")
        caches, options = (
            self._layers[layer_idx],
            self._options_for(scale, sliding_window, cap, alibi_slopes, sinks),
        )
        split, decodes, prefills = self._tables.num_decodes, self._tables.decodes, self._tables.prefills
        output = torch.empty(query.shape, dtype=query.dtype, device=query.device)
        if decodes is not None:
            tables = (decodes.block_tables, decodes.seq_lens)
            self._decode(AttentionCall(query[:split], *caches, *tables, options, output[:split]), decodes)
        if prefills is not None:
            tables = (prefills.block_tables, prefills.seq_lens)
            call = AttentionCall(query[split:], *caches, *tables, options, output[split:])
            paged_prefill(
                call,
                prefills.cu_seqlens_q,
                max_query_len=prefills.max_query_len,
                batch_invariant=self.batch_invariant,
            )
        return output

    def copy_blocks(self, src: list[int], dst: list[int]) -> None:
        """See `AttentionBackend`."""
        self._swapper.wait_for_all()
        disjoint = set(src).isdisjoint(dst)
        copy_blocks(self.cache, *upload([int64(src), int64(dst)], self.device), disjoint=disjoint)

    def swap_out(self, src: list[int], dst: list[int]) -> None:
        """See `AttentionBackend`."""
        self._swapper.swap_out(src, dst)

    def swap_in(self, src: list[int], dst: list[int]) -> None:
        """See `AttentionBackend`."""
        self._swapper.swap_in(src, dst)

    def _options_for(
        self,
        scale: float,
        sliding_window: int | None,
        cap: float | None,
        alibi_slopes: torch.Tensor | None,
        sinks: torch.Tensor | None,
    ) -> AttentionOptions:
        if alibi_slopes is not None or sinks is not None:  # tensors, which another layer may have others of
            return AttentionOptions(
                scale=scale, sliding_window=sliding_window, cap=cap, alibi_slopes=alibi_slopes, sinks=sinks
            )
        settings = (scale, sliding_window, cap)
        if settings not in self._options:
            self._options[settings] = AttentionOptions(scale=scale, sliding_window=sliding_window, cap=cap)
        return self._options[settings]

    def _decode(self, call: AttentionCall, tables: DecodeTables) -> None:
        shared = tables.shared
        if not self.on_tensor_cores:
            decode_simt(call)
        elif shared is None or call.options.sliding_window is not None:
            decode_split(call, max_seq_len=tables.max_seq_len, num_tokens=tables.num_tokens)
        else:
            decode_shared(
                call,
                shared.lens,
                shared.group_starts,
                max_own_len=shared.max_own_len,
                max_shared_len=shared.max_len,
                max_group_size=shared.max_group_size,
            )
