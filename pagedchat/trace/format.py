"""The file format of a trace: a magic number, a version, then chunks one after the other. Knows no engine.

    file   = MAGIC  VERSION (2 bytes)  chunk*
    chunk  = header (49 bytes)  body (zlib)

A chunk header says what the body is, which reports and steps it covers and how long it is, so that a file is read
by jumping from header to header. Header and body have a checksum each. A file is only ever appended to: one that
was cut anywhere is whole up to its last complete chunk.
"""

import struct
import zlib
from enum import IntEnum
from typing import NamedTuple

from pagedchat.errors import PagedChatError

MAGIC = b"\x89PAGEDCHAT-TRACE\r\n\x1a\n"
"""Like PNG's: a transfer that changes line ends or cuts the eighth bit destroys it visibly."""
VERSION = 1
PREAMBLE = MAGIC + struct.pack("<H", VERSION)
MAX_BODY = 64 * 1024**2
"""Bytes of a body, packed or unpacked; a chunk that claims more is damaged."""
MAX_STEP = 2**63 - 1
"""The number of a step is at most this on disk and between processes."""

_FIELDS = struct.Struct("<BIQQQIIII")
_CHECKSUM = struct.Struct("<I")
HEADER_SIZE = _FIELDS.size + _CHECKSUM.size
_COMPRESSION = 6


class TraceError(PagedChatError):
    """A trace cannot be read, written or followed to where it was asked to go."""


class Kind(IntEnum):
    """What a chunk's body is."""

    START = 1
    """What is recorded: the first chunk of a file."""
    TEXTS = 2
    """Texts of tokens that occur for the first time in the reports that follow."""
    LABELS = 3
    """What each sequence is called from the next report on."""
    REPORTS = 4
    KEYFRAME = 5
    """The cache after the reports so far."""
    END = 6
    """The recording ended of its own will: nothing was cut."""


class Header(NamedTuple):
    """The fixed beginning of a chunk."""

    kind: int
    num_reports: int
    """Reports in the body; 0 in all other kinds."""
    first: int
    """Reports of the whole recording before this chunk."""
    first_step: int
    """Step of the first report in the body, or the last step before the chunk."""
    last_step: int
    num_notable: int
    """Reports in the body with an event worth stopping at."""
    packed_size: int
    size: int
    """Bytes of the body when unpacked."""
    checksum: int
    """Of the packed body."""

    @property
    def end(self) -> int:
        """Reports of the whole recording up to the end of this chunk."""
        return self.first + self.num_reports


def pack_chunk(
    kind: Kind, body: bytes, first: int, steps: tuple[int, int], num_reports: int = 0, num_notable: int = 0
) -> tuple[Header, bytes]:
    """A chunk's header and all its bytes."""
    packed = zlib.compress(body, _COMPRESSION)
    header = Header(kind, num_reports, first, *steps, num_notable, len(packed), len(body), zlib.crc32(packed))
    fields = _FIELDS.pack(*header)
    return header, b"".join((fields, _CHECKSUM.pack(zlib.crc32(fields)), packed))


def read_header(data: bytes) -> Header | None:
    """The header that `data` begins with, or None where that is no undamaged header."""
    if len(data) < HEADER_SIZE:
        return None
    fields = data[: _FIELDS.size]
    (checksum,) = _CHECKSUM.unpack_from(data, _FIELDS.size)
    header = Header(*_FIELDS.unpack(fields))
    if checksum != zlib.crc32(fields) or max(header.packed_size, header.size) > MAX_BODY:
        return None
    return header


def unpack_body(header: Header, packed: bytes) -> bytes | None:
    """The body, or None where it is damaged; never longer than the header says."""
    if len(packed) != header.packed_size or zlib.crc32(packed) != header.checksum:
        return None
    try:
        body = zlib.decompressobj().decompress(packed, header.size + 1)
    except zlib.error:
        return None
    return body if len(body) == header.size else None
