"""What the engine process says, on its way to the UI: neither of the two waits for the other.

A screen that is busy reads nothing for a while. What the connection does not take meanwhile is kept here, and goes
with whatever is said next; only who is so far behind that memory would fill is waited for. Nothing is left out:
every step is a part of the record. Knows frames and a socket, not when anything is to be said.
"""

import socket

from pagedchat.events import EngineEvent
from pagedchat.service.wire import FrameWriter

MAX_BEHIND = 64 * 1024**2
"""Bytes that the UI may be behind: minutes of a fast engine."""


class Outbox:
    """The engine process's end of the connection.

    Args:
        connection: to the UI; blocking.
        max_behind: bytes after which the UI is waited for.
    """

    def __init__(self, connection: socket.socket, max_behind: int = MAX_BEHIND) -> None:
        self._connection = connection
        self._max_behind = max_behind
        self._writer = FrameWriter()
        self._unsent = bytearray()

    @property
    def num_unsent(self) -> int:
        """Bytes that the connection has not taken yet."""
        return len(self._unsent)

    def add(self, event: EngineEvent) -> None:
        """Something to be said, with the next `push`."""
        self._unsent += self._writer.frame(event)

    def push(self, wait: bool) -> None:
        """Nothing more follows for now.

        Args:
            wait: until all of it is gone; otherwise no more is sent than the connection takes at once.

        Raises:
            BrokenPipeError, ConnectionResetError: nobody listens any more.
        """
        while self._unsent:
            wait_now = wait or len(self._unsent) > self._max_behind
            try:
                num_sent = self._connection.send(self._unsent, 0 if wait_now else socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            del self._unsent[:num_sent]
