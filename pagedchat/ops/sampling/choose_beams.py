"""A step of beam searches: the most likely tokens of their beams, which continuations are the best, who goes on,
and in whose place.

Sums are float64 and added as Python adds them, so that host and device come to the same ones. In torch all of it
is done on the host, for tests.
"""

from dataclasses import dataclass
from typing import Any, NamedTuple, Self

import numpy as np
import torch

from pagedchat.jit.launch import i32
from pagedchat.ops.common.checks import check_dtype, check_shape
from pagedchat.ops.common.launch import on_cuda, stream_of
from pagedchat.ops.sampling.kernels import MAX_BEAMS, MAX_LIKELY
from pagedchat.ops.sampling.logits import check_logits
from pagedchat.ops.sampling.top_logprobs import likeliest, shared_rows

HEAD_WORDS = 4 + MAX_LIKELY
"""Of a search: beams, choices, tokens that end a beam and their number."""
RANKED = np.dtype([("sum", "<f8"), ("beam", "<i4"), ("token_id", "<i4")])
"""A continuation: the sum of its log-probabilities, its beam's place in the order before, its token."""


@dataclass(frozen=True, slots=True)
class BeamState:
    """What is known of searches, whose beams are rows of a step."""

    sources: torch.Tensor
    """`[num_rows]`, int32: which row's beam goes on in this row; below 0 the row is no beam."""
    next_tokens: torch.Tensor
    """`[num_rows]`, int32: with which token."""
    rows: torch.Tensor
    """`[num_searches, MAX_BEAMS]`, int32: of the beams, the best first."""
    sums: torch.Tensor
    """`[num_searches, MAX_BEAMS]`, float64: of their log-probabilities."""
    heads: torch.Tensor
    """`[num_searches, HEAD_WORDS]`, int32; see `pack_head`."""
    arrivals: torch.Tensor
    """`[1]`, int32: zero between steps."""


class LikelyTokens(NamedTuple):
    """Of each row the most likely tokens, as many as it wants; what follows is left as it was."""

    token_ids: torch.Tensor
    """`[num_rows, most]`, int32."""
    logprobs: torch.Tensor
    """`[num_rows, most]`, float32."""

    @classmethod
    def empty(cls, num_rows: int, most: int, device: torch.device) -> Self:
        """Room for so many rows of at most so many tokens."""
        numbers = torch.zeros(num_rows, most, dtype=torch.int32, device=device)
        return cls(numbers, torch.zeros_like(numbers, dtype=torch.float32))


def pack_head(width: int, num_choices: int, stop_token_ids: "list[int]") -> list[int]:
    """What a search is like: `num_choices` continuations are ranked, `width` of those that do not end go on."""
    return [width, num_choices, len(stop_token_ids), 0, *stop_token_ids] + [0] * (MAX_LIKELY - len(stop_token_ids))


