"""Masks of a batch: for each of its replies that has a form, a bit for each token that it may go on with. Made on
the host, while a GPU computes the logits that they are for. Knows no logits.
"""

from collections.abc import Sequence as Rows
from typing import NamedTuple, cast

import numpy as np
import torch

from pagedchat.engine.sequence import Sequence
from pagedchat.runtime.structured.grammars import Grammar, num_words
from pagedchat.runtime.structured.matchers import Matchers


class Masks(NamedTuple):
    """Of some rows of a batch."""

    rows: list[int]
    """Whose they are."""
    bits: torch.Tensor
    """`[len(rows), num_words]`, int32, on the CPU: bit `i % 32` of word `i // 32` is token `i`."""


class MaskMaker:
    """Makes the masks of batch after batch, and remembers how far it has followed each reply."""

    def __init__(self) -> None:
        self._matchers = Matchers()

    def masks_of(self, sequences: Rows[Sequence]) -> Masks | None:
        """The masks for the next tokens of a batch; None where no reply has a form.

        Raises:
            RequestError: the form of one has become too much for the library.
        """
        rows = [i for i, sequence in enumerate(sequences) if sequence.grammar is not None]
        if not rows:
            return None
        grammars = [cast(Grammar, sequences[row].grammar) for row in rows]
        bits = np.empty((len(rows), num_words(grammars[0].vocab_size)), np.int32)
        for row, grammar, of_row in zip(rows, grammars, bits, strict=True):
            self._matchers.fill(of_row, sequences[row], grammar)
        return Masks(rows, torch.from_numpy(bits))
