"""Masks of several replies: which tokens each may go on with, made one after another, or by threads where that
takes long. Knows no forms, no sequences and no device.
"""

from collections.abc import Sequence as Rows
from dataclasses import dataclass, field
from functools import cache
from time import perf_counter
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pagedchat.runtime.structured.json_place import JsonPlace
from pagedchat.runtime.structured.lexers import MOST_LEXERS, Lexer

if TYPE_CHECKING:
    from llguidance import LLExecutor, LLMatcher

_ALONE_SECONDS = 2e-3
"""So long masks are made one after another where there are several lexers. To wake threads takes a hundred
microseconds or two each time on virtual machines, which is a hundred simple masks, and they are in the way of
everything else."""


@dataclass(slots=True, eq=False, weakref_slot=True)
class Followed:
    """A reply, and what knows which tokens it may go on with."""

    matcher: "LLMatcher"
    lexer: Lexer
    place: JsonPlace | None = None
    """Where in a JSON text it stands; None where that is of no use."""
    token_ids: list[int] = field(default_factory=list)
    """Of the reply, as far as it is followed; always the same list. The matcher may lack some of them, those that
    make no difference."""

    def take(self, token_ids: list[int]) -> None:
        """Follow the reply for some tokens more; the matcher says whether that was possible."""
        read, place = token_ids, self.place
        if place is not None and not place.read_plain(token_ids):
            read = list(filter(place.read, token_ids))
        if read:
            self.matcher.consume_tokens(read)
        self.token_ids += token_ids


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
        matchers = [each.matcher for each, _ in replies]
        self._takes = [(each.matcher.consume_token, each.token_ids.append) for each, _ in replies]
        self._masks = [matcher.unsafe_compute_mask_ptr for matcher in matchers]
        self._errors = [matcher.is_error for matcher in matchers]
        self._addresses: dict[MaskRows, list[int]] = {}
        """Of the masks, in each memory that they were made in."""
        self._is_parted = len(replies) > 1 and replies[0][0].lexer is not replies[-1][0].lexer

    def make(self, rows: MaskRows, token_ids: Rows[int] | None = None) -> None:
        """Make the masks; `any_failed` tells what became of it.

        Args:
            rows: written.
            token_ids: with which replies go on before, one for each; None: they stay as they are.
        """
        if self._is_parted and MOST_LEXERS > 1:
            self._make_for_a_while(rows, token_ids)
            return
        began = perf_counter()
        if token_ids is not None:
            for (take, keep), token in zip(self._takes, token_ids, strict=True):
                take(token)
                keep(token)
        row_bytes = rows.row_bytes
        for mask, address in zip(self._masks, self._addresses_in(rows), strict=True):
            mask(address, row_bytes)
        if self._masks and not self._is_parted:
            self.replies[0][0].lexer.home.note(perf_counter() - began)

    def any_failed(self) -> bool:
        """Whether one of the replies has become too much for its lexer, or cannot have its token."""
        return True in [is_error() for is_error in self._errors]

    def _make_for_a_while(self, rows: MaskRows, token_ids: Rows[int] | None) -> None:
        """One after another, and then the others in threads."""
        until, at, addresses = perf_counter() + _ALONE_SECONDS, 0, self._addresses_in(rows)
        while at < len(self.replies) and perf_counter() <= until:
            if token_ids is not None:
                take, keep = self._takes[at]
                take(token_ids[at])
                keep(token_ids[at])
            self._masks[at](addresses[at], rows.row_bytes)
            at += 1
        left = self.replies[at:]
        if left:
            if token_ids is not None:
                _take_in_threads(left, token_ids[at:])
            _threads().unsafe_compute_mask_ptr([(followed.matcher, row) for followed, row in left], *rows)

    def _addresses_in(self, rows: MaskRows) -> list[int]:
        if rows not in self._addresses:
            self._addresses[rows] = [rows.address + row * rows.row_bytes for _, row in self.replies]
        return self._addresses[rows]


def _take_in_threads(replies: list[tuple[Followed, int]], token_ids: Rows[int]) -> None:
    going_on = zip(replies, token_ids, strict=True)
    _threads().consume_token_par([(followed.matcher, token) for (followed, _), token in going_on])
    for (followed, _), token in zip(replies, token_ids, strict=True):
        followed.token_ids.append(token)


@cache
def _threads() -> "LLExecutor":
    from llguidance import LLExecutor  # noqa: PLC0415 - an extra, which is there where there is a matcher

    return LLExecutor(MOST_LEXERS)
