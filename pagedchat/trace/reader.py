"""Opens a trace file: looks at every header and reads the few small bodies, but no reports and no keyframes."""

import struct
from collections.abc import Callable
from pathlib import Path

from pagedchat.trace.bodies import Start, decode_labels, decode_start, decode_texts
from pagedchat.trace.chunk_file import ChunkFile, open_file
from pagedchat.trace.chunk_index import Chunk
from pagedchat.trace.format import HEADER_SIZE, MAGIC, PREAMBLE, VERSION, Kind, TraceError, read_header
from pagedchat.trace.recording import Recording


def open_trace(path: Path) -> Recording:
    """The recording in a file; one that was cut is read as far as it goes, and its `damage` says so.

    Raises:
        TraceError: there is no such file, it is no trace, one of another version, or damaged from the start.
    """
    file = open_file(path)
    try:
        return read_trace(file)
    except TraceError:
        file.close()
        raise


def read_trace(file: ChunkFile) -> Recording:
    """The same of a file that is open.

    Raises:
        TraceError: as above.
    """
    return _Scan(file).recording


class _Scan:
    """From chunk to chunk through a file."""

    def __init__(self, file: ChunkFile) -> None:
        self._file = file
        _check_preamble(file)
        first = self._chunk_at(len(PREAMBLE))
        if first is None or first.header.kind != Kind.START:
            raise TraceError(f"{file.name} was cut before the recording began.", "There is nothing in it to show.")
        self.recording = Recording(_read_start(first))
        self._follow(_end_of(first))

    def _follow(self, offset: int) -> None:
        """Take in the chunks from `offset` on, up to the end or the first one that is not whole."""
        while offset < self._file.size:
            chunk = self._chunk_at(offset)
            if chunk is None or not self._take(chunk):
                break
            offset = _end_of(chunk)
        if not self.recording.ended:
            self.recording.damage = f"The file was cut after step {self.recording.last_step}."
        elif offset < self._file.size:
            self.recording.damage = "Something that is no part of the recording follows its end."

    def _chunk_at(self, offset: int) -> Chunk | None:
        """The chunk that begins there, if it is all there."""
        header = read_header(self._file.read(offset, HEADER_SIZE))
        if header is None or offset + HEADER_SIZE + header.packed_size > self._file.size:
            return None
        return Chunk(header, self._file, offset)

    def _take(self, chunk: Chunk) -> bool:
        """False where the chunk does not belong here."""
        recording, header = self.recording, chunk.header
        if recording.ended or recording.end != header.first:
            return False
        try:
            _ADD[Kind(header.kind)](recording, chunk)
        except (TraceError, ValueError, LookupError):
            return False
        return True


def _add_texts(recording: Recording, chunk: Chunk) -> None:
    recording.token_texts.update(decode_texts(chunk.body()))


def _add_labels(recording: Recording, chunk: Chunk) -> None:
    recording.set_labels(chunk.header.first, decode_labels(chunk.body()))


def _end(recording: Recording, chunk: Chunk) -> None:
    recording.ended = True


_ADD: dict[Kind, Callable[[Recording, Chunk], None]] = {
    Kind.TEXTS: _add_texts,
    Kind.LABELS: _add_labels,
    Kind.REPORTS: Recording.add_reports,
    Kind.KEYFRAME: Recording.add_keyframe,
    Kind.END: _end,
}


def _check_preamble(file: ChunkFile) -> None:
    begin = file.read(0, len(PREAMBLE))
    if not begin.startswith(MAGIC):
        raise TraceError(
            f"{file.name} is not a trace of pagedchat.", "A trace is written by --trace FILE or /trace save FILE."
        )
    if begin != PREAMBLE:
        (version,) = struct.unpack("<H", begin[len(MAGIC) :].ljust(2, b"\0"))
        raise TraceError(
            f"{file.name} is a trace of format {version}; this program reads format {VERSION}.",
            "Replay it with the version of pagedchat that recorded it.",
        )


def _read_start(chunk: Chunk) -> Start:
    try:
        return decode_start(chunk.body())
    except ValueError as error:
        raise TraceError(
            f"{chunk.file.name} does not say what was recorded.", "It is damaged or was not written by pagedchat."
        ) from error


def _end_of(chunk: Chunk) -> int:
    return chunk.offset + HEADER_SIZE + chunk.header.packed_size
