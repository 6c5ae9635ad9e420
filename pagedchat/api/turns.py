"""Calls of several threads, one after the other, in the order in which they came. Knows no engine.

A thread may come to a second call in the middle of its first: a signal's handler, or something that is collected as
garbage there. Waiting would never end, so it is refused, or put off where that does.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock, get_ident

from pagedchat.errors import EngineStateError


class _Place:
    """In the line."""

    def __init__(self) -> None:
        self.gate = Lock()
        self.gate.acquire()

    def call(self) -> None:
        """Have whoever waits at this place look whether it is the first."""
        with suppress(RuntimeError):  # another thread has just called
            self.gate.release()


class Turns:
    """A line of threads, the first of which has its turn.

    There is no lock around the line itself: each of the operations on it is one that no other thread and no signal
    can come between.

    Args:
        name: of what is called, for messages.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._process = os.getpid()
        self._line: deque[_Place] = deque()
        self._threads: set[int] = set()
        """Those in the line."""
        self._put_off: deque[Callable[[], None]] = deque()
        self._refusal: Callable[[], Exception] | None = None

    @property
    def is_forked(self) -> bool:
        """Whether this process is another one than that in which the line was made."""
        return os.getpid() != self._process

    @contextmanager
    def take(self, *, even_if_refused: bool = False) -> Iterator[None]:
        """Wait for this thread's turn, and have it inside.

        Raises:
            EngineStateError: the thread is in a call already, or the process is another one.
            Exception: what `refuse` says.
        """
        self._check_caller()
        me, place = get_ident(), _Place()
        try:
            self._threads.add(me)
            self._line.append(place)
            while self._line[0] is not place:
                place.gate.acquire()
            if self._refusal is not None and not even_if_refused:
                raise self._refusal()
            yield
        finally:
            self._leave(me, place)

    def soon(self, action: Callable[[], None]) -> None:
        """Do this in a turn of its own; where this thread is in the middle of a call, when that ends.

        Nothing is done in another process, nor where everything is refused.
        """
        if self._refusal is not None or self.is_forked:
            return
        self._put_off.append(action)
        if get_ident() not in self._threads:
            with self.take(even_if_refused=True):
                pass  # what was put off is done at its end

    def refuse(self, refusal: Callable[[], Exception]) -> None:
        """Refuse every turn from now on; to be called by whoever has it.

        Args:
            refusal: makes what is raised.
        """
        self._refusal = refusal

    def _check_caller(self) -> None:
        if self.is_forked:
            raise EngineStateError(
                f"This {self._name} belongs to process {self._process}; one forked from it cannot use it.",
                'Make it in the process that uses it, and start that one by "spawn" if it is to use a GPU.',
            )
        if get_ident() in self._threads:
            raise EngineStateError(
                f"This {self._name} is in the middle of a call of the same thread.",
                "Call it again when that one has returned. Other threads may call at any time, and wait.",
            )

    def _leave(self, me: int, place: _Place) -> None:
        try:
            while self._put_off and self._line[0] is place:
                self._put_off.popleft()()
        finally:
            self._threads.discard(me)
            if place in self._line:
                self._line.remove(place)
            if self._line:
                self._line[0].call()
