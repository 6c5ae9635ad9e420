"""Prefill on Hopper's warpgroup tensor cores: launches kernels/attention/prefill_wgmma.cu.

FlashAttention-3 (Shah et al. 2024, arXiv 2407.08608) over the paged cache, for float16 and bfloat16.
"""

from dataclasses import dataclass

import torch

from pagedchat.jit.driver import gpu
from pagedchat.jit.launch import f32, get_kernel, i32
from pagedchat.ops.attention.options import AttentionOptions
from pagedchat.ops.common.launch import element_name, stream_of

BLOCK_SIZES = (8, 16, 32)
NO_WINDOW = 2**31 - 1
_ELEMENT_BYTES = 2


@dataclass(frozen=True, slots=True)
class WgmmaTile:
    """The compile-time constants of the kernel that its speed depends on."""

    consumers: int
    """Warpgroups that compute, 64 query rows each; one more fetches."""
    keys: int
    stages: int = 2
    """Tiles of keys, and of values, in shared memory."""

    @property
    def rows(self) -> int:
        """Query rows of a thread block: heads of a group times tokens."""
        return 64 * self.consumers

    @property
    def threads(self) -> int:
        """Of a thread block."""
        return 128 * (self.consumers + 1)

    def shared_bytes(self, head_size: int) -> int:
        """`SHARED_BYTES` of the kernel: the queries, and `stages` tiles of keys and of values."""
        queries = head_size * (self.rows + 1) * _ELEMENT_BYTES
        return queries + 2 * self.stages * self.keys * head_size * _ELEMENT_BYTES


TILES = {
    64: WgmmaTile(consumers=3, keys=128, stages=2),
    80: WgmmaTile(consumers=2, keys=128),
    96: WgmmaTile(consumers=2, keys=128),
    112: WgmmaTile(consumers=2, keys=128),
    128: WgmmaTile(consumers=2, keys=128),
    256: WgmmaTile(consumers=2, keys=64),
}
"""By head size; the fastest on an H200."""
TILE_OF_FINISHED_SCORES = {64: WgmmaTile(consumers=2, keys=128)}
"""With soft cap or ALiBi, where the registers of the other tile do not hold them."""


def supported(query: torch.Tensor, key_cache: torch.Tensor, options: AttentionOptions) -> bool:
    """Whether the kernel can do it: a Hopper GPU, 16-bit elements, a cache without gaps, a scale above 0."""
    return (
        gpu(query.device.index).compute_capability == (9, 0)
        and query.dtype in (torch.float16, torch.bfloat16)
        and query.shape[2] in TILES
        and key_cache.shape[3] in BLOCK_SIZES
        and key_cache.is_contiguous()
        and options.scale > 0.0
    )


def launch(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    cu_seqlens_q: torch.Tensor,
    options: AttentionOptions,
    max_query_len: int,
    output: torch.Tensor,
    lse: torch.Tensor | None,
    *,
    overlap: bool = False,
) -> None:
    """Launch the kernel. Arguments as in `paged_prefill`, checked and readable by 16 bytes."""
    num_tokens, num_heads, head_size = query.shape
    num_kv_heads, block_size = key_cache.shape[1], key_cache.shape[3]
    group_size, device = num_heads // num_kv_heads, gpu(query.device.index)
    tile = choose_tile(head_size, options)
    kernel = get_kernel(
        "prefill_wgmma",
        device.index,
        ELEMENT=element_name(query.dtype),
        HEAD_SIZE=head_size,
        BLOCK_SIZE=block_size,
        GROUP_SIZE=group_size,
        SOFT_CAP=int(options.cap is not None),
        ALIBI=int(options.alibi_slopes is not None),
        CONSUMERS=tile.consumers,
        TILE_KEYS=tile.keys,
        STAGES=tile.stages,
    )
    shared_bytes = tile.shared_bytes(head_size)
    kernel.allow_shared(shared_bytes)
    args = (
        output.data_ptr(),
        0 if lse is None else lse.data_ptr(),
        query.data_ptr(),
        key_cache.data_ptr(),
        value_cache.data_ptr(),
        block_tables.data_ptr(),
        seq_lens.data_ptr(),
        cu_seqlens_q.data_ptr(),
        0 if options.alibi_slopes is None else options.alibi_slopes.data_ptr(),
        i32(len(seq_lens)),
        i32(num_kv_heads),
        i32(block_tables.stride(0)),
        output.stride(0),
        output.stride(1),
        query.stride(0),
        query.stride(1),
        f32(options.scale),
        f32(options.cap or 0.0),
        i32(options.sliding_window or NO_WINDOW),
    )
    rows = min(num_tokens, max_query_len * len(seq_lens)) * group_size
    items = max_items(tile, rows, len(seq_lens)) * num_kv_heads
    grid = min(items, device.num_multiprocessors)
    kernel.launch(grid, tile.threads, args, stream=stream_of(query), shared_bytes=shared_bytes, overlap=overlap)


def choose_tile(head_size: int, options: AttentionOptions) -> WgmmaTile:
    """The tile for a head size of `TILES`."""
    finished = options.cap is not None or options.alibi_slopes is not None
    tile = TILE_OF_FINISHED_SCORES.get(head_size) if finished else None
    return tile or TILES[head_size]


def max_items(tile: WgmmaTile, num_rows: int, num_seqs: int) -> int:
    """Tiles of all sequences for one KV head; not fewer than any lengths of the same sum need.

    Args:
        tile: rows of a thread block.
        num_rows: heads of a group times tokens of the batch.
        num_seqs: sequences.
    """
    return num_rows // tile.rows + num_seqs
