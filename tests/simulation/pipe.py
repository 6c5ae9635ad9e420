"""One direction of a socket, as badly as one may behave: pieces of any length, late, and cut off by a death."""

from collections.abc import Callable
from random import Random

from tests.simulation.clock import VirtualLoop

CAPACITY = 64 * 1024
"""Bytes that fit between writer and reader; a writer with more is blocked."""
_PIECES = (1, 3, 40, 1000, 1 << 14, 1 << 16)


class Pipe:
    """Bytes on their way.

    Args:
        loop: when they arrive.
        choose: makes latencies and lengths.
        deliver: is given each piece.
        ended: called once when nothing more will come.
        drained: called when a blocked writer may go on.
    """

    def __init__(
        self,
        loop: VirtualLoop,
        choose: Random,
        deliver: Callable[[bytes], None],
        ended: Callable[[], None],
        drained: Callable[[], None] = lambda: None,
    ) -> None:
        self._loop, self._random = loop, choose
        self._deliver, self._ended, self._drained = deliver, ended, drained
        self._data = bytearray()
        self._on_its_way = self._closing = self._cut = self._held = False
        self.stalled_until = 0.0
        """The reader does not read before that."""
        self.watch: Callable[[bytes], None] = lambda piece: None
        """Sees every piece that arrives."""

    @property
    def full(self) -> bool:
        """Whether a writer is blocked."""
        return len(self._data) > CAPACITY

    @property
    def idle(self) -> bool:
        """Whether all that was written has arrived."""
        return not self._data

    def write(self, data: bytes | bytearray) -> None:
        """More bytes; nobody hears them any more once the pipe is cut."""
        if self._cut:
            raise BrokenPipeError
        if not self._closing:
            self._data += data
            self._go_on()

    def hold(self, held: bool) -> None:
        """The reader wants nothing for now, or goes on."""
        self._held = held
        self._go_on()

    def close(self) -> None:
        """Nothing more is written; what was arrives."""
        self._closing = True
        self._go_on()

    def die(self) -> None:
        """The writer is dead: some of what it wrote last may not have left it."""
        if self._data and self._random.random() < 0.5:
            del self._data[self._random.randrange(len(self._data)) :]
        self.close()

    def cut(self) -> None:
        """The reader is gone."""
        self._cut, self._closing = True, True
        self._data.clear()

    def _go_on(self) -> None:
        if not self._on_its_way and not self._cut and not self._held:
            self._on_its_way = True
            due = max(self._random.choice((0.0, 0.0001, 0.003)), self.stalled_until - self._loop.time())
            self._loop.call_later(due, self._arrive)

    def _arrive(self) -> None:
        self._on_its_way = False
        if self._cut or self._held:
            return
        if self._loop.time() < self.stalled_until:
            self._go_on()
            return
        if self._data:
            was_full, length = self.full, self._random.choice(_PIECES)
            piece = bytes(self._data[:length])
            del self._data[:length]
            self.watch(piece)
            self._deliver(piece)
            if was_full and not self.full:
                self._drained()
        if self._data:
            self._go_on()
        elif self._closing and not self._cut:
            self._cut = True
            self._ended()
