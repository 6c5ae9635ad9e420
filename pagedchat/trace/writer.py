"""Appends a recording to files, chunk by chunk. Knows when a chunk is full and when a keyframe pays."""

import time
from collections.abc import Mapping, Sequence

from pagedchat import __version__
from pagedchat.engine.mirror import CacheMirror
from pagedchat.events import EngineReady, StepReport
from pagedchat.trace.bodies import Start, encode_keyframe, encode_labels, encode_start, encode_texts
from pagedchat.trace.chunk_file import ChunkFile
from pagedchat.trace.chunk_index import Chunk
from pagedchat.trace.columns import pack_reports
from pagedchat.trace.format import PREAMBLE, Header, Kind, pack_chunk
from pagedchat.trace.notable import is_notable
from pagedchat.trace.recording import Recording

CHUNK_REPORTS = 128
KEYFRAME_REPORTS = 512
"""At least so many reports lie between two keyframes."""
KEYFRAME_SHARE = 4
"""And they take at least so many times the bytes of a keyframe: keyframes are a fifth of a trace at most."""


class TraceWriter:
    """One engine's run, into a file; `recording` reads it at the same time.

    Args:
        file: empty so far, or with nothing but the preamble.
        info: the engine.
        mirror: its cache, where the recording begins in the middle of a run.
    """

    def __init__(self, file: ChunkFile, info: EngineReady, mirror: CacheMirror | None = None) -> None:
        self.recording = Recording(_start(info, mirror))
        self._file = file
        self._texts: dict[int, bytes] = {}
        """Told, but not in the file yet."""
        self._since_keyframe = 0
        """Reports."""
        self._bytes_since_keyframe = 0
        self._keyframe_bytes = 0
        """Of the last one."""
        begin(file, self.recording.start)
        if mirror is not None:
            self.add_keyframe(mirror)

    # --- what is recorded ---------------------------------------------------------------------------

    def add_texts(self, texts: Mapping[int, bytes]) -> None:
        """What tokens of the next reports stand for."""
        self.recording.token_texts.update(texts)
        self._texts.update(texts)

    def set_labels(self, labels: Mapping[int, str]) -> None:
        """What the sequences are called from the next report on."""
        if labels != self.recording.labels_at(self.recording.end):
            self.flush()
            self._append(Kind.LABELS, encode_labels(labels))
            self.recording.set_labels(self.recording.end, labels)

    def add(self, reports: Sequence[StepReport], mirror: CacheMirror) -> None:
        """The next reports, and the cache that they led to."""
        self.recording.tail.extend(reports)
        if len(self.recording.tail) >= CHUNK_REPORTS:
            self.flush()
            if self._keyframe_pays():
                self.add_keyframe(mirror)

    def _keyframe_pays(self) -> bool:
        return (
            self._since_keyframe >= KEYFRAME_REPORTS
            and self._bytes_since_keyframe >= KEYFRAME_SHARE * self._keyframe_bytes
        )

    def add_keyframe(self, mirror: CacheMirror) -> None:
        """The cache as it is after all reports so far, none of which may be left in the tail."""
        chunk = self._append(Kind.KEYFRAME, encode_keyframe(mirror))
        self._keyframe_bytes = chunk.header.packed_size
        self._since_keyframe = self._bytes_since_keyframe = 0
        self.recording.add_keyframe(chunk)

    # --- the file -----------------------------------------------------------------------------------

    def flush(self) -> None:
        """Everything told so far is in the file afterwards.

        Raises:
            TraceError: it cannot be written.
        """
        if self._texts:
            self._append(Kind.TEXTS, encode_texts(self._texts))
            self._texts = {}
        reports = self.recording.tail
        for at in range(0, len(reports), CHUNK_REPORTS):
            self._flush_reports(reports[at : at + CHUNK_REPORTS])

    def _flush_reports(self, reports: list[StepReport]) -> None:
        recording = self.recording
        header, data = reports_chunk(reports, recording.packed_end)
        chunk = Chunk(header, self._file, self._file.append(data))
        recording.tail = recording.tail[len(reports) :]
        recording.add_reports(chunk, reports)
        self._since_keyframe += len(reports)
        self._bytes_since_keyframe += len(data)

    def _append(self, kind: Kind, body: bytes) -> Chunk:
        step = self.recording.last_step
        header, data = pack_chunk(kind, body, self.recording.packed_end, (step, step))
        return Chunk(header, self._file, self._file.append(data))

    def finish(self) -> None:
        """The recording ends here, and says so."""
        self.flush()
        self._append(Kind.END, b"")
        self.recording.ended = True

    def go_on_in(self, file: ChunkFile, mirror: CacheMirror) -> None:
        """Write into another file from now on, which begins with the cache as it is."""
        self.flush()
        self._file = file
        self.add_keyframe(mirror)


def _start(info: EngineReady, mirror: CacheMirror | None) -> Start:
    if mirror is None:
        return Start(__version__, time.time(), info)
    step = mirror.last.step if mirror.last is not None else 0
    return Start(__version__, time.time(), info, mirror.num_reports, step)


def begin(file: ChunkFile, start: Start) -> None:
    """Write what every trace begins with, into an empty file or behind the preamble."""
    if not file.size:
        file.append(PREAMBLE)
    file.append(pack_chunk(Kind.START, encode_start(start), start.first, (start.first_step, start.first_step))[1])


def reports_chunk(reports: Sequence[StepReport], first: int) -> tuple[Header, bytes]:
    """A REPORTS chunk's header and all its bytes.

    Args:
        reports: at least one.
        first: reports of the whole recording before these.
    """
    steps = reports[0].step, reports[-1].step
    num_notable = sum(map(is_notable, reports))
    return pack_chunk(Kind.REPORTS, pack_reports(reports), first, steps, len(reports), num_notable)
