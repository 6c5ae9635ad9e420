"""From the product of a layer's input to its place in the cache, for one token of each of many sequences.

Norms of queries and keys, rotation by position (Su et al. 2021, arXiv 2104.09864) and the write into the paged
cache, in one launch. `qkv_to_cache` does this together with the product, but for norms, for a few sequences.
"""

import torch

from pagedchat.jit.launch import f32, get_kernel, i32
from pagedchat.jit.variant import Constant
from pagedchat.ops.cache.byte_cache import is_byte_cache
from pagedchat.ops.cache.heads_to_bytes import can_launch, launch_heads_to_bytes
from pagedchat.ops.cache.layout import CacheSizes, check_paged_cache, row_elements
from pagedchat.ops.cache.reshape_and_cache import reshape_and_cache
from pagedchat.ops.common.checks import check_dtype, check_same_type, check_shape
from pagedchat.ops.common.launch import address, can_overlap, ceil_div, element_name, on_cuda, stream_of
from pagedchat.ops.common.norm import HeadNorms, check_head_norms
from pagedchat.ops.sampling.decode_state import slots_of

NAME = "heads_to_cache"
_THREADS, _FEWEST_THREADS = 256, 64
_MANY_TOKENS = 512
"""From here on thread blocks wait for their turn, and threads without a piece are in the way."""
_THREADS_TOGETHER = 128
"""Then tokens of fewer threads share a thread block: to begin it takes as long as what so few do."""
_USUAL_NORM = 2
"""The `NORM` constant that the kernel has without being told."""


def heads_to_cache(
    heads: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    positions: torch.Tensor,
    *,
    norms: HeadNorms | None = None,
    rotations: torch.Tensor | None = None,
    overlap: bool = False,
) -> torch.Tensor:
    """Write keys and values into their slots.

    Args:
        heads: `[num_tokens, num_heads + 2 * num_kv_heads, head_size]`, contiguous: query heads, key heads, value
            heads. Its queries are normed and turned in place.
        key_cache: `[num_blocks, num_kv_heads, head_size / x, block_size, x]`, written.
        value_cache: `[num_blocks, num_kv_heads, head_size, block_size]`, written.
        block_tables: `[num_tokens, max_blocks_per_seq]`, int32, contiguous.
        positions: `[num_tokens]`, int32; below 0 the token is padding, of which nothing is written.
        norms: of queries and keys, before they are turned.
        rotations: `[max_positions, turned / 2, 2]`, float32: cosine and sine of every position's angles; the first
            `turned` elements of a head are turned, at most all.
        overlap: the launch may begin before the kernel before it has ended, which makes `heads`; positions and
            block tables are read before that.

    Returns:
        The queries, `[num_tokens, num_heads, head_size]`, a view of `heads`.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    sizes = check_paged_cache(key_cache, value_cache)
    _check(heads, key_cache, block_tables, positions, norms, rotations, sizes)
    if is_byte_cache(key_cache) and can_launch(heads, norms):
        launch_heads_to_bytes(
            heads, key_cache, value_cache, block_tables, positions, rotations, norms, sizes, overlap=overlap
        )
    elif on_cuda(heads) and not is_byte_cache(key_cache) and has_kernel(heads, norms, rotations):
        _launch(heads, key_cache, value_cache, block_tables, positions, norms, rotations, sizes, overlap)
    else:
        _write_heads(heads, key_cache, value_cache, block_tables, positions, rotations, sizes, norms)
    return heads[:, : heads.shape[1] - 2 * sizes.num_kv_heads]


def has_kernel(heads: torch.Tensor, norms: HeadNorms | None, rotations: torch.Tensor | None) -> bool:
    """Whether its threads have whole pieces of heads where they change anything."""
    if norms is None and rotations is None:
        return True
    piece, turned = row_elements(heads.dtype), 0 if rotations is None else 2 * rotations.shape[1]
    return heads.shape[2] % (2 * piece) == 0 and (norms is None or turned % (2 * piece) == 0)


def _check(
    heads: torch.Tensor,
    key_cache: torch.Tensor,
    block_tables: torch.Tensor,
    positions: torch.Tensor,
    norms: HeadNorms | None,
    rotations: torch.Tensor | None,
    sizes: CacheSizes,
) -> None:
    check_shape("heads", heads, None, None, sizes.head_size)
    if not is_byte_cache(key_cache):
        check_same_type("key_cache", key_cache, heads)
    check_shape("block_tables", block_tables, len(heads), None)
    check_shape("positions", positions, len(heads))
    for name, tensor in (("block_tables", block_tables), ("positions", positions)):
        check_dtype(name, tensor, torch.int32)
    if rotations is not None:
        check_rotations(rotations, sizes.head_size)
    if heads.shape[1] <= 2 * sizes.num_kv_heads:
        raise ValueError(f"heads has {heads.shape[1]} heads, expected more than {2 * sizes.num_kv_heads}")
    for name, tensor in (("heads", heads), ("block_tables", block_tables)):
        if not tensor.is_contiguous():
            raise ValueError(f"{name} is not contiguous")
    if norms is not None:
        check_head_norms(norms, *_queries_and_keys(heads, sizes))


def _write_heads(
    heads: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    positions: torch.Tensor,
    rotations: torch.Tensor | None,
    sizes: CacheSizes,
    norms: HeadNorms | None = None,
) -> None:
    """`heads_to_cache` in torch, of arguments that are known to be right; the queries are changed in place."""
    if norms is not None:
        query, key = _queries_and_keys(heads, sizes)
        for each, normed in zip((query, key), norms.apply(query, key), strict=True):
            each.copy_(normed)
    if rotations is not None:
        turned = heads[:, : heads.shape[1] - sizes.num_kv_heads]
        turned.copy_(rotate_heads(turned, rotations[positions.clamp(min=0).long()]))
    key, value = heads[:, -2 * sizes.num_kv_heads :].chunk(2, dim=1)
    reshape_and_cache(key, value, key_cache, value_cache, slots_of(positions, block_tables, sizes.block_size))


def _queries_and_keys(heads: torch.Tensor, sizes: CacheSizes) -> tuple[torch.Tensor, torch.Tensor]:
    num_heads = heads.shape[1] - 2 * sizes.num_kv_heads
    return heads[:, :num_heads], heads[:, num_heads : num_heads + sizes.num_kv_heads]


def check_rotations(rotations: torch.Tensor, head_size: int) -> None:
    """Refuse angles that are not for such heads.

    Raises:
        ValueError: another shape or type, or more than a head.
    """
    check_shape("rotations", rotations, None, None, 2)
    check_dtype("rotations", rotations, torch.float32)
    if 2 * rotations.shape[1] > head_size:
        raise ValueError(f"rotations turns {2 * rotations.shape[1]} elements, expected at most {head_size}")


def rotate_heads(heads: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Turn the first elements of every head; element i and element i + turned / 2 are a pair.

    Args:
        heads: `[num_tokens, num_heads, head_size]`.
        turns: `[num_tokens, turned / 2, 2]`: cosine and sine of each token's angles, in the type to work in.

    Returns:
        Like `heads`.
    """
    pairs = turns.shape[1]
    parts = [pairs, pairs, heads.shape[2] - 2 * pairs]
    first, second, rest = torch.split(heads.to(turns.dtype), parts, dim=-1)
    cos, sin = turns[:, None].unbind(-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin, rest), dim=-1).to(heads.dtype)


