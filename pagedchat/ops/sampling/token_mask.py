"""Logits of rows in which only some tokens can be chosen: the others become minus infinity, in place.

The masks come from a form that replies are held to (`runtime.structured`), a bit for each token. Where tokens are
drawn, `sample` takes masks as they are, without logits of their own in between.
"""

from typing import NamedTuple

import torch

from pagedchat.jit.launch import get_kernel, i32
from pagedchat.ops.common.checks import check_dtype, check_shape
from pagedchat.ops.common.launch import on_cuda, stream_of

_WORD_BITS = 32
_NUM_THREADS = 1024
"""Of a thread block, as in kernels/sampling/token_mask.cu."""
_TOKENS_OF_BLOCK = 16 * _NUM_THREADS


class TokenMasks(NamedTuple):
    """Which tokens may be chosen in each row, for who reads logits and masks together."""

    rows: torch.Tensor
    """`[num_rows]`, int32: which of the masks a row has; below 0 it has none."""
    bits: torch.Tensor
    """`[num_masks, ceil(vocab_size / 32)]`, int32: as of `mask_tokens`."""

    def check(self, logits: torch.Tensor) -> None:
        """Refuse masks that do not go with these logits, `[num_rows, vocab_size]`.

        Raises:
            ValueError: another shape, type or device.
        """
        check_shape("mask rows", self.rows, len(logits))
        check_shape("mask bits", self.bits, None, -(-logits.shape[1] // _WORD_BITS))
        for name, tensor in (("mask rows", self.rows), ("mask bits", self.bits)):
            check_dtype(name, tensor, torch.int32)
            if not tensor.is_contiguous() or tensor.device != logits.device:
                raise ValueError(f"{name} is on {tensor.device}, expected it on {logits.device} and contiguous")

    def of(self, row: int, logits: torch.Tensor) -> torch.Tensor:
        """In torch: the logits of a row, `[vocab_size]`, with which its mask is reckoned with."""
        mask = int(self.rows[row])
        return (
            logits if mask < 0 else logits.float().masked_fill(_forbidden(self.bits[mask], len(logits)), -torch.inf)
        )


def mask_tokens(logits: torch.Tensor, rows: torch.Tensor, bits: torch.Tensor) -> torch.Tensor:
    """Leave the tokens of some rows that may be chosen. On a GPU nothing waits for the host.

    Args:
        logits: `[num_rows, vocab_size]`, float32, contiguous; written.
        rows: `[num_masked]`, int32: which of them have a mask, each once.
        bits: `[num_masked, ceil(vocab_size / 32)]`, int32: bit `i % 32` of word `i // 32` says whether token `i`
            may be chosen.

    Returns:
        `logits`.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    check_shape("logits", logits, None, None)
    vocab_size = logits.shape[1]
    check_dtype("logits", logits, torch.float32)
    check_shape("rows", rows, None)
    check_shape("bits", bits, len(rows), -(-vocab_size // _WORD_BITS))
    for name, tensor in (("logits", logits), ("rows", rows), ("bits", bits)):
        if not tensor.is_contiguous() or tensor.device != logits.device:
            raise ValueError(f"{name} is on {tensor.device}, expected it on {logits.device} and contiguous")
    check_dtype("rows", rows, torch.int32)
    check_dtype("bits", bits, torch.int32)
    if len(rows) == 0:
        return logits
    if not on_cuda(logits):
        return _in_torch(logits, rows, bits)
    kernel = get_kernel("token_mask", logits.device.index)
    grid = len(rows), -(-vocab_size // _TOKENS_OF_BLOCK)
    args = (logits.data_ptr(), rows.data_ptr(), bits.data_ptr(), i32(vocab_size), i32(bits.shape[1]))
    kernel.launch(grid, _NUM_THREADS, args, stream=stream_of(logits))
    return logits


def _in_torch(logits: torch.Tensor, rows: torch.Tensor, bits: torch.Tensor) -> torch.Tensor:
    for row, words in zip(rows.tolist(), bits, strict=True):
        logits[row].masked_fill_(_forbidden(words, logits.shape[1]), -torch.inf)
    return logits


def _forbidden(words: torch.Tensor, vocab_size: int) -> torch.Tensor:
    """`[vocab_size]`, of a row of bits."""
    places = torch.arange(_WORD_BITS, dtype=torch.int32, device=words.device)
    return (words[:, None] >> places & 1).view(-1)[:vocab_size] == 0
