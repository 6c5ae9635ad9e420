"""A file of chunks that is appended to and read at any place, by name or without one. Knows bytes only."""

import os
import tempfile
from pathlib import Path

from pagedchat.private_files import FILE_MODE
from pagedchat.trace.format import TraceError


class ChunkFile:
    """An open file descriptor, closed with its last user; reading does not move where the next chunk goes.

    Args:
        descriptor: of the file, open for reading, and for appending where it is written to.
        name: what messages call it.
    """

    def __init__(self, descriptor: int, name: str) -> None:
        self._descriptor = descriptor
        self.name = name
        self.size = os.fstat(descriptor).st_size
        """Bytes so far."""

    def append(self, data: bytes) -> int:
        """Write at the end.

        Returns:
            Where the data begins.

        Raises:
            TraceError: the disk is full, or something of that kind.
        """
        begin, view = self.size, memoryview(data)
        try:
            while view:
                view = view[os.write(self._descriptor, view) :]
        except OSError as error:
            raise TraceError(f"{self.name} cannot be written: {error.strerror}.", "The chats go on.") from error
        self.size += len(data)
        return begin

    def read(self, offset: int, size: int) -> bytes:
        """At most `size` bytes from `offset` on.

        Raises:
            TraceError: the file cannot be read any more.
        """
        try:
            return os.pread(self._descriptor, size, offset)
        except OSError as error:
            raise TraceError(f"{self.name} cannot be read: {error.strerror}.") from error

    def close(self) -> None:
        """Let go of it; twice does no harm."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def __del__(self) -> None:
        self.close()


def open_file(path: Path) -> ChunkFile:
    """A file to read.

    Raises:
        TraceError: there is no such file, or it must not be read.
    """
    if not path.is_file():
        reason = "is not a file" if path.exists() else "does not exist"
        raise TraceError(f"{path} {reason}.", "A trace is written by --trace FILE or /trace save FILE.")
    try:
        return ChunkFile(os.open(path, os.O_RDONLY | os.O_CLOEXEC), str(path))
    except OSError as error:
        raise TraceError(f"{path} cannot be read: {error.strerror}.") from error


def new_file(path: Path) -> ChunkFile:
    """A file to write, new or empty so far: nobody's recording is ever written over.

    Raises:
        TraceError: the file has something in it, or cannot be made.
    """
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NONBLOCK, FILE_MODE)
    except OSError as error:
        raise TraceError(f"{path} cannot be written: {error.strerror}.", "Choose another file.") from error
    file = ChunkFile(descriptor, str(path))
    if file.size or not path.is_file():
        file.close()
        raise TraceError(f"{path} exists already.", "Choose another file, or remove it first.")
    return file


def scratch_file() -> ChunkFile:
    """A file without a name, gone when the program ends, however it ends.

    Raises:
        TraceError: there is no room for temporary files.
    """
    try:
        with tempfile.TemporaryFile(prefix="pagedchat-") as file:
            return ChunkFile(os.dup(file.fileno()), "The temporary recording")
    except OSError as error:
        raise TraceError(f"The recording cannot be kept: {error.strerror}.", "Set TMPDIR to a folder.") from error
