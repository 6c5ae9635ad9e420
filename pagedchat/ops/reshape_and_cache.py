"""Write the keys and values of new tokens into their slots of the paged cache."""

import torch

from pagedchat.ops.checks import check_dtype, check_same_type, check_shape


def reshape_and_cache(
    key: torch.Tensor,
    value: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    slot_mapping: torch.Tensor,
) -> None:
    """`cache[slot // block_size, slot % block_size] = new`, for every new token.

    Args:
        key, value: `[num_tokens, num_kv_heads, head_dim]`, any strides.
        key_cache, value_cache: `[num_blocks, block_size, num_kv_heads, head_dim]`, contiguous; written in place.
        slot_mapping: `[num_tokens]`, int64: `block_id * block_size + block_offset`; no slot twice.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    num_blocks, block_size, num_kv_heads, head_dim = key_cache.shape
    check_shape("key", key, None, num_kv_heads, head_dim)
    check_shape("value", value, key.shape[0], num_kv_heads, head_dim)
    check_shape("value_cache", value_cache, num_blocks, block_size, num_kv_heads, head_dim)
    check_shape("slot_mapping", slot_mapping, key.shape[0])
    check_dtype("slot_mapping", slot_mapping, torch.int64)
    check_same_type("key", key, key_cache)
    slots_shape = (num_blocks * block_size, num_kv_heads, head_dim)
    key_cache.view(slots_shape).index_copy_(0, slot_mapping, key)
    value_cache.view(slots_shape).index_copy_(0, slot_mapping, value)
