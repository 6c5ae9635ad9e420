"""One form that replies are held to, compiled for one vocabulary, and how far it has followed each of them.

Knows sequences by their tokens alone, so forks, rewinds and preemptions need not be told: a reply that is not the
one that was followed is followed anew. Knows no logits and no device.
"""

from collections.abc import Callable
from collections.abc import Sequence as Rows
from itertools import takewhile
from typing import TYPE_CHECKING
from weakref import WeakKeyDictionary

import numpy as np
from numpy.typing import NDArray

from pagedchat.engine.sequence import Sequence
from pagedchat.errors import RequestError
from pagedchat.runtime.structured.json_place import JsonPlaces
from pagedchat.runtime.structured.lexers import Lexer, Lexers
from pagedchat.runtime.structured.mask_jobs import Followed, MaskJobs, MaskRows

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
        another: see `Lexers`.
        seconds: see `Lexers`.
        places: where replies stand, if they are JSON texts of which that is of use.
    """

    def __init__(
        self,
        matcher: "LLMatcher",
        vocab_size: int,
        another: "Callable[[], LLMatcher] | None" = None,
        seconds: float = 0.0,
        places: JsonPlaces | None = None,
    ) -> None:
        self._matcher, self._places = matcher, places
        self._lexers = Lexers(matcher, another, seconds)
        self._followed: WeakKeyDictionary[Sequence, Followed] = WeakKeyDictionary()
        self.vocab_size = vocab_size

    def follow(self, sequence: Sequence) -> Followed:
        """A sequence's reply as it is now."""
        reply = sequence.output_token_ids
        followed = self._followed.get(sequence)
        if followed is None or not _return_to(followed, reply):
            followed = self._followed[sequence] = self._begin_with(self._lexers.emptiest())
        new = reply[len(followed.token_ids) :]
        if new:
            followed.take(new)
        return followed

    def follow_elsewhere(self, sequence: Sequence) -> Followed | None:
        """The same with another lexer than before; None: there is none."""
        before = self._followed.pop(sequence, None)
        lexer = None if before is None else self._lexers.instead_of(before.lexer)
        if lexer is None:
            return None
        self._followed[sequence] = self._begin_with(lexer)
        return self.follow(sequence)

    def _begin_with(self, lexer: Lexer) -> Followed:
        followed = Followed(
            lexer.matcher.deep_copy(), lexer, None if self._places is None else self._places.begin()
        )
        lexer.followers.add(followed)
        return followed

    def forget(self, sequence: Sequence) -> None:
        """Follow its reply no longer."""
        self._followed.pop(sequence, None)


def fill_masks(masks: NDArray[np.int32], replies: Rows[tuple[Grammar, Sequence]]) -> None:
    """Say which tokens replies may go on with.

    Args:
        masks: `[len(replies), num_words(vocab_size)]`, contiguous, written, as `MaskRows`.
        replies: their grammars, and the sequences that they are of.

    Raises:
        RequestError: as of `follow_all`.
    """
    follow_all(MaskRows.of(masks), [(grammar, sequence, i) for i, (grammar, sequence) in enumerate(replies)])


def follow_all(rows: MaskRows, replies: Rows[tuple[Grammar, Sequence, int]]) -> list[Followed]:
    """Make the masks of replies as they are now.

    Args:
        rows: written.
        replies: their grammars, the sequences that they are of, and the rows of their masks.

    Returns:
        How they are followed, in the order given.

    Raises:
        RequestError: a form has become too much for the library; the message has its own words.
    """
    followed = [grammar.follow(sequence) for grammar, sequence, _ in replies]
    jobs = [(each, row) for each, (_, _, row) in zip(followed, replies, strict=True)]
    MaskJobs(sorted(jobs, key=lambda job: id(job[0].lexer))).make(rows)
    return [
        _make_once_more(rows, row, each, grammar, sequence) if each.matcher.is_error() else each
        for each, (grammar, sequence, row) in zip(followed, replies, strict=True)
    ]


def _make_once_more(rows: MaskRows, row: int, failed: Followed, grammar: Grammar, sequence: Sequence) -> Followed:
    """With another lexer, where a full one is what was too much; and if that is full too, with one that is new."""
    for _ in range(2):
        other = grammar.follow_elsewhere(sequence)
        if other is None:
            break
        other.matcher.unsafe_compute_mask_ptr(rows.address + row * rows.row_bytes, rows.row_bytes)
        if not other.matcher.is_error():
            return other
        failed = other
    grammar.forget(sequence)
    why = (failed.matcher.get_error().splitlines() or ["the library does not say why"])[0]
    raise RequestError(f"The reply cannot be held to its form any more: {why.rstrip('.')}.")


def _return_to(followed: Followed, reply: list[int]) -> bool:
    """Go back to where the followed reply and this one part, which is their end as a rule. False: it cannot be."""
    known = followed.token_ids
    if known == reply[: len(known)]:
        return True
    if followed.place is not None:
        return False  # which cannot go back, and may have kept tokens from the matcher
    same = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], zip(known, reply, strict=False)))
    back = len(known) - same
    del known[same:]
    return bool(followed.matcher.rollback(back))
