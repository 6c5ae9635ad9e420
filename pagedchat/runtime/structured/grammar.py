"""One form that replies are held to, compiled for one vocabulary, and how far it has followed each of them.

Knows sequences by their tokens alone, so forks, rewinds and preemptions need not be told: a reply that is not the
one that was followed is followed anew. Knows no logits and no device.
"""

from collections.abc import Sequence as Rows
from dataclasses import dataclass, field
from functools import cache
from itertools import takewhile
from time import perf_counter
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from pagedchat.engine.sequence import Sequence
from pagedchat.errors import RequestError

if TYPE_CHECKING:
    from llguidance import LLExecutor, LLMatcher

_WORD_BITS = 32
_ALONE_SECONDS = 300e-6
"""So long masks are made one after another; waking threads takes as long as a hundred simple ones."""


def num_words(vocab_size: int) -> int:
    """Of 32 bits, of a row with a bit for each token."""
    return -(-vocab_size // _WORD_BITS)


class Grammar:
    """Which tokens replies may go on with. Requests that ask for the same form share it.

    Args:
        matcher: of llguidance, at its beginning.
        vocab_size: of the model.
    """

    def __init__(self, matcher: "LLMatcher", vocab_size: int) -> None:
        self._matcher = matcher
        self._followed: WeakKeyDictionary[Sequence, _Followed] = WeakKeyDictionary()
        self.vocab_size = vocab_size

    def follow(self, sequence: Sequence) -> "LLMatcher":
        """What knows which tokens a sequence's reply, as it is now, may go on with."""
        reply = sequence.output_token_ids
        followed = self._followed.get(sequence)
        if followed is None or not _return_to(followed, reply):
            followed = self._followed[sequence] = _Followed(self._matcher.deep_copy())
        new = reply[len(followed.token_ids) :]
        if new:
            followed.matcher.consume_tokens(new)
            followed.token_ids += new
        return followed.matcher

    def forget(self, sequence: Sequence) -> None:
        """Follow its reply no longer."""
        self._followed.pop(sequence, None)


def fill_masks(masks: NDArray[np.int32], replies: Rows[tuple[Grammar, Sequence]]) -> None:
    """Say which tokens replies may go on with.

    Args:
        masks: `[len(replies), num_words(vocab_size)]`, contiguous, written: bit `i % 32` of word `i // 32` is token
            `i`.
        replies: their grammars, and the sequences that they are of.

    Raises:
        RequestError: a form has become too much for the library; the message has its own words.
    """
    matchers = [grammar.follow(sequence) for grammar, sequence in replies]
    start, size = masks.ctypes.data, masks.shape[1] * masks.itemsize
    until = perf_counter() + _ALONE_SECONDS
    for i, matcher in enumerate(matchers):
        if perf_counter() > until and i + 1 < len(matchers):
            rest = list(zip(matchers, range(len(matchers)), strict=True))[i:]
            _threads().unsafe_compute_mask_ptr(rest, start, size, len(masks))
            break
        matcher.unsafe_compute_mask_ptr(start + i * size, size)
    for matcher, (grammar, sequence) in zip(matchers, replies, strict=True):
        if matcher.is_error():
            grammar.forget(sequence)
            why = (matcher.get_error().splitlines() or ["the library does not say why"])[0]
            raise RequestError(f"The reply cannot be held to its form any more: {why.rstrip('.')}.")


@cache
def _threads() -> "LLExecutor":
    from llguidance import LLExecutor  # noqa: PLC0415 - an extra, which is there where there is a matcher

    return LLExecutor()


@dataclass(slots=True)
class _Followed:
    matcher: "LLMatcher"
    token_ids: list[int] = field(default_factory=list)
    """Of the reply, as far as the matcher has them."""


def _return_to(followed: _Followed, reply: list[int]) -> bool:
    """Go back to where the followed reply and this one part, which is their end as a rule. False: it cannot be."""
    known = followed.token_ids
    if known == reply[: len(known)]:
        return True
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(known, reply, strict=False)))
    back = len(known) - same
    del known[same:]
    return bool(followed.matcher.rollback(back))
