"""The end of a decode step of up to 64 sequences that draws tokens from few and makes no logits: four launches.

What top-k leaves needs the highest logits and no others. As for the most likely token (`screened_argmax`), a step
learns from a copy of the vocabulary what every logit is at most, and multiplies the rows that may be among the
`top_k` highest ones as they are: some hundred of 150,000. From these `sample_listed` draws, with all that a
row may ask for; so the token is the one that it would draw from all logits, to the rounding of the order of sums.
"""

import torch

from pagedchat.jit.launch import get_kernel, i32
from pagedchat.ops.common.checks import check_dtype, check_shape
from pagedchat.ops.common.launch import address, can_overlap, element_name, has_warpgroups, stream_of
from pagedchat.ops.common.norm import Norm
from pagedchat.ops.sampling.decode_state import DecodeState, state_addresses
from pagedchat.ops.sampling.sample import draw_next
from pagedchat.ops.sampling.sample_listed import Listed, sample_listed
from pagedchat.ops.sampling.sample_rows import ROW_WORDS, SampleRow, pack_rows
from pagedchat.ops.screening.plan import UNIT_ROWS, list_cluster
from pagedchat.ops.screening.screen import Screen
from pagedchat.ops.screening.screened import Screened, check_screened, logits_in_torch, screened

_THREADS = 512
_STAYS = pack_rows([SampleRow(stays=True)])


def screened_draw(
    state: DecodeState,
    rows: torch.Tensor,
    screen: Screen,
    sampling: torch.Tensor,
    counts: torch.Tensor | None = None,
    *,
    norm: Norm | None = None,
    overlap: bool = False,
) -> None:
    """Draw every row's next token, 0 in padding and where a token is to stay, and count it; the state moves on.

    Args:
        state: written.
        rows: `[num_seqs, hidden]`, float16 or bfloat16, contiguous; of what the head multiplies.
        screen: of the head.
        sampling: `[num_seqs, ROW_WORDS]`, int32: `pack_rows` of how each row draws. Correct whatever they are but
            for penalties that make a token more likely; quick where top-k leaves few, or the most likely is taken.
        counts: as of `sample`.
        norm: of the rows, where they are not normed yet.
        overlap: the launches may begin before the kernel before them has ended, which makes the rows.

    Raises:
        ValueError: shapes or types that do not go together, or more rows than are screened.
    """
    check_screened(state, rows, screen, norm)
    check_shape("sampling", sampling, len(rows), ROW_WORDS)
    check_dtype("sampling", sampling, torch.int32)
    if counts is not None:
        check_shape("counts", counts, None, len(screen.head))
        check_dtype("counts", counts, torch.int16)
    if not has_warpgroups(rows):
        _in_torch(state, logits_in_torch(rows, screen, norm), sampling, counts)
        return
    overlap = overlap and can_overlap(rows.device)
    found = screened(rows, screen, norm, overlap=overlap)
    listed = Listed.empty(len(rows), len(screen.units) * UNIT_ROWS, rows.device)
    _list(state, found, sampling, counts, listed, overlap)
    sample_listed(state, listed, sampling, counts, overlap=overlap)


def _in_torch(
    state: DecodeState,
    logits: torch.Tensor,
    sampling: torch.Tensor,
    counts: torch.Tensor | None,
) -> None:
    is_padding = (state.positions < 0)[:, None]  # of which nothing is known, not how it is drawn
    state.advance(torch.zeros_like(state.token_ids))
    draw_next(state, logits, torch.where(is_padding, _STAYS.to(sampling.device), sampling), counts)


def _list(
    state: DecodeState,
    found: Screened,
    sampling: torch.Tensor,
    counts: torch.Tensor | None,
    listed: Listed,
    overlap: bool,
) -> None:
    """Queue listing what each row is drawn from: tokens, logits, and how many they are; the state moves on."""
    rows = found.rows
    num_rows, hidden = rows.shape
    cluster, num_units = list_cluster(num_rows), len(found.screen.units)
    kernel = get_kernel("list_screened", rows.device.index, ELEMENT=element_name(rows.dtype), CLUSTER=cluster)
    shared_bytes = rows.itemsize * hidden + 8 * num_units
    kernel.allow_shared(shared_bytes)
    args = (
        *(tensor.data_ptr() for tensor in listed),
        *state_addresses(state),
        state.arrivals.data_ptr(),
        sampling.data_ptr(),
        address(counts),
        *found.addresses(),
        *found.sizes(),
        i32(len(state.history)),
        i32(listed.logits.shape[1]),
    )
    grid = cluster, num_rows
    kernel.launch(grid, _THREADS, args, stream=stream_of(rows), shared_bytes=shared_bytes, overlap=overlap)