def choose_beams(
    state: BeamState,
    logits: torch.Tensor,
    counts: torch.Tensor,
    likely: LikelyTokens,
    ranked: torch.Tensor,
    step: torch.Tensor,
) -> None:
    """A step of every search. On a GPU one launch, and nothing waits for the host.

    Args:
        state: `sources`, `next_tokens`, `rows` and `sums` are those of the next beams then.
        logits: `[num_rows, vocab_size]`, float16, bfloat16 or float32, rows contiguous. No NaN.
        counts: `[num_rows]`, int32: of a beam's row how many tokens its search ranks, no more than there are or
            than `likely` has room for; below 0 the row is no beam.
        likely: written, of the beams' rows.
        ranked: `[history_len, num_searches, MAX_LIKELY * RANKED.itemsize]`, uint8, written where the step is in the
            history; contiguous from the second dimension on, and it may be pinned host memory.
        step: `[1]`, int32: one more than the number of the step that `logits` are of, as `DecodeState` has it then.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    _check(state, logits, counts, likely, ranked, step)
    history_len = len(ranked)
    if not on_cuda(state.rows):
        for row, count in enumerate(counts.tolist()):
            if count >= 0:
                likely.token_ids[row, :count], likely.logprobs[row, :count] = likeliest(logits[row], count)
        of_step = ranked[(int(step) - 1) % history_len].numpy().view(RANKED)
        for search in range(len(state.rows)):
            _choose(state, search, likely, of_step[search])
        return
    kernel, num_blocks, num_threads = shared_rows("choose_beams", logits)
    args = (
        ranked.data_ptr(),
        state.sources.data_ptr(),
        state.next_tokens.data_ptr(),
        state.rows.data_ptr(),
        state.sums.data_ptr(),
        state.arrivals.data_ptr(),
        likely.token_ids.data_ptr(),
        likely.logprobs.data_ptr(),
        state.heads.data_ptr(),
        logits.data_ptr(),
        counts.data_ptr(),
        step.data_ptr(),
        i32(logits.shape[1]),
        logits.stride(0),
        i32(likely.token_ids.shape[1]),
        i32(len(state.rows)),
        i32(history_len),
        i32(ranked.stride(0) // RANKED.itemsize),
    )
    kernel.launch(num_blocks, num_threads, args, stream=stream_of(logits))


def _choose(state: BeamState, search: int, likely: LikelyTokens, ranked: "np.ndarray[Any, Any]") -> None:
    width, num_choices, num_stops = state.heads[search, :3].tolist()
    stops = state.heads[search, 4 : 4 + num_stops].tolist()
    rows, sums = state.rows[search, :width].tolist(), state.sums[search, :width].tolist()
    found = [
        (-(sums[beam] + logprob), beam, token)
        for beam, row in enumerate(rows)
        for token, logprob in zip(
            likely.token_ids[row, :num_choices].tolist(),
            likely.logprobs[row, :num_choices].tolist(),
            strict=True,
        )
    ]
    best = [(-cost, beam, token) for cost, beam, token in sorted(found, key=lambda each: each[:2])[:num_choices]]
    ranked[:num_choices] = best
    going_on = [each for each in best if each[2] not in stops][:width]
    in_use = {beam for _, beam, _ in going_on}
    free, stayed = iter([row for beam, row in enumerate(rows) if beam not in in_use]), set[int]()
    for rank, (total, beam, token) in enumerate(going_on):
        row = next(free) if beam in stayed else rows[beam]
        stayed.add(beam)
        state.sources[row], state.next_tokens[row] = rows[beam], token
        state.rows[search, rank], state.sums[search, rank] = row, total


def _check(
    state: BeamState,
    logits: torch.Tensor,
    counts: torch.Tensor,
    likely: LikelyTokens,
    ranked: torch.Tensor,
    step: torch.Tensor,
) -> None:
    check_logits(logits)
    num_searches, (num_rows, most) = len(state.rows), likely.token_ids.shape
    check_shape("logits", logits, num_rows, None)
    check_shape("counts", counts, num_rows)
    check_dtype("counts", counts, torch.int32)
    check_shape("sources", state.sources, num_rows)
    check_shape("next_tokens", state.next_tokens, num_rows)
    check_shape("rows", state.rows, num_searches, MAX_BEAMS)
    check_shape("sums", state.sums, num_searches, MAX_BEAMS)
    check_shape("heads", state.heads, num_searches, HEAD_WORDS)
    check_shape("ranked", ranked, len(ranked), num_searches, MAX_LIKELY * RANKED.itemsize)
    check_shape("step", step, 1)
    check_dtype("step", step, torch.int32)
    check_shape("logprobs", likely.logprobs, num_rows, most)
    check_shape("arrivals", state.arrivals, 1)
    for name in ("sources", "next_tokens", "rows", "heads", "arrivals"):
        check_dtype(name, getattr(state, name), torch.int32)
    check_dtype("sums", state.sums, torch.float64)
    check_dtype("ranked", ranked, torch.uint8)
