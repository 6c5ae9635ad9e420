"""What `heads_to_cache` does for tokens of any sequences, several of one too: they bring their slots and angles.

The same kernel, which does each token by itself.
"""

import torch

from pagedchat.jit.launch import f32, get_kernel, i32
from pagedchat.ops.cache.byte_cache import is_byte_cache
from pagedchat.ops.cache.heads_to_bytes import can_launch, launch_heads_to_bytes
from pagedchat.ops.cache.heads_to_cache import NAME, has_kernel, heads_constants, rotate_heads
from pagedchat.ops.cache.layout import CacheSizes, check_paged_cache
from pagedchat.ops.cache.reshape_and_cache import reshape_and_cache
from pagedchat.ops.common.checks import check_dtype, check_same_type, check_shape
from pagedchat.ops.common.launch import address, on_cuda, stream_of
from pagedchat.ops.common.norm import HeadNorms, check_head_norms

_THREADS = 256
"""However many tokens there are: a norm over all heads of one adds up what each thread has."""


def can_place(heads: torch.Tensor, norms: HeadNorms | None, turns: torch.Tensor | None) -> bool:
    """Whether a kernel does it, and there is something to be done beside writing; arguments of `heads_to_slots`."""
    if (norms is None and turns is None) or not on_cuda(heads) or not heads.is_contiguous():
        return False
    return has_kernel(heads, norms, turns)


def heads_to_slots(
    heads: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slots: torch.Tensor,
    *,
    norms: HeadNorms | None = None,
    turns: torch.Tensor | None = None,
) -> torch.Tensor:
    """Norm queries and keys, turn them, and write keys and values into their slots.

    Args:
        heads: `[num_tokens, num_heads + 2 * num_kv_heads, head_size]`, contiguous: query heads, key heads, value
            heads. Its queries are changed in place.
        key_cache: `[num_blocks, num_kv_heads, head_size / x, block_size, x]`, written.
        value_cache: `[num_blocks, num_kv_heads, head_size, block_size]`, written.
        slots: `[num_tokens]`, int64; below 0 the token is padding, of which nothing is written.
        norms: of queries and keys, before they are turned.
        turns: `[num_tokens, turned / 2, 2]`, float32, contiguous: cosine and sine of each token's angles; the first
            `turned` elements of a head are turned, at most all.

    Returns:
        The queries, `[num_tokens, num_heads, head_size]`, a view of `heads`.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    sizes = check_paged_cache(key_cache, value_cache)
    num_heads = heads.shape[1] - 2 * sizes.num_kv_heads
    query, key = heads[:, :num_heads], heads[:, num_heads : num_heads + sizes.num_kv_heads]
    _check(heads, key_cache, slots, turns, sizes)
    if norms is not None:
        check_head_norms(norms, query, key)
    if is_byte_cache(key_cache):
        if can_launch(heads, norms):
            launch_heads_to_bytes(heads, key_cache, value_cache, slots, None, turns, norms, sizes)
            return query
    elif can_place(heads, norms, turns):
        _launch(heads, key_cache, value_cache, slots, norms, turns, sizes)
        return query
    if norms is not None:
        for each, normed in zip((query, key), norms.apply(query, key), strict=True):
            each.copy_(normed)
    if turns is not None:
        both = heads[:, : num_heads + sizes.num_kv_heads]
        both.copy_(rotate_heads(both, turns))
    reshape_and_cache(key, heads[:, num_heads + sizes.num_kv_heads :], key_cache, value_cache, slots)
    return query


def _check(
    heads: torch.Tensor,
    key_cache: torch.Tensor,
    slots: torch.Tensor,
    turns: torch.Tensor | None,
    sizes: CacheSizes,
) -> None:
    check_shape("heads", heads, None, None, sizes.head_size)
    if not is_byte_cache(key_cache):
        check_same_type("key_cache", key_cache, heads)
    check_shape("slots", slots, len(heads))
    check_dtype("slots", slots, torch.int64)
    if turns is not None:
        check_shape("turns", turns, len(heads), None, 2)
        check_dtype("turns", turns, torch.float32)
        if 2 * turns.shape[1] > sizes.head_size:
            raise ValueError(f"turns are of {2 * turns.shape[1]} elements, expected at most {sizes.head_size}")
    if heads.shape[1] <= 2 * sizes.num_kv_heads:
        raise ValueError(f"heads has {heads.shape[1]} heads, expected more than {2 * sizes.num_kv_heads}")
    for name, tensor in (("heads", heads), ("slots", slots), ("turns", turns)):
        if tensor is not None and not tensor.is_contiguous():
            raise ValueError(f"{name} is not contiguous")


def _launch(
    heads: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slots: torch.Tensor,
    norms: HeadNorms | None,
    turns: torch.Tensor | None,
    sizes: CacheSizes,
) -> None:
    kernel = get_kernel(NAME, heads.device.index, None, **heads_constants(heads, norms, turns, sizes), BY_SLOT=1)
    args = (
        heads.data_ptr(),
        key_cache.data_ptr(),
        value_cache.data_ptr(),
        slots.data_ptr(),
        0,
        address(turns),
        address(norms.query.weight if norms else None),
        address(norms.key.weight if norms else None),
        address(norms.query.bias if norms else None),
        address(norms.key.bias if norms else None),
        i32(heads.shape[1] - 2 * sizes.num_kv_heads),
        i32(sizes.num_kv_heads),
        i32(0),
        key_cache.stride(0),
        value_cache.stride(0),
        f32(norms.query.eps if norms else 0.0),
        f32(norms.key.eps if norms else 0.0),
        i32(len(heads)),
    )
    # Not beside the kernel before: slots may have been made a moment ago.
    kernel.launch((len(heads), 3), _THREADS, args, stream=stream_of(heads))
