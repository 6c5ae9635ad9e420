"""How a greedy decode step of a wide model ends that makes no logits."""

import torch

from pagedchat.ops.common.norm import Norm
from pagedchat.ops.sampling.decode_state import DecodeState
from pagedchat.ops.screening.screen import Screen
from pagedchat.ops.screening.screened_argmax import screened_argmax


class ScreenedEnd:
    """See `ops.screening.screened_argmax`.

    Args:
        screen: of the model's head.
        state: the rows of the step.
    """

    def __init__(self, screen: Screen, state: DecodeState) -> None:
        self._screen = screen
        self._state = state

    def __call__(self, rows: torch.Tensor, norm: Norm | None) -> torch.Tensor:
        """The most likely tokens are the next ones, and the state moves on.

        Args:
            rows: `[num_seqs, hidden]`, of the last layer.
            norm: what they have still to go through.

        Returns:
            `[num_seqs, 0]`, see `steps.Step`.
        """
        screened_argmax(self._state, rows, self._screen, norm=norm, overlap=True)
        return rows.new_empty(len(rows), 0)
