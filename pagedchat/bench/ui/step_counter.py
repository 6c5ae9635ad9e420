"""A number in a file that one process counts up and another reads, without either waiting for the other."""

import mmap
import struct
from pathlib import Path

_NUMBER = struct.Struct("=Q")


class StepCounter:
    """Eight bytes of shared memory; the file is made if it is missing."""

    def __init__(self, path: Path) -> None:
        with path.open("a+b") as file:
            file.truncate(_NUMBER.size)
            self._memory = mmap.mmap(file.fileno(), _NUMBER.size)

    @property
    def value(self) -> int:
        """The number now."""
        (value,) = _NUMBER.unpack_from(self._memory)
        return int(value)

    def add(self) -> None:
        """One more. Only one process may do so."""
        _NUMBER.pack_into(self._memory, 0, self.value + 1)

    def close(self) -> None:
        """Let go of the file."""
        self._memory.close()
