"""The attention backend of plain torch: any device, and the reference for every other.

Cache: `[num_layers, 2, num_blocks, block_size, num_kv_heads, head_dim]`, K and V of a layer each contiguous, so
that a token's row is `slot * num_kv_heads + head`. One of one byte an element is `[num_layers, 2, num_blocks,
page_bytes]`, with its scales in the pages (`ops.cache.byte_cache`); the blocks that a step looks into are brought
into the type of the rows first, once in each layer (`byte_blocks`), and what is new is read from there too, as
every step after this one will read it.
"""

from functools import partial

import torch

from pagedchat.ops.attention.torch_decode import TorchDecodePlan, plan_torch_decode, torch_decode
from pagedchat.ops.attention.torch_invariant import TorchInvariantPlan, plan_torch_invariant, torch_invariant
from pagedchat.ops.attention.torch_prefill import TorchPrefillPlan, plan_torch_prefill, torch_prefill
from pagedchat.ops.cache.byte_cache import elements_of
from pagedchat.ops.cache.copy_blocks import copy_blocks
from pagedchat.ops.cache.reshape_and_cache import reshape_and_cache
from pagedchat.ops.cache.swap_blocks import swap_blocks
from pagedchat.ops.common.pages import prefer_small_pages
from pagedchat.runtime.attention.backend import AttentionBatch, CacheShape
from pagedchat.runtime.attention.byte_blocks import ByteBlocks
from pagedchat.runtime.attention.prefix_groups import SharingRule


