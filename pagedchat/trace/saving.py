"""Writes a recording to a file of its own, as far as it has come: its chunks are copied as they are."""

from collections.abc import Iterator
from pathlib import Path

from pagedchat.trace.bodies import encode_labels, encode_texts
from pagedchat.trace.chunk_file import new_file
from pagedchat.trace.format import HEADER_SIZE, Kind, TraceError, pack_chunk
from pagedchat.trace.recording import Recording
from pagedchat.trace.writer import begin, reports_chunk


def save_recording(recording: Recording, path: Path) -> int:
    """Everything recorded so far; what is recorded later is not in the file.

    Returns:
        The file's bytes.

    Raises:
        TraceError: the file exists already, or cannot be written; nothing is left of it then.
    """
    file = new_file(path)
    try:
        begin(file, recording.begun_anew())
        for data in _chunks(recording):
            file.append(data)
    except TraceError:
        path.unlink(missing_ok=True)
        raise
    finally:
        file.close()
    return file.size


def _chunks(recording: Recording) -> Iterator[bytes]:
    yield _small(Kind.TEXTS, encode_texts(recording.token_texts), recording.first, recording.first_step)
    labels = [entry for entry in recording.labels if entry[0] > recording.first]
    yield _small(
        Kind.LABELS, encode_labels(recording.labels_at(recording.first)), recording.first, recording.first_step
    )
    for chunk in recording.chunks:
        header = chunk.header
        while labels and labels[0][0] <= header.first:
            yield _small(Kind.LABELS, encode_labels(labels.pop(0)[1]), header.first, header.first_step)
        yield chunk.file.read(chunk.offset, HEADER_SIZE + header.packed_size)
    for _, names in labels:
        yield _small(Kind.LABELS, encode_labels(names), recording.packed_end, recording.last_step)
    if recording.tail:
        yield reports_chunk(recording.tail, recording.packed_end)[1]
    yield _small(Kind.END, b"", recording.end, recording.last_step)


def _small(kind: Kind, body: bytes, first: int, step: int) -> bytes:
    return pack_chunk(kind, body, first, (step, step))[1]
