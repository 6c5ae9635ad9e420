"""Logits of which only some tokens can be chosen: the others become minus infinity."""

import torch

from pagedchat.ops.common.checks import check_dtype, check_shape

_WORD_BITS = 32


def mask_tokens(logits: torch.Tensor, rows: list[int], bits: torch.Tensor) -> torch.Tensor:
    """A copy of some logits, masked.

    Args:
        logits: `[num_rows, vocab_size]`, float16, bfloat16 or float32; not changed.
        rows: which of them have a mask.
        bits: `[len(rows), ceil(vocab_size / 32)]`, int32, where the logits are: bit `i % 32` of word `i // 32` says
            whether token `i` can be chosen.

    Returns:
        `[num_rows, vocab_size]`, of the logits' type.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    vocab_size = logits.shape[1]
    check_shape("bits", bits, len(rows), -(-vocab_size // _WORD_BITS))
    check_dtype("bits", bits, torch.int32)
    places = torch.arange(_WORD_BITS, dtype=torch.int32, device=bits.device)
    forbidden = (bits[:, :, None] >> places & 1).view(len(rows), -1)[:, :vocab_size] == 0
    masked = logits.clone()
    masked[rows] = masked[rows].masked_fill_(forbidden, float("-inf"))
    return masked
