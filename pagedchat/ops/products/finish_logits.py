"""What some models do with logits in one launch: a scale and a soft cap, `cap * tanh(x / cap)` (Gemma 2, arXiv
2408.00118). Does not know who has made them.
"""

import torch

from pagedchat.jit.launch import f32, get_kernel
from pagedchat.ops.common.launch import PIECE_BYTES, can_overlap, ceil_div, element_name, on_cuda, stream_of

NAME = "finish_logits"
_THREADS = 256


def finish_logits(logits: torch.Tensor, *, scale: float, cap: float | None, overlap: bool = False) -> None:
    """Change logits in place; nothing happens with a scale of 1 and without a cap.

    Args:
        logits: any shape, contiguous, written.
        scale: of all of them.
        cap: soft cap, once they are scaled.
        overlap: the launch may begin before the kernel before it has ended, which makes them.

    Raises:
        ValueError: they are not contiguous.
    """
    if not logits.is_contiguous():
        raise ValueError("logits is not contiguous")
    if scale == 1 and cap is None:
        return
    if not on_cuda(logits) or logits.data_ptr() % PIECE_BYTES:
        scaled = logits if scale == 1 else logits.mul_(scale)
        if cap is not None:
            scaled.copy_((scaled.float() / cap).tanh_().mul_(cap))
        return
    kernel = get_kernel(NAME, logits.device.index, ELEMENT=element_name(logits.dtype), CAPPED=int(cap is not None))
    kernel.launch(
        ceil_div(logits.numel() * logits.itemsize, _THREADS * PIECE_BYTES),
        _THREADS,
        (logits.data_ptr(), logits.numel(), f32(scale), f32(cap or 0.0)),
        stream=stream_of(logits),
        overlap=overlap and can_overlap(logits.device),
    )
