"""Move whole blocks between two caches: device to host memory and back."""

import torch

from pagedchat.jit.launch import get_kernel, i32
from pagedchat.ops.cache.copy_blocks import BLOCK_DIM, has_whole_pages, page_rows
from pagedchat.ops.common.checks import check_dtype, check_pairs, check_shape
from pagedchat.ops.common.launch import across_link, stream_of

_THREADS = 256
_THREAD_BLOCKS = 16
"""Eight fill a PCIe 5 link with 16 lanes on an H200; the other multiprocessors stay free."""


def swap_blocks(source: torch.Tensor, target: torch.Tensor, src: torch.Tensor, dst: torch.Tensor) -> None:
    """Copy block `src[i]` of `source` to block `dst[i]` of `target`, all layers, K and V.

    Between a GPU and pinned host memory this is one launch on the current stream, and the host does not wait.
    A slice of both caches swaps some of the layers.

    Args:
        source, target: `[num_layers, 2, num_blocks, ...]`, alike but for device and `num_blocks`.
        src, dst: `[num_pairs]`, int64, on any device (on the GPU if the launch is to be captured in a graph);
            no `dst` twice.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    check_pairs(src, dst)
    check_dtype("target", target, source.dtype)
    check_shape("target", target, *source.shape[:BLOCK_DIM], None, *source.shape[BLOCK_DIM + 1 :])
    if across_link(source, target) and has_whole_pages(source) and has_whole_pages(target):
        _launch(source, target, src, dst)
    else:
        blocks = source.index_select(BLOCK_DIM, src.to(source.device)).to(target.device)
        target.index_copy_(BLOCK_DIM, dst.to(target.device), blocks)


def _launch(source: torch.Tensor, target: torch.Tensor, src: torch.Tensor, dst: torch.Tensor) -> None:
    device = source.device if source.is_cuda else target.device
    src, dst = (ids.to(device, non_blocking=True).contiguous() for ids in (src, dst))
    rows = page_rows(source)
    kernel = get_kernel("swap_blocks", device.index)
    kernel.launch(
        _THREAD_BLOCKS,
        _THREADS,
        (
            target.data_ptr(),
            source.data_ptr(),
            dst.data_ptr(),
            src.data_ptr(),
            i32(source.shape[0] * source.shape[1]),
            i32(src.shape[0]),
            i32(rows),
            target.shape[BLOCK_DIM] * rows,
            source.shape[BLOCK_DIM] * rows,
        ),
        stream=stream_of(src),
    )
