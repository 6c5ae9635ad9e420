"""The work of one decode step over the rows of a `DecodeState`: what is captured. Waits for nothing.

`ModuleStep` serves any model and any number of sequences; `library_step` and `fused_step` have the quicker ones of
the models that `model_tensors` knows.
"""

from collections.abc import Callable

import torch

from pagedchat.ops.sampling.decode_state import DecodeState, advance_by_argmax
from pagedchat.ops.sampling.sample import draw_next
from pagedchat.runtime.graphs.decode.attention import DecodeAttention

Step = Callable[[], torch.Tensor]
"""Computes one token of every row and moves the state on; returns the logits, `[num_seqs, vocab_size]`, or
`[num_seqs, 0]` if it has chosen tokens without them."""


class ModuleStep:
    """The forward pass of a model's own modules.

    Args:
        model: a `NativeModel`, or one of transformers as if it were one.
        attention: its rows.
        state: the same rows.
    """

    def __init__(self, model: torch.nn.Module, attention: DecodeAttention, state: DecodeState) -> None:
        self._model = model
        self._attention = attention
        self._state = state
        self._rows = torch.arange(len(state.token_ids), device=state.token_ids.device)

    def __call__(self) -> torch.Tensor:
        """See `Step`."""
        state = self._state
        self._attention.begin()
        positions = state.positions.clamp(min=0)
        logits: torch.Tensor = self._model(state.token_ids, positions, self._attention, self._rows)
        logits = logits.contiguous()
        advance_by_argmax(state, logits)
        return logits


class DrawnStep:
    """Another step, with tokens drawn instead of the most likely ones, and counted.

    Args:
        step: makes the logits.
        state: the rows.
        sampling: how each row draws, `[num_seqs, ROW_WORDS]`, int32.
        counts: of the tokens of rows with penalties, `[., vocab_size]`, int16.
    """

    def __init__(self, step: Step, state: DecodeState, sampling: torch.Tensor, counts: torch.Tensor) -> None:
        self._step = step
        self._state = state
        self._sampling, self._counts = sampling, counts

    def __call__(self) -> torch.Tensor:
        """See `Step`."""
        logits = self._step()
        draw_next(self._state, logits, self._sampling, self._counts)
        return logits
