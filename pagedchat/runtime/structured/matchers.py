"""Which tokens each sequence's reply may go on with: its grammar, followed token by token. Knows sequences by their
tokens alone, so forks, rewinds and preemptions need not be told: a reply that is not the one that was followed is
followed anew. Knows no logits and no device.
"""

from dataclasses import dataclass, field
from itertools import takewhile
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from pagedchat.engine.sequence import Sequence
from pagedchat.errors import RequestError
from pagedchat.runtime.structured.grammars import Grammar, fill

if TYPE_CHECKING:
    from llguidance import LLMatcher


@dataclass(slots=True)
class _Followed:
    grammar: Grammar
    matcher: "LLMatcher"
    token_ids: list[int] = field(default_factory=list)
    """Of the reply, as far as the matcher has them."""


class Matchers:
    """Where the replies stand that have a grammar."""

    def __init__(self) -> None:
        self._followed: WeakKeyDictionary[Sequence, _Followed] = WeakKeyDictionary()

    def fill(self, row: NDArray[np.int32], sequence: Sequence, grammar: Grammar) -> None:
        """Say which tokens a sequence's reply may go on with.

        Args:
            row: `[num_words(vocab_size)]`, contiguous, written: a bit for each token.
            sequence: whose next token is wanted.
            grammar: its request's.

        Raises:
            RequestError: the grammar has become too much for the library; the message is its own.
        """
        followed = self._up_to_date(sequence, grammar)
        fill(followed.matcher, row)
        if followed.matcher.is_error():
            del self._followed[sequence]
            raise RequestError(f"The reply cannot be held to its form any more: {followed.matcher.get_error()}.")

    def _up_to_date(self, sequence: Sequence, grammar: Grammar) -> _Followed:
        reply = sequence.output_token_ids
        followed = self._followed.get(sequence)
        if followed is None or followed.grammar is not grammar or not _return_to(followed, reply):
            followed = self._followed[sequence] = _Followed(grammar, grammar.start())
        new = reply[len(followed.token_ids) :]
        if new:
            followed.matcher.consume_tokens(new)
            followed.token_ids += new
        return followed


def _return_to(followed: _Followed, reply: list[int]) -> bool:
    """Go back to where the followed reply and this one part, which is their end as a rule. False: it cannot be."""
    known = followed.token_ids
    if known == reply[: len(known)]:
        return True
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(known, reply, strict=False)))
    back = len(known) - same
    del known[same:]
    return bool(followed.matcher.rollback(back))
