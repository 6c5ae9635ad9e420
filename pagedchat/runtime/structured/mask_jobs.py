"""Masks of several replies: which tokens each may go on with, made one after another, or by threads where that
takes long. Knows no forms, no sequences and no device.
"""

from collections.abc import Sequence as Rows
from dataclasses import dataclass, field
from functools import cache
from itertools import repeat
from math import inf
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pagedchat.runtime.structured.lexers import MOST_LEXERS, Lexer

if TYPE_CHECKING:
    from llguidance import LLExecutor, LLMatcher

_ALONE_SECONDS = 500e-6
"""So long masks are made one after another where there are several lexers. To wake threads takes a hundred
microseconds or two each time, which is a hundred simple masks."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class Followed:
    """A reply, and what knows which tokens it may go on with."""

    matcher: "LLMatcher"
    lexer: Lexer
    token_ids: list[int] = field(default_factory=list)
    """Of the reply, as far as the matcher has them; always the same list."""


class MaskRows(NamedTuple):
    """Memory of masks: bit `i % 32` of word `i // 32` of a row is token `i`."""

    address: int
    row_bytes: int
    num_rows: int

    @classmethod
    def of(cls, masks: NDArray[np.int32]) -> "MaskRows":
        """`[num_rows, num_words(vocab_size)]`, contiguous."""
        return cls(masks.ctypes.data, masks.shape[1] * masks.itemsize, len(masks))


class MaskJobs:
    """Those of replies that go on together, from step to step.

    Args:
        replies: and which row of the masks each has. Those of one lexer lie side by side, so that threads do not
            wait for it.
    """

    def __init__(self, replies: list[tuple[Followed, int]]) -> None:
        self.replies = replies
        self._calls = [
            (each.matcher.consume_token, each.token_ids.append, each.matcher.unsafe_compute_mask_ptr, row)
            for each, row in replies
        ]
        self._errors = [each.matcher.is_error for each, _ in replies]
        self._is_parted = len(replies) > 1 and replies[0][0].lexer is not replies[-1][0].lexer

    def make(self, rows: MaskRows, token_ids: Rows[int] | None = None) -> None:
        """Make the masks; `any_failed` tells what became of it.

        Args:
            rows: written.
            token_ids: with which replies go on before, one for each; None: they stay as they are.
        """
        num_made = self._make_alone(rows, token_ids)
        if num_made < len(self.replies):
            left = self.replies[num_made:]
            if token_ids is not None:
                _take_in_threads(left, token_ids[num_made:])
            _threads().unsafe_compute_mask_ptr([(followed.matcher, row) for followed, row in left], *rows)

    def any_failed(self) -> bool:
        """Whether one of the replies has become too much for its lexer, or cannot have its token."""
        return True in [is_error() for is_error in self._errors]

    def _make_alone(self, rows: MaskRows, token_ids: Rows[int] | None) -> int:
        """Make the first ones, all of them as a rule; how many."""
        address, row_bytes, _ = rows
        began = perf_counter()
        until = began + _ALONE_SECONDS if self._is_parted and MOST_LEXERS > 1 else inf
        tokens = repeat(None) if token_ids is None else token_ids
        for at, ((take, keep, mask, row), token) in enumerate(zip(self._calls, tokens, strict=False)):
            if until < inf and perf_counter() > until:
                return at
            if token is not None:
                take(token)
                keep(token)
            mask(address + row * row_bytes, row_bytes)
        if self._calls and not self._is_parted:
            self.replies[0][0].lexer.home.note(perf_counter() - began)
        return len(self._calls)


def _take_in_threads(replies: list[tuple[Followed, int]], token_ids: Rows[int]) -> None:
    going_on = zip(replies, token_ids, strict=True)
    _threads().consume_token_par([(followed.matcher, token) for (followed, _), token in going_on])
    for (followed, _), token in zip(replies, token_ids, strict=True):
        followed.token_ids.append(token)


@cache
def _threads() -> "LLExecutor":
    from llguidance import LLExecutor  # noqa: PLC0415 - an extra, which is there where there is a matcher

    return LLExecutor(MOST_LEXERS)
