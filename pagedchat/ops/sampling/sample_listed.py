"""The next token of each row that is a list of tokens with their logits: `sample` where few tokens matter."""

from typing import NamedTuple

import torch

from pagedchat.jit.launch import get_kernel, i32
from pagedchat.ops.common.checks import check_dtype, check_shape
from pagedchat.ops.common.launch import address, can_overlap, element_name, on_cuda, stream_of
from pagedchat.ops.sampling.decode_state import DecodeState
from pagedchat.ops.sampling.kernels import LISTED_SHAPE
from pagedchat.ops.sampling.sample_rows import ROW_WORDS, unpack_rows
from pagedchat.ops.sampling.sample_torch import count_token, sample_row


class Listed(NamedTuple):
    """What each row of a batch is drawn from."""

    token_ids: torch.Tensor
    """`[num_rows, room]`, int32: those that may be drawn, in the order of the vocabulary."""
    logits: torch.Tensor
    """`[num_rows, room]`, float32: theirs, penalised."""
    counts: torch.Tensor
    """`[num_rows]`, int32: how many they are; 0 in padding."""

    @classmethod
    def empty(cls, num_rows: int, room: int, device: torch.device) -> "Listed":
        """To be written."""
        return cls(
            torch.empty(num_rows, room, dtype=torch.int32, device=device),
            torch.empty(num_rows, room, dtype=torch.float32, device=device),
            torch.empty(num_rows, dtype=torch.int32, device=device),
        )


def sample_listed(
    state: DecodeState,
    listed: Listed,
    sampling: torch.Tensor,
    counts: torch.Tensor | None = None,
    *,
    overlap: bool = False,
) -> None:
    """Draw the tokens by which a state should have been moved on, in place of those by which it just was, and count
    them. Rows of which nothing is listed keep theirs, as those that stay do.

    Args:
        state: its token ids and its history are written.
        listed: tokens, all of those that top-k and all else of a row leaves among them.
        sampling: `[num_rows, ROW_WORDS]`, int32: `pack_rows` of how each row draws.
        counts: as of `sample`, of all tokens of the vocabulary.
        overlap: the launch may begin before the kernel before it has ended, which makes the lists.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    state.check()
    num_rows = len(state.token_ids)
    for name, tensor, dtype in (
        ("listed.token_ids", listed.token_ids, torch.int32),
        ("listed.logits", listed.logits, torch.float32),
    ):
        check_shape(name, tensor, num_rows, listed.token_ids.shape[1])
        check_dtype(name, tensor, dtype)
    check_shape("listed.counts", listed.counts, num_rows)
    check_shape("sampling", sampling, num_rows, ROW_WORDS)
    check_dtype("sampling", sampling, torch.int32)
    if counts is not None:
        check_shape("counts", counts, None, None)
        check_dtype("counts", counts, torch.int16)
    if on_cuda(listed.logits):
        _launch(state, listed, sampling, counts, overlap and can_overlap(listed.logits.device))
    else:
        _in_torch(state, listed, sampling, counts)


def _launch(
    state: DecodeState, listed: Listed, sampling: torch.Tensor, counts: torch.Tensor | None, overlap: bool
) -> None:
    logits = listed.logits
    cluster, num_threads = LISTED_SHAPE
    kernel = get_kernel(
        "sample_listed",
        logits.device.index,
        ELEMENT=element_name(logits.dtype),
        CLUSTER=cluster,
        NUM_THREADS=num_threads,
    )
    args = (
        state.token_ids.data_ptr(),
        state.history.data_ptr(),
        logits.data_ptr(),
        listed.token_ids.data_ptr(),
        listed.counts.data_ptr(),
        sampling.data_ptr(),
        state.positions.data_ptr(),
        address(counts),
        state.step.data_ptr(),
        i32(logits.shape[1]),
        i32(0 if counts is None else counts.shape[1]),
        i32(len(state.history)),
    )
    grid = cluster, len(logits)
    kernel.launch(grid, num_threads, args, stream=stream_of(logits), overlap=overlap)


def _in_torch(state: DecodeState, listed: Listed, sampling: torch.Tensor, counts: torch.Tensor | None) -> None:
    tokens = state.token_ids.clone()
    positions, num_listed = state.positions.tolist(), listed.counts.tolist()
    for i, (row, position, count) in enumerate(zip(unpack_rows(sampling), positions, num_listed, strict=True)):
        if count == 0 or row.top_k < 0:
            continue
        number = sample_row(listed.logits[i, :count], row, position & 0xFFFFFFFF, None)
        tokens[i] = listed.token_ids[i, number]
        if counts is not None and row.counts_row >= 0:
            count_token(counts[row.counts_row], int(tokens[i]))
    state.replace(tokens)
