"""What `heads_to_cache` and `heads_to_slots` do on a GPU where the cache is of one byte an element.

Launches kernels/cache/heads_to_bytes.cu; knows no way around it, which those have.
"""

import torch

from pagedchat.jit.launch import f32, get_kernel, i32
from pagedchat.jit.variant import Constant
from pagedchat.ops.cache.byte_cache import CACHE_KINDS
from pagedchat.ops.cache.layout import CacheSizes
from pagedchat.ops.cache.rows_to_bytes import NUM_WARPS, has_byte_kernel
from pagedchat.ops.common.launch import address, can_overlap, ceil_div, element_name, on_cuda, stream_of
from pagedchat.ops.common.norm import HeadNorms

NAME = "heads_to_bytes"
_OVER_ALL_HEADS = 2
"""The `HEAD_NORM` of norms that need more than a head."""
_USUAL_NORM = 2


def can_launch(heads: torch.Tensor, norms: HeadNorms | None) -> bool:
    """Whether the kernel does it: heads of 16 bits on a GPU, normed one by one if at all."""
    if not (on_cuda(heads) and has_byte_kernel(heads) and heads.is_contiguous()):
        return False
    return norms is None or norms.constant(heads.shape[2]) != _OVER_ALL_HEADS


def launch_heads_to_bytes(
    heads: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    places: torch.Tensor,
    positions: torch.Tensor | None,
    turns: torch.Tensor | None,
    norms: HeadNorms | None,
    sizes: CacheSizes,
    *,
    overlap: bool = False,
) -> None:
    """The kernel, of arguments that are known to be right.

    Args:
        heads: `[num_tokens, num_heads + 2 * num_kv_heads, head_size]`, contiguous; queries are changed in place.
        key_cache: `[num_blocks, num_kv_heads, head_size / 16, block_size, 16]`, written, with scales.
        value_cache: `[num_blocks, num_kv_heads, head_size, block_size]`, likewise.
        places: block tables, `[num_tokens, max_blocks_per_seq]`, int32; without `positions` slots, `[num_tokens]`,
            int64.
        positions: `[num_tokens]`, int32; below 0 for padding.
        turns: float32, cosine and sine of angles, `[max_positions, turned / 2, 2]`; without `positions`
            `[num_tokens, turned / 2, 2]`.
        norms: of queries and keys.
        sizes: of the cache.
        overlap: as in `heads_to_cache`.
    """
    constants: dict[str, Constant] = {
        "ELEMENT": element_name(heads.dtype),
        "HEAD_SIZE": sizes.head_size,
        "BLOCK_SIZE": sizes.block_size,
        "CACHE_KIND": CACHE_KINDS[key_cache.dtype],
        "ROTARY": int(turns is not None),
        "HEAD_NORM": 0 if norms is None else norms.constant(sizes.head_size),
        "BY_SLOT": int(positions is None),
    }
    if norms is not None and norms.query.constant != _USUAL_NORM:
        constants["NORM"] = norms.query.constant
    if turns is not None and 2 * turns.shape[1] < sizes.head_size:
        constants["TURNED"] = 2 * turns.shape[1]
    num_heads = heads.shape[1] - 2 * sizes.num_kv_heads
    first_head = num_heads if norms is None and turns is None else 0
    args = (
        heads.data_ptr(),
        key_cache.data_ptr(),
        value_cache.data_ptr(),
        places.data_ptr(),
        address(positions),
        address(turns),
        address(norms.query.weight if norms else None),
        address(norms.key.weight if norms else None),
        address(norms.query.bias if norms else None),
        address(norms.key.bias if norms else None),
        i32(first_head),
        i32(num_heads),
        i32(sizes.num_kv_heads),
        i32(0 if positions is None else places.shape[1]),
        key_cache.stride(0),
        value_cache.stride(0),
        f32(norms.query.eps if norms else 0.0),
        f32(norms.key.eps if norms else 0.0),
    )
    grid = (len(heads), ceil_div(heads.shape[1] - first_head, NUM_WARPS))
    overlap = overlap and can_overlap(heads.device)
    kernel = get_kernel(NAME, heads.device.index, None, **constants)
    kernel.launch(grid, 32 * NUM_WARPS, args, stream=stream_of(heads), overlap=overlap)
