"""What is due for many at once, done for a few of them after each step.

A GPU computes a step while the host takes in the one before, and waits for nobody until the host takes longer than
that. To take the text of 64 replies at once lasts a millisecond, which is five steps of a small model; a part of it
beside each of twenty steps holds none of them up.
"""

from collections import deque
from collections.abc import Callable, Iterable
from typing import Generic, TypeVar

T = TypeVar("T")

SHARE_OF_STEP = 1 / 4
"""Of what a step took, what is spent on a round after it."""


class Round(Generic[T]):
    """The same thing for each of many.

    Args:
        do: the thing; where it raises, the one that it raised for is done.
        clock: seconds.
    """

    def __init__(self, do: Callable[[T], None], clock: Callable[[], float]) -> None:
        self._do = do
        self._clock = clock
        self._left: deque[T] = deque()
        self.began = 0.0
        """When."""
        self.seconds = 0.0
        """What it has taken so far, without the steps in between."""

    @property
    def is_on(self) -> bool:
        """Whether there are some left."""
        return bool(self._left)

    def begin(self, items: Iterable[T]) -> None:
        """A new one; of the one before the rest is forgotten."""
        self._left = deque(items)
        self.began, self.seconds = self._clock(), 0.0

    def go_on(self, seconds: float) -> bool:
        """Do it for the next one, and for more of them until so much time has passed.

        Returns:
            Whether that was all.
        """
        began = now = self._clock()
        try:
            while self._left and (now == began or now - began < seconds):
                self._do(self._left.popleft())
                now = self._clock()
        finally:
            self.seconds += now - began
        return not self._left
