"""What every op of sampling asks of the logits that it is given. Knows no op."""

import torch

from pagedchat.ops.common.checks import check_shape
from pagedchat.ops.common.launch import element_name
from pagedchat.ops.sampling.kernels import MAX_VOCAB_SIZE


def check_logits(logits: torch.Tensor) -> None:
    """Whether kernels can read them: rows of numbers that lie together.

    Args:
        logits: `[num_rows, vocab_size]`, float16, bfloat16 or float32, rows contiguous.

    Raises:
        ValueError: they are not that, or have too large a vocabulary.
    """
    check_shape("logits", logits, None, None)
    vocab_size = logits.shape[1]
    if vocab_size > MAX_VOCAB_SIZE:
        raise ValueError(f"logits has {vocab_size} tokens to a row, expected at most {MAX_VOCAB_SIZE}")
    if logits.stride(1) != 1 and vocab_size > 1:
        raise ValueError(f"logits has stride {logits.stride(1)} between tokens, expected 1")
    element_name(logits.dtype)
