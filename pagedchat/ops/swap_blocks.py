"""Move whole blocks between two caches: device to host memory and back."""

import torch

from pagedchat.ops.checks import check_dtype, check_pairs, check_shape
from pagedchat.ops.copy_blocks import BLOCK_DIM


def swap_blocks(source: torch.Tensor, target: torch.Tensor, src: torch.Tensor, dst: torch.Tensor) -> None:
    """Copy block `src[i]` of `source` to block `dst[i]` of `target`, all layers, K and V.

    Args:
        source, target: `[num_layers, 2, num_blocks, ...]`, alike but for device and `num_blocks`.
        src, dst: `[num_pairs]`, int64, on any device; no `dst` twice.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    check_pairs(src, dst)
    check_dtype("target", target, source.dtype)
    check_shape("target", target, *source.shape[:BLOCK_DIM], None, *source.shape[BLOCK_DIM + 1 :])
    blocks = source.index_select(BLOCK_DIM, src.to(source.device)).to(target.device)
    target.index_copy_(BLOCK_DIM, dst.to(target.device), blocks)
