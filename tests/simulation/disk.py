"""Files in memory: full at some size, and cut anywhere in what is being written when their writer dies."""

import errno
import os
from collections.abc import Callable
from pathlib import Path
from random import Random

from pagedchat.trace.chunk_file import ChunkFile
from pagedchat.trace.format import PREAMBLE, TraceError


class MemoryFile(ChunkFile):
    """A file of chunks without a descriptor."""

    def __init__(self, name: str, room: int, clock: Callable[[], float]) -> None:
        self.name = name
        self._clock = clock
        self.data = bytearray()
        self._room = room
        self._last, self._written = 0, 0.0
        self._descriptor = -1

    @property
    def size(self) -> int:
        return len(self.data)

    @property
    def recorded(self) -> bool:
        """Whether a recording was begun in it."""
        return len(self.data) > len(PREAMBLE)

    def append(self, data: bytes) -> int:
        begin = self._last = len(self.data)
        self._written = self._clock()
        self.data += data[: max(0, self._room - begin)]
        if len(self.data) < begin + len(data):
            raise TraceError(f"{self.name} cannot be written: {os.strerror(errno.ENOSPC)}.", "The chats go on.")
        return begin

    def read(self, offset: int, size: int) -> bytes:
        return bytes(self.data[offset : offset + size])

    def cut(self, choose: Random) -> None:
        """The writer died, maybe in the middle of a write."""
        if self._written == self._clock() and len(self.data) > self._last:
            del self.data[choose.randrange(self._last, len(self.data)) :]


class Disk:
    """All traces of a world.

    Args:
        room: bytes that a file may have.
        clock: seconds.
    """

    def __init__(self, room: int, clock: Callable[[], float]) -> None:
        self._room, self._clock = room, clock
        self.files: list[MemoryFile] = []

    def make(self, path: Path | None) -> MemoryFile:
        """A new file; the name is for messages only."""
        self.files.append(MemoryFile(f"{path or 'scratch'} {len(self.files)}", self._room, self._clock))
        return self.files[-1]
