"""How a decode step of a wide model ends that makes no logits."""

import torch

from pagedchat.ops.common.norm import Norm
from pagedchat.ops.sampling.decode_state import DecodeState
from pagedchat.ops.screening.screen import Screen
from pagedchat.ops.screening.screened_argmax import screened_argmax
from pagedchat.ops.screening.screened_draw import screened_draw


class ScreenedEnd:
    """See `ops.screening.screened_argmax` and `screened_draw`.

    Args:
        screen: of the model's head.
        state: the rows of the step.
        sampling: how each row draws, `[num_seqs, ROW_WORDS]`, int32; None: tokens are the most likely ones.
        counts: with `sampling`: of the tokens of rows with penalties, `[., vocab_size]`, int16.
    """

    def __init__(
        self,
        screen: Screen,
        state: DecodeState,
        sampling: torch.Tensor | None = None,
        counts: torch.Tensor | None = None,
    ) -> None:
        self._screen = screen
        self._state = state
        self._sampling, self._counts = sampling, counts

    def __call__(self, rows: torch.Tensor, norm: Norm | None) -> torch.Tensor:
        """The tokens that are chosen are the next ones, and the state moves on.

        Args:
            rows: `[num_seqs, hidden]`, of the last layer.
            norm: what they have still to go through.

        Returns:
            `[num_seqs, 0]`, see `steps.Step`.
        """
        state, screen = self._state, self._screen
        if self._sampling is None:
            screened_argmax(state, rows, screen, norm=norm, overlap=True)
        else:
            screened_draw(state, rows, screen, self._sampling, self._counts, norm=norm, overlap=True)
        return rows.new_empty(len(rows), 0)
