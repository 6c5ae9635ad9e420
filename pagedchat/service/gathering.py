"""An engine at rest waits a little for those who ask together.

A server that reads 64 requests at once passes them on one after the other, in some milliseconds. An engine that
begins with the first ones is busy with them when the others come, and these wait for a step that has nothing for
them. The server knows, and says, that there are more; so nobody else is waited for, and one request by itself never
waits. Nor do many for a few: while their step is computed, these are read.
"""

from collections.abc import Callable

LONGEST = 0.01
"""Seconds, from when the first of them was told of."""
MANY = 2
"""So many times as many as those who will come do not wait for them."""


class Gathering:
    """What was told of those who come.

    Args:
        clock: seconds.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._until: float | None = None
        self._num_coming = 0

    def hear(self, num_coming: int) -> None:
        """So many requests will have come next; 0: that was all of them."""
        self._num_coming = num_coming
        if not num_coming:
            self._until = None
        elif self._until is None:
            self._until = self._clock() + LONGEST

    def seconds(self, num_there: int) -> float:
        """How long so many who are there wait for the others, if the engine is at rest; 0: no longer."""
        if num_there >= MANY * self._num_coming:
            return 0.0
        left = 0.0 if self._until is None else self._until - self._clock()
        if left <= 0.0:
            self._until = None  # whoever is told of from now on is awaited anew
        return max(0.0, left)
