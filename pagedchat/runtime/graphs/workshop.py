"""When missing steps are made while chats are running: here alone it is decided.

Nobody waits for a compiler, and between two tokens for no more than one piece of a step (`shelf`), of which it is
known from others that it is short. What serves meanwhile, a roomier step or an eager one, is the stores' business.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any

from pagedchat.runtime.graphs.shelf import Making, Piece, Shelf

BETWEEN_TOKENS = 0.01
"""Seconds that a piece may be expected to take where somebody has tokens already, and waits for the next."""
BEFORE_TOKENS = 0.02
"""The same of all pieces together where nobody has."""
REST = 3.0
"""How many times as long as a piece between tokens none follows: replies keep three quarters of the time."""
PATIENCE = 2.0
"""Seconds for which a piece that takes longer waits for a better time. By then what serves has cost more."""
_REMEMBERED = 4


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
        self._clock = clock
        self._rests_until = float("-inf")
        self._seconds: dict[Piece, deque[float]] = {
            piece: deque(maxlen=_REMEMBERED) for piece in ("kernels", "trial", "capture")
        }

    def is_due(self, *, between_tokens: bool) -> bool:
        """Whether something should be done before the next step.

        Args:
            between_tokens: whether the step is to bring somebody's next token.
        """
        if between_tokens and self._clock() < self._rests_until:
            return False
        return self._next(BETWEEN_TOKENS if between_tokens else BEFORE_TOKENS) is not None

    def work(self, *, between_tokens: bool) -> None:
        """Do what is due: between tokens one piece, else as many as there is time for.

        To be called while no step is under way whose tokens or memory somebody needs.
        """
        if between_tokens:
            began = self._clock()
            self._do_next(BETWEEN_TOKENS)
            ended = self._clock()
            self._rests_until = ended + REST * (ended - began)
            return
        until = self._clock() + BEFORE_TOKENS
        while (left := until - self._clock()) > 0 and self._do_next(left):
            pass

    def make_all(self) -> None:
        """Make everything that is wanted, whatever it takes; while no step is under way that somebody needs."""
        for shelf in self._shelves:
            keys = [*shelf.making]
            kernels = shelf.kernels_of(keys, quietly=False) if keys else None
            if kernels is not None:
                kernels.wait()
            for key in keys:
                shelf.capture(key)

    def _do_next(self, most: float) -> bool:
        """Whether there was anything that may be done in so many seconds."""
        due = self._next(most)
        if due is None:
            return False
        shelf, key, making = due
        piece, began = making.piece, self._clock()
        shelf.go_on(key)
        self._seconds[piece].append(self._clock() - began)
        return True

    def _next(self, most: float) -> tuple[Shelf[Any], Any, Making] | None:
        """Of what can be done in so many seconds what was wanted last: it is what runs now."""
        waiting = [(shelf, key, making) for shelf in self._shelves for key, making in shelf.making.items()]
        ready = [one for one in waiting if one[2].may_go_on and self._may_begin(one[2], most)]
        return max(ready, default=None, key=lambda one: one[2].asked)

    def _may_begin(self, making: Making, most: float) -> bool:
        """Whether the next piece is that short, or has waited for long."""
        known = [min(seconds) for seconds in self._seconds.values() if seconds]
        # Of the last few the quickest is asked: the others had something to load that is there by now.
        expected = min(self._seconds[making.piece], default=max(known, default=0.0))
        return expected <= most or self._clock() - making.since >= PATIENCE