class TorchAttention:
    """`AttentionBackend` over paged tensors.

    Args:
        shape: of the model's cache.
        num_blocks: device blocks.
        num_host_blocks: host blocks, for swapping.
        device: where the model runs.
        batch_invariant: a token's result follows from its sequence alone; on a CPU.
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
        self.num_blocks = num_blocks
        self.device = device
        self.cache = self._allocate(num_blocks, device)
        self.host_cache = self._allocate(num_host_blocks, torch.device("cpu"))
        self.layers = [self._views(layer) for layer in self.cache]
        """Key cache and value cache of each layer, `[num_blocks, block_size, num_kv_heads, head_dim]`."""
        if device.type == "cuda":
            # cuDNN's attention makes a plan for every new shape, tens of milliseconds each, and every decode step
            # has a new one, as contexts grow by a token.
            torch.backends.cuda.enable_cudnn_sdp(False)
        self._batch: AttentionBatch | None = None
        """The step; where the cache is of bytes, as the blocks that were brought into rows' type have it."""
        self._bytes: ByteBlocks | None = None
        self._decode_plans: dict[int | None, TorchDecodePlan] = {}
        self._prefill_plans: dict[int | None, TorchPrefillPlan] = {}
        self._batch_invariant = batch_invariant
        self._invariant_plans: dict[int | None, TorchInvariantPlan] = {}

    @property
    def sharing(self) -> SharingRule | None:
        """See `AttentionBackend`."""
        return None

    def prepare_swapping(self) -> None:
        """See `AttentionBackend`; nothing is to be done."""

    def _allocate(self, num_blocks: int, device: torch.device) -> torch.Tensor:
        """Memory not yet written: on a CPU the system hands out a page when a block is first used.

        Pages of 2 MiB would be one for the keys and one for the values of every layer as soon as there is a single
        block, a hundred megabytes of which next to nothing is used.
        """
        s = self.shape
        page = (s.block_size, s.num_kv_heads, s.head_dim) if s.kind is None else (s.page_bytes // 2,)
        dtype = s.dtype if s.kind is None else torch.uint8
        cache = torch.empty((s.num_layers, 2, num_blocks, *page), dtype=dtype, device=device)
        prefer_small_pages(cache)
        return cache

    def _views(self, layer: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        s = self.shape
        if s.kind is None:
            return layer[0], layer[1]
        sizes = (s.block_size, s.num_kv_heads, s.head_dim)
        return elements_of(layer[0], s.kind, *sizes), elements_of(layer[1], s.kind, *sizes)

    def begin(self, batch: AttentionBatch) -> None:
        """See `AttentionBackend`."""
        self._bytes = None if self.shape.kind is None else ByteBlocks.of(batch, self.shape, self.device)
        self._batch = batch if self._bytes is None else self._bytes.batch
        self._decode_plans.clear()
        self._prefill_plans.clear()
        self._invariant_plans.clear()

    def write(self, layer_idx: int, key: torch.Tensor, value: torch.Tensor) -> None:
        """See `AttentionBackend`."""
        if self._bytes is not None:
            self._bytes.write(self.layers[layer_idx], key, value)
            return
        key_cache, value_cache = self.layers[layer_idx]
        reshape_and_cache(key, value, key_cache, value_cache, self._begun.slot_mapping)

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
        """See `AttentionBackend`."""
        caches = self.layers[layer_idx]
        if self._bytes is not None:
            caches = self._bytes.read(caches)
            key, value = self._bytes.newest(caches)
        if self._batch_invariant:
            return torch_invariant(
                query,
                *caches,
                self._invariant_plan(sliding_window),
                scale=scale,
                cap=cap,
                alibi_slopes=alibi_slopes,
                sinks=sinks,
            )
        split, num_tokens = self._begun.num_decodes, query.shape[0]
        decode_rows = partial(torch_decode, scale=scale, cap=cap, alibi_slopes=alibi_slopes, sinks=sinks)
        prefill_rows = partial(torch_prefill, scale=scale, cap=cap, alibi_slopes=alibi_slopes, sinks=sinks)
        parts = []
        if split > 0:
            parts.append(decode_rows(query[:split], *caches, self._decode_plan(sliding_window)))
        if split < num_tokens:
            rows = (query[split:], key[split:], value[split:])
            parts.append(prefill_rows(*rows, *caches, self._prefill_plan(sliding_window)))
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def copy_blocks(self, src: list[int], dst: list[int]) -> None:
        """See `AttentionBackend`."""
        copy_blocks(self.cache, self._ids(src), self._ids(dst))

    def swap_out(self, src: list[int], dst: list[int]) -> None:
        """See `AttentionBackend`."""
        swap_blocks(self.cache, self.host_cache, self._ids(src), self._ids(dst))

    def swap_in(self, src: list[int], dst: list[int]) -> None:
        """See `AttentionBackend`."""
        swap_blocks(self.host_cache, self.cache, self._ids(src), self._ids(dst))

    @property
    def _begun(self) -> AttentionBatch:
        if self._batch is None:
            raise RuntimeError("no step has begun")
        return self._batch

    def _ids(self, blocks: list[int]) -> torch.Tensor:
        return torch.tensor(blocks, dtype=torch.int64, device=self.device)

    def _decode_plan(self, sliding_window: int | None) -> TorchDecodePlan:
        """One plan for all layers with the same window."""
        if sliding_window not in self._decode_plans:
            batch, s = self._begun, self.shape
            self._decode_plans[sliding_window] = plan_torch_decode(
                batch.block_tables[: batch.num_decodes],
                batch.seq_lens[: batch.num_decodes],
                block_size=s.block_size,
                num_heads=s.num_heads,
                num_kv_heads=s.num_kv_heads,
                dtype=s.dtype,
                device=self.device,
                sliding_window=sliding_window,
            )
        return self._decode_plans[sliding_window]

    def _prefill_plan(self, sliding_window: int | None) -> TorchPrefillPlan:
        if sliding_window not in self._prefill_plans:
            batch, s = self._begun, self.shape
            self._prefill_plans[sliding_window] = plan_torch_prefill(
                batch.block_tables[batch.num_decodes :],
                batch.query_lens[batch.num_decodes :],
                batch.seq_lens[batch.num_decodes :],
                block_size=s.block_size,
                dtype=s.dtype,
                device=self.device,
                sliding_window=sliding_window,
            )
        return self._prefill_plans[sliding_window]

    def _invariant_plan(self, sliding_window: int | None) -> TorchInvariantPlan:
        if sliding_window not in self._invariant_plans:
            batch = self._begun
            self._invariant_plans[sliding_window] = plan_torch_invariant(
                batch.block_tables,
                batch.query_lens,
                batch.seq_lens,
                block_size=self.shape.block_size,
                sliding_window=sliding_window,
            )
        return self._invariant_plans[sliding_window]
