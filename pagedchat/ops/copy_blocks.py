"""Copy whole blocks inside the cache: what copy-on-write comes down to."""

import torch

from pagedchat.ops.checks import check_pairs

BLOCK_DIM = 2
"""Dimension of the cache tensor that counts blocks: `[num_layers, 2, num_blocks, ...]`."""


def copy_blocks(kv_cache: torch.Tensor, src: torch.Tensor, dst: torch.Tensor) -> None:
    """Copy block `src[i]` to block `dst[i]`, all layers, K and V; all reads come before all writes.

    Args:
        kv_cache: `[num_layers, 2, num_blocks, ...]`, written in place.
        src, dst: `[num_pairs]`, int64, on the cache's device; no `dst` twice.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    check_pairs(src, dst)
    kv_cache.index_copy_(BLOCK_DIM, dst, kv_cache.index_select(BLOCK_DIM, src))