def _launch(
    heads: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    positions: torch.Tensor,
    norms: HeadNorms | None,
    rotations: torch.Tensor | None,
    sizes: CacheSizes,
    overlap: bool,
) -> None:
    kernel = get_kernel(
        NAME, heads.device.index, None, **heads_constants(heads, norms, rotations, sizes), BY_SLOT=0
    )
    args = (
        heads.data_ptr(),
        key_cache.data_ptr(),
        value_cache.data_ptr(),
        block_tables.data_ptr(),
        positions.data_ptr(),
        address(rotations),
        address(norms.query.weight if norms else None),
        address(norms.key.weight if norms else None),
        address(norms.query.bias if norms else None),
        address(norms.key.bias if norms else None),
        i32(heads.shape[1] - 2 * sizes.num_kv_heads),
        i32(sizes.num_kv_heads),
        i32(block_tables.shape[1]),
        key_cache.stride(0),
        value_cache.stride(0),
        f32(norms.query.eps if norms else 0.0),
        f32(norms.key.eps if norms else 0.0),
        i32(len(heads)),
    )
    threads = _threads_for(heads, norms, sizes)
    grid = (ceil_div(len(heads), threads[1]), 2 if norms is None and rotations is None else 3)
    overlap = overlap and can_overlap(heads.device)
    kernel.launch(grid, threads, args, stream=stream_of(heads), overlap=overlap)


def heads_constants(
    heads: torch.Tensor, norms: HeadNorms | None, rotations: torch.Tensor | None, sizes: CacheSizes
) -> dict[str, Constant]:
    """What the kernel is compiled for, but for who says where tokens go; arguments as of `heads_to_cache`."""
    constants: dict[str, Constant] = {
        "ELEMENT": element_name(heads.dtype),
        "HEAD_SIZE": sizes.head_size,
        "BLOCK_SIZE": sizes.block_size,
        "ROTARY": int(rotations is not None),
        "HEAD_NORM": 0 if norms is None else norms.constant(sizes.head_size),
    }
    if norms is not None and norms.query.constant != _USUAL_NORM:
        constants["NORM"] = norms.query.constant
    if rotations is not None and 2 * rotations.shape[1] < sizes.head_size:
        constants["TURNED"] = 2 * rotations.shape[1]
    return constants


def _threads_for(heads: torch.Tensor, norms: HeadNorms | None, sizes: CacheSizes) -> tuple[int, int]:
    """Of a thread block: for each token, and tokens. A thread for each pair of pieces of a token's queries, where
    there are many tokens."""
    if len(heads) < _MANY_TOKENS:
        return _THREADS, 1
    pairs = (heads.shape[1] - 2 * sizes.num_kv_heads) * sizes.head_size // (2 * row_elements(heads.dtype))
    threads = min(_THREADS, max(_FEWEST_THREADS, ceil_div(pairs, 32) * 32))
    alone = norms is not None and norms.spans_heads(sizes.head_size)
    return threads, 1 if alone else max(1, _THREADS_TOGETHER // threads)
