"""A decode step whose rows are beams: who goes on is chosen by its logits, and carried out as the next one begins.

It is one work with the step, to be captured as a whole: launches behind a graph and before it took a GPU some 5 us
more, and a host 30. Knows no searches.
"""

import torch

from pagedchat.ops.cache.move_beams import move_beams
from pagedchat.ops.sampling.choose_beams import HEAD_WORDS, BeamState, LikelyTokens, choose_beams
from pagedchat.ops.sampling.decode_state import DecodeState
from pagedchat.ops.sampling.kernels import MAX_BEAMS
from pagedchat.runtime.attention.cuda_backend import CudaAttention
from pagedchat.runtime.graphs.decode.steps import Step
from pagedchat.runtime.step.logprobs import NOTHING


class BeamStep:
    """See `steps.Step`.

    Args:
        step: leaves logits of all rows.
        rows: its rows.
        backend: the cache.
        ranked: `[history_len, num_searches, .]`, uint8, pinned: what is chosen from, see `choose_beams`.
        most: tokens of a row that a search ranks, at most.
    """

    def __init__(
        self, step: Step, rows: DecodeState, backend: CudaAttention, ranked: torch.Tensor, most: int
    ) -> None:
        self._step, self._rows, self._backend, self._ranked = step, rows, backend, ranked
        num_rows, num_searches, device = len(rows.token_ids), ranked.shape[1], backend.device

        def numbers(*shape: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
            return torch.zeros(*shape, dtype=dtype, device=device)

        self._state = BeamState(
            sources=numbers(num_rows).fill_(-1),
            next_tokens=numbers(num_rows),
            rows=numbers(num_searches, MAX_BEAMS),
            sums=numbers(num_searches, MAX_BEAMS, dtype=torch.float64),
            heads=numbers(num_searches, HEAD_WORDS),
            arrivals=numbers(1),
        )
        self._counts = numbers(num_rows).fill_(NOTHING)
        self._likely = LikelyTokens.empty(num_rows, most, device)

    def begin(self, counts: torch.Tensor, rows: torch.Tensor, heads: torch.Tensor, sums: torch.Tensor) -> None:
        """Queue telling it of searches, none of whose beams has been chosen yet.

        Args:
            counts: `[num_rows]`, int32: tokens that are ranked of each row, `NOTHING` of one that is no beam.
            rows, heads, sums: as in `BeamState`, with any shape.
        """
        state = self._state
        state.sources.fill_(-1)
        for to, numbers in ((self._counts, counts), (state.rows, rows), (state.heads, heads), (state.sums, sums)):
            to.copy_(numbers.view(to.shape), non_blocking=True)

    def __call__(self) -> torch.Tensor:
        """See `steps.Step`."""
        state, rows = self._state, self._rows
        move_beams(self._backend.cache, rows, state.sources, state.next_tokens, self._backend.shape.block_size)
        logits = self._step()
        choose_beams(state, logits, self._counts, self._likely, self._ranked, rows.step)
        return logits
