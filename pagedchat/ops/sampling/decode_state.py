"""What decode steps keep on the device from one to the next, so that the host need not tell them their own tokens.

A step reads the token ids, positions and lengths, and leaves those of the next step in their place. The tokens of
the last steps also go to a history, which may be pinned host memory: there the host reads them.
"""

from dataclasses import dataclass

import torch

from pagedchat.jit.launch import get_kernel, i32
from pagedchat.ops.common.checks import check_dtype, check_same_type, check_shape
from pagedchat.ops.common.launch import can_overlap, ceil_div, element_name, on_cuda, stream_of

NAME = "decode_state"
_THREADS = 128
_ROW_THREADS = 512
"""Of a thread block of `argmax_rows` and `most_likely_tokens`, as in kernels/sampling/decode_state.cu."""


@dataclass(frozen=True, slots=True)
class DecodeState:
    """One row for each sequence, padding included; int32 and contiguous."""

    token_ids: torch.Tensor
    """`[num_seqs]`: what the next step computes."""
    positions: torch.Tensor
    """`[num_seqs]`: of those tokens; below 0 the row is padding."""
    seq_lens: torch.Tensor
    """`[num_seqs]`: those tokens included; 0 in padding."""
    block_tables: torch.Tensor
    """`[num_seqs, max_blocks_per_seq]`."""
    step: torch.Tensor
    """`[1]`: how many steps there were, counted on by each."""
    history: torch.Tensor
    """`[history_len, num_seqs]`: row `step % history_len` gets the tokens that a step chooses."""
    arrivals: torch.Tensor
    """`[1]`: zero between launches."""

    def check(self) -> None:
        """Refuse rows that do not go together.

        Raises:
            ValueError: another shape or type.
        """
        num_seqs = len(self.token_ids)
        for name in ("token_ids", "positions", "seq_lens"):
            check_shape(name, getattr(self, name), num_seqs)
        check_shape("block_tables", self.block_tables, num_seqs, None)
        check_shape("history", self.history, None, num_seqs)
        for name in ("token_ids", "positions", "seq_lens", "block_tables", "step", "history", "arrivals"):
            check_dtype(name, getattr(self, name), torch.int32)

    def advance(self, token_ids: torch.Tensor) -> None:
        """In torch: `token_ids` `[num_seqs]` are the tokens of the step after those that are here."""
        self.history[int(self.step) % len(self.history)] = token_ids
        self.step.add_(1)
        self.token_ids.copy_(token_ids)
        live = (self.positions >= 0).int()
        self.positions.add_(live)
        self.seq_lens.add_(live)

    def replace(self, token_ids: torch.Tensor) -> None:
        """In torch: the state was just moved on, and `token_ids` `[num_seqs]` are what it should have been by."""
        self.history[(int(self.step) - 1) % len(self.history)] = token_ids
        self.token_ids.copy_(token_ids)


def slots_of(positions: torch.Tensor, block_tables: torch.Tensor, block_size: int) -> torch.Tensor:
    """The slot of every sequence's token in this step.

    Args:
        positions: `[num_seqs]`, int32; below 0: padding.
        block_tables: `[num_seqs, max_blocks_per_seq]`, int32, contiguous.
        block_size: token slots in a block.

    Returns:
        `[num_seqs]`, int64; -1 for padding.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    check_shape("positions", positions, None)
    check_shape("block_tables", block_tables, len(positions), None)
    check_dtype("positions", positions, torch.int32)
    check_same_type("block_tables", block_tables, positions)
    slots = torch.empty(positions.shape, dtype=torch.int64, device=positions.device)
    if not on_cuda(positions):
        place = positions.clamp(min=0).long()
        blocks = block_tables.long().gather(1, place[:, None] // block_size)[:, 0]
        return slots.copy_(torch.where(positions < 0, -1, blocks * block_size + place % block_size))
    # One variant does: the element type is that of `argmax_rows` in the same file.
    kernel = get_kernel(NAME, positions.device.index, entry="find_slots", ELEMENT="float32")
    args = (
        slots.data_ptr(),
        positions.data_ptr(),
        block_tables.data_ptr(),
        i32(len(positions)),
        i32(block_tables.shape[1]),
        i32(block_size),
    )
    kernel.launch(ceil_div(len(positions), _THREADS), _THREADS, args, stream=stream_of(positions))
    return slots


def advance_by_argmax(state: DecodeState, logits: torch.Tensor, *, overlap: bool = False) -> None:
    """Every row's most likely token, the first of equals, is its next one; the state moves on.

    Args:
        state: written.
        logits: `[num_seqs, vocab_size]`, float16, bfloat16 or float32, contiguous.
        overlap: the launch may begin before the kernel before it has ended, which makes the logits.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    state.check()
    check_shape("logits", logits, len(state.token_ids), None)
    if not logits.is_contiguous():
        raise ValueError("logits is not contiguous")
    if not on_cuda(logits):
        state.advance(logits.max(dim=-1).indices.int())
        return
    kernel = get_kernel(NAME, logits.device.index, entry="argmax_rows", ELEMENT=element_name(logits.dtype))
    args = (*state_addresses(state), state.arrivals.data_ptr(), logits.data_ptr())
    sizes = (i32(logits.shape[1]), i32(len(state.history)))
    overlap = overlap and can_overlap(logits.device)
    kernel.launch(len(logits), _ROW_THREADS, (*args, *sizes), stream=stream_of(logits), overlap=overlap)


def find_most_likely(tokens: torch.Tensor, logits: torch.Tensor) -> None:
    """Every row's most likely token, the first of equals, and nothing else: no state is there, or none moves on.

    Args:
        tokens: `[num_seqs]`, int32, contiguous, written; may be pinned host memory.
        logits: `[num_seqs, vocab_size]`, float16, bfloat16 or float32, contiguous.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    check_shape("logits", logits, None, None)
    check_shape("tokens", tokens, len(logits))
    check_dtype("tokens", tokens, torch.int32)
    if not logits.is_contiguous():
        raise ValueError("logits is not contiguous")
    if not on_cuda(logits):
        tokens.copy_(logits.max(dim=-1).indices)
        return
    kernel = get_kernel(NAME, logits.device.index, entry="most_likely_tokens", ELEMENT=element_name(logits.dtype))
    args = (tokens.data_ptr(), logits.data_ptr(), i32(logits.shape[1]))
    kernel.launch(len(logits), _ROW_THREADS, args, stream=stream_of(logits))


def state_addresses(state: DecodeState) -> tuple[int, int, int, int, int]:
    """What the kernels that move the state on take first."""
    return (
        state.token_ids.data_ptr(),
        state.positions.data_ptr(),
        state.seq_lens.data_ptr(),
        state.history.data_ptr(),
        state.step.data_ptr(),
    )
