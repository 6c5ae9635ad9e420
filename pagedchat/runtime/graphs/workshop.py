"""When missing steps are made while chats are running: here alone it is decided.

Nobody waits for a compiler, and between two tokens for no more than one piece of a step (`shelf`), of which it is
known from others of its kind that it is short: what nobody has measured yet counts as long. What serves meanwhile,
a roomier step or an eager one, is the stores' business.
"""

import time
from collections.abc import Callable, Sequence
from typing import Any, Literal

from pagedchat.runtime.graphs.shelf import Making, Shelf

BETWEEN_TOKENS = 0.01
"""Seconds that a piece may be expected to take where somebody has tokens already, and waits for the next."""
BEFORE_TOKENS = 0.02
"""The same of all pieces together where somebody waits for the first token, and nobody for the next. So long a
piece is taken to be while none of its kind has been measured: it comes there, and alone."""
REST = 3.0
"""How many times as long as a piece between tokens none follows: replies keep three quarters of the time."""
PATIENCE = 2.0
"""Seconds for which a piece that takes longer waits for a better time. By then what serves has cost more."""

Waiting = Literal["next token", "first token", "nobody"]
"""For what somebody waits while a piece is made."""
_MOST: dict[Waiting, float] = {
    "next token": BETWEEN_TOKENS,
    "first token": BEFORE_TOKENS,
    "nobody": float("inf"),
}


class Workshop:
    """Makes what is wanted from some shelves, a piece at a time.

    Args:
        shelves: whose steps.
        clock: seconds.
    """

    def __init__(self, shelves: Sequence[Shelf[Any]], clock: Callable[[], float] = time.perf_counter) -> None:
        self._shelves = shelves
        self.wanted = [shelf.making for shelf in shelves]
        """What is to be made for each of them: all empty, as a rule. Looked at before every step."""
        self.clock = clock
        self._rests_until = float("-inf")

    def is_due(self, waiting: Waiting) -> bool:
        """Whether something should be done by now.

        Args:
            waiting: for what somebody waits meanwhile.
        """
        if waiting == "next token" and self.clock() < self._rests_until:
            return False
        return self._next(_MOST[waiting]) is not None

    def work(self, waiting: Waiting) -> list[str]:
        """Do what is due: one piece, before first tokens as many as there is time for.

        To be called while no step is under way whose tokens or memory somebody needs.

        Returns:
            What was done, and how long it took.
        """
        began, done = self.clock(), self._do_next(_MOST[waiting])
        ended = self.clock()
        if waiting == "next token":
            self._rests_until = ended + REST * (ended - began)
        if waiting == "first token":
            while (left := began + BEFORE_TOKENS - self.clock()) > 0 and (more := self._do_next(left)):
                done += more
        return done

    def make_all(self) -> None:
        """Make everything that is wanted, whatever it takes; while no step is under way that somebody needs."""
        for shelf in self._shelves:
            keys = [*shelf.making]
            kernels = shelf.kernels_of(keys, quietly=False) if keys else None
            if kernels is not None:
                kernels.wait()
            for key in keys:
                shelf.capture(key)

    def _do_next(self, most: float) -> list[str]:
        """Do a piece that may be done in so many seconds; says which, nothing where there is none."""
        due = self._next(most)
        if due is None:
            return []
        shelf, key, making = due
        words, began = f"{making.piece} of {shelf.describe(key)}", self.clock()
        shelf.go_on(key)
        return [f"{words}: {1e3 * (self.clock() - began):.1f} ms"]

    def _next(self, most: float) -> tuple[Shelf[Any], Any, Making] | None:
        """Of what can be done in so many seconds what was wanted last: it is what runs now."""
        waiting = [(shelf, key, making) for shelf in self._shelves for key, making in shelf.making.items()]
        ready = [one for one in waiting if one[2].may_go_on and self._may_begin(*one[::2], most)]
        return max(ready, default=None, key=lambda one: one[2].asked)

    def _may_begin(self, shelf: Shelf[Any], making: Making, most: float) -> bool:
        """Whether the next piece is that short, or has waited for long."""
        expected = shelf.expected(making)
        is_short = (BEFORE_TOKENS if expected is None else expected) <= most
        return is_short or self.clock() - making.since >= PATIENCE
