"""What the bodies of chunks hold, apart from reports: who is recorded, texts of tokens, labels of sequences.

Everything read here may come from a broken or hostile file, so every size that memory is taken for is checked.
"""

from collections.abc import Mapping
from typing import TypeVar

import msgspec

from pagedchat.engine import keyframe
from pagedchat.engine.mirror import CacheMirror
from pagedchat.events import EngineReady

MAX_BLOCKS = 1 << 22
MAX_BLOCK_SIZE = 1 << 16

T = TypeVar("T")


class Start(msgspec.Struct, frozen=True, array_like=True):
    """The engine that is recorded, and when."""

    program: str
    """Version of pagedchat."""
    time: float
    """When the recording began, in seconds since 1970."""
    info: EngineReady
    first: int = 0
    """Reports before the first one in the file; not 0 where the beginning was dropped to keep the size down."""
    first_step: int = 0
    """The last step before the first report."""

    def empty_mirror(self) -> CacheMirror:
        """The cache before the first report."""
        return CacheMirror(self.info.num_blocks, self.info.block_size, self.info.num_host_blocks)


class TextsBody(msgspec.Struct, frozen=True, array_like=True):
    """What tokens stand for."""

    token_ids: list[int]
    texts: list[bytes]


_ENCODER = msgspec.msgpack.Encoder()


def encode_start(start: Start) -> bytes:
    """The body of a START chunk."""
    return _ENCODER.encode(start)


def decode_start(body: bytes) -> Start:
    """The opposite.

    Raises:
        ValueError: nonsense.
    """
    start = _decode(body, Start)
    info = start.info
    sizes = (
        1 <= info.num_blocks <= MAX_BLOCKS
        and 0 <= info.num_host_blocks <= MAX_BLOCKS
        and 1 <= info.block_size <= MAX_BLOCK_SIZE
        and start.first >= 0
    )
    if not sizes:
        raise ValueError(f"a pool of {info.num_blocks} blocks of {info.block_size} tokens")
    return start


def encode_texts(texts: Mapping[int, bytes]) -> bytes:
    """The body of a TEXTS chunk."""
    return _ENCODER.encode(TextsBody(list(texts), list(texts.values())))


def decode_texts(body: bytes) -> dict[int, bytes]:
    """The opposite.

    Raises:
        ValueError: nonsense.
    """
    packed = _decode(body, TextsBody)
    return dict(zip(packed.token_ids, packed.texts, strict=True))


def encode_labels(labels: Mapping[int, str]) -> bytes:
    """The body of a LABELS chunk."""
    return _ENCODER.encode(dict(labels))


def decode_labels(body: bytes) -> dict[int, str]:
    """The opposite.

    Raises:
        ValueError: nonsense.
    """
    return _decode(body, dict[int, str])


def encode_keyframe(mirror: CacheMirror) -> bytes:
    """The body of a KEYFRAME chunk."""
    return keyframe.encode(mirror)


def decode_keyframe(body: bytes, start: Start, num_reports: int) -> CacheMirror:
    """The opposite.

    Raises:
        ValueError: nonsense, or the cache of another engine or another moment.
    """
    frame = keyframe.decode(body)
    info = start.info
    expected = info.num_blocks, info.block_size, info.num_host_blocks, num_reports
    if (frame.num_blocks, frame.block_size, frame.num_host_blocks, frame.num_reports) != expected:
        raise ValueError("a keyframe of another cache")
    return keyframe.restore(frame)


def _decode(body: bytes, kind: type[T]) -> T:
    try:
        return msgspec.msgpack.decode(body, type=kind)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"not the body of a chunk: {error}") from error
