"""The beginnings of replies of one form, for one vocabulary: matchers of llguidance, each with a lexer of its own.

Copies of a matcher share its lexer, which grows with what it has seen, and a lock around it. So they are quick
where one of them was before, and no two of them work at the same time. One lexer that all replies share is the best
as a rule: what one of eight has seen is new to the others, and to wake threads takes as long as a hundred simple
masks. Only where masks take long all the same, parts of many replies begin at different lexers, and threads go on
with one part each. A lexer may also be full, and is given up then.

Knows no replies.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from time import perf_counter
from typing import TYPE_CHECKING, Any
from weakref import WeakSet

from pagedchat.jit.builder import num_cores

if TYPE_CHECKING:
    from llguidance import LLMatcher

CHATS_EACH = 8
"""Replies of one lexer, before another one is made, where masks take long."""
MOST_LEXERS = max(1, min(8, num_cores() // 2))
"""Of one form; and threads, of which each has one."""
_LONG, _LONG_STEPS = 5e-3, 16
"""Seconds that masks of a step take by one lexer, and steps one after another in which they do, until others are
made: the first masks of a form take long, whatever it is, those of many chats milliseconds."""
_QUICK = 5e-3
"""Seconds: what takes no longer is made at once, all else beside."""


@dataclass(slots=True, eq=False)
class Lexer:
    """One of them."""

    matcher: "LLMatcher"
    """At the beginning of the form."""
    home: "Lexers"
    """That it is one of."""
    followers: WeakSet[Any] = field(default_factory=WeakSet)
    """Of replies, those that use it."""


class Lexers:
    """Hands out beginnings.

    Args:
        first: the matcher that is there.
        another: makes one more with a lexer of its own; None: there are no more.
        seconds: what that takes, about.
    """

    def __init__(
        self, first: "LLMatcher", another: "Callable[[], LLMatcher] | None" = None, seconds: float = 0.0
    ) -> None:
        self._another, self._seconds = another, seconds
        self._lexers = [Lexer(first, self)]
        self._num_long = 0
        """Steps that took long, up to the last one."""
        self._making: threading.Thread | None = None
        self._lock = threading.Lock()

    def emptiest(self) -> Lexer:
        """That of the fewest replies; with many replies whose masks take long there are more of them, by and by."""
        lexer = min(self._lexers, key=lambda each: len(each.followers))
        if self._num_long < _LONG_STEPS or len(lexer.followers) < CHATS_EACH:
            return lexer
        if len(self._lexers) >= MOST_LEXERS or self._another is None:
            return lexer
        if self._seconds <= _QUICK:
            return self._make()
        if self._making is None or not self._making.is_alive():
            self._making = threading.Thread(target=self._make, name="another lexer", daemon=True)
            self._making.start()
        return lexer

    def note(self, seconds: float) -> None:
        """What the masks of a step took, all of them by one lexer."""
        if self._num_long < _LONG_STEPS:
            self._num_long = self._num_long + 1 if seconds > _LONG else 0

    def instead_of(self, lexer: Lexer) -> Lexer | None:
        """Begin no reply with this one any more, but with another one in its place; that, or if it was given up
        before, the newest. None: there are no more."""
        if self._another is None:
            return None
        if lexer not in self._lexers:
            return self._lexers[-1]
        other = self._make()
        with self._lock:
            self._lexers = [each for each in self._lexers if each is not lexer]
        return other

    def _make(self) -> Lexer:
        if self._another is None:
            raise RuntimeError("there is nothing to make a lexer of")
        began = perf_counter()
        lexer = Lexer(self._another(), self)
        self._seconds = perf_counter() - began
        with self._lock:
            self._lexers = [*self._lexers, lexer]
        return lexer
