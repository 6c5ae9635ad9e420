"""Calls of several threads, one after the other, in the order in which they came. Knows no engine.

A thread may come to a second call in the middle of its first: a signal's handler, or something that is collected as
garbage there. Waiting would never end, so it is refused, or put off where that does.
"""

import os
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Lock, get_ident
from types import TracebackType

from pagedchat.errors import EngineStateError


class _Place:
    """In the line."""

    def __init__(self) -> None:
        self._gate: Lock | None = None

    def wait_unless(self, is_first: Callable[[], bool]) -> None:
        """Wait for a call. Who comes to the front before the gate is there is called by nobody, and need not be."""
        if self._gate is None:
            self._gate = Lock()
            self._gate.acquire()
        if not is_first():
            self._gate.acquire()

    def call(self) -> None:
        """Have whoever waits at this place look whether it is the first."""
        with suppress(RuntimeError):  # another thread has just called
            if self._gate is not None:
                self._gate.release()


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

    def __enter__(self) -> None:
        """Wait for this thread's turn.

        Raises:
            EngineStateError: the thread is in a call already, or the process is another one.
            Exception: what `refuse` says.
        """
        self._enter(even_if_refused=False)

    def __exit__(self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None) -> None:
        self._leave(self._line[0])

    @contextmanager
    def even_if_refused(self) -> Iterator[None]:
        """A turn where everything else is refused too.

        Raises:
            EngineStateError: as for any turn.
        """
        place = self._enter(even_if_refused=True)
        try:
            yield
        finally:
            self._leave(place)

    def soon(self, action: Callable[[], None]) -> None:
        """Do this in a turn of its own; where this thread is in the middle of a call, when that ends.

        Nothing is done in another process, nor where everything is refused.
        """
        if self._refusal is not None or self.is_forked:
            return
        self._put_off.append(action)
        if get_ident() not in self._threads:
            with self.even_if_refused():
                pass  # what was put off is done at its end

    def refuse(self, refusal: Callable[[], Exception]) -> None:
        """Refuse every turn from now on; to be called by whoever has it.

        Args:
            refusal: makes what is raised.
        """
        self._refusal = refusal

    def _enter(self, *, even_if_refused: bool) -> _Place:
        self._check_caller()
        place = _Place()
        try:
            self._threads.add(get_ident())
            self._line.append(place)
            while self._line[0] is not place:
                place.wait_unless(lambda: self._line[0] is place)
            if self._refusal is not None and not even_if_refused:
                raise self._refusal()
        except BaseException:
            self._leave(place)
            raise
        return place

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

    def _leave(self, place: _Place) -> None:
        try:
            while self._put_off and self._line[0] is place:
                self._put_off.popleft()()
        finally:
            self._threads.discard(get_ident())
            if place in self._line:
                self._line.remove(place)
            if self._line:
                self._line[0].call()
