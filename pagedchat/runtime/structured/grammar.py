"""One form that replies are held to, compiled for one vocabulary, and how far it has followed each of them.

Knows sequences by their tokens alone, so forks, rewinds and preemptions need not be told: a reply that is not the
one that was followed is followed anew. Knows no logits and no device.
"""

from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from pagedchat.engine.sequence import Sequence
from pagedchat.errors import RequestError

if TYPE_CHECKING:
    from llguidance import LLMatcher

_WORD_BITS = 32


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

    def fill(self, row: NDArray[np.int32], sequence: Sequence) -> None:
        """Say which tokens a sequence's reply may go on with.

        Args:
            row: `[num_words(vocab_size)]`, contiguous, written: bit `i % 32` of word `i // 32` is token `i`.
            sequence: whose next token is wanted.

        Raises:
            RequestError: the form has become too much for the library; the message has its own words.
        """
        followed = self._up_to_date(sequence)
        fill(followed.matcher, row)
        if followed.matcher.is_error():
            del self._followed[sequence]
            raise RequestError(f"The reply cannot be held to its form any more: {followed.matcher.get_error()}.")

    def _up_to_date(self, sequence: Sequence) -> "_Followed":
        reply = sequence.output_token_ids
        followed = self._followed.get(sequence)
        if followed is None or not _return_to(followed, reply):
            followed = self._followed[sequence] = _Followed(self._matcher.deep_copy())
        new = reply[len(followed.token_ids) :]
        if new:
            followed.matcher.consume_tokens(new)
            followed.token_ids += new
        return followed


def fill(matcher: "LLMatcher", row: NDArray[np.int32]) -> None:
    """The same, as one matcher stands."""
    matcher.unsafe_compute_mask_ptr(row.ctypes.data, row.nbytes)


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
