"""The end of a greedy decode step of up to 64 sequences that makes no logits: three launches.

A greedy token needs the highest logit and no other. By a copy of the vocabulary in 8-bit integers, which has half
of its bytes, a step learns what every logit is at most; the few rows that may have the highest one are then
multiplied as they are. The token is the one with the highest logit, to the rounding of the order of sums.
"""

import torch

from pagedchat.jit.launch import get_kernel, i32
from pagedchat.ops.common.launch import can_overlap, element_name, has_warpgroups, stream_of
from pagedchat.ops.common.norm import Norm
from pagedchat.ops.sampling.decode_state import DecodeState, state_addresses
from pagedchat.ops.screening.screen import Screen
from pagedchat.ops.screening.screened import Screened, check_screened, logits_in_torch, screened

_THREADS = 512


def screened_argmax(
    state: DecodeState, rows: torch.Tensor, screen: Screen, *, norm: Norm | None = None, overlap: bool = False
) -> None:
    """Every row's most likely token, the first of equals, is its next one, 0 in padding; the state moves on.

    Args:
        state: written.
        rows: `[num_seqs, hidden]`, float16 or bfloat16, contiguous; of what the head multiplies.
        screen: of the head.
        norm: of the rows, where they are not normed yet.
        overlap: the launches may begin before the kernel before them has ended, which makes the rows.

    Raises:
        ValueError: shapes or types that do not go together, or more rows than are screened.
    """
    check_screened(state, rows, screen, norm)
    if not has_warpgroups(rows):
        likely = logits_in_torch(rows, screen, norm).max(dim=-1).indices.int()
        state.advance(torch.where(state.positions < 0, 0, likely))
        return
    _choose(state, screened(rows, screen, norm, overlap=overlap), overlap and can_overlap(rows.device))


def _choose(state: DecodeState, found: Screened, overlap: bool) -> None:
    rows = found.rows
    num_rows, hidden = rows.shape
    kernel = get_kernel("choose_screened", rows.device.index, ELEMENT=element_name(rows.dtype))
    shared_bytes = rows.itemsize * hidden + 4 * len(found.screen.units)
    kernel.allow_shared(shared_bytes)
    args = (
        *state_addresses(state),
        state.arrivals.data_ptr(),
        *found.addresses(),
        *found.sizes(),
        i32(len(state.history)),
    )
    kernel.launch(num_rows, _THREADS, args, stream=stream_of(rows), shared_bytes=shared_bytes, overlap=overlap)
