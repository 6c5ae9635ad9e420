"""Where in a recording's files which reports and keyframes lie. Knows chunk headers, opens no bodies."""

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from pagedchat.trace.chunk_file import ChunkFile
from pagedchat.trace.format import HEADER_SIZE, Header, TraceError, unpack_body


class Chunk(NamedTuple):
    """A chunk of some file."""

    header: Header
    file: ChunkFile
    offset: int
    """Where its header begins."""

    def body(self) -> bytes:
        """What it holds, unpacked.

        Raises:
            TraceError: it is damaged.
        """
        packed = self.file.read(self.offset + HEADER_SIZE, self.header.packed_size)
        body = unpack_body(self.header, packed)
        if body is None:
            raise self.damaged()
        return body

    def damaged(self) -> TraceError:
        """What is said where its contents make no sense."""
        first, last = self.header.first_step, self.header.last_step
        return TraceError(
            f"{self.file.name} is damaged between steps {first} and {last}.",
            "What lies before and after it can still be shown.",
        )


class ChunkList:
    """Chunks of one kind in the order of the reports, found by position (number of reports before) or by step."""

    def __init__(self, chunks: Iterable[Chunk] = ()) -> None:
        self.chunks: list[Chunk] = []
        self._firsts: list[int] = []
        self._steps: list[int] = []
        for chunk in chunks:
            self.add(chunk)

    def add(self, chunk: Chunk) -> None:
        """Put it at the end."""
        self.chunks.append(chunk)
        self._firsts.append(chunk.header.first)
        self._steps.append(chunk.header.first_step)

    def before(self, position: int) -> int:
        """Index of the last chunk that begins at `position` or before; -1 if there is none."""
        return bisect_right(self._firsts, position) - 1

    def before_step(self, step: int) -> int:
        """Index of the last chunk that begins with that step or an earlier one; -1 if there is none."""
        return bisect_right(self._steps, step) - 1

    def without(self, file: ChunkFile) -> "ChunkList":
        """The chunks of all other files."""
        return ChunkList(chunk for chunk in self.chunks if chunk.file is not file)
