"""The wire between the two processes: whatever bytes arrive, in whatever pieces, are messages or a `WireError`."""

import struct
from collections.abc import Callable
from itertools import pairwise
from typing import Any

import msgspec
from hypothesis import strategies as st

from pagedchat.events import EngineEvent
from pagedchat.service.wire import MAX_FRAME, FrameReader, Inbound, WireError, command_reader, event_reader
from tools.fuzz.bent_trees import any_of, bent
from tools.fuzz.structs import values_of
from tools.fuzz.target import Target

_CLAIMS = any_of([
    b"\xdd\xff\xff\xff\xff", b"\xdf\xff\xff\xff\xff", b"\xdb\xff\xff\xff\xff", b"\xc6\xff\xff\xff\xff",
    b"\xdc\xff\xff", b"\xc9\xff\xff\xff\xff\x01",
    b"\xdd\x0f\xff\xff\xff", b"\x91" * 50_000, b"\x81\x01" * 30_000, b"\xc1", b"\xd6\xff\x00\x00\x00\x00",
    b"\xa3\xff\xfe\xfd", b"\xcb\x7f\xf8" + bytes(6),
])  # fmt: skip
"""Lengths that nothing follows, nesting without end, what is no value, text that is no UTF-8."""


def _message(kind: Any) -> st.SearchStrategy[bytes]:
    return values_of(kind).map(msgspec.msgpack.encode)


def _tree(kind: Any) -> st.SearchStrategy[bytes]:
    """A message that is not quite one."""
    return _message(kind).map(msgspec.msgpack.decode).flatmap(bent).map(msgspec.msgpack.encode)


@st.composite
def _claiming(draw: st.DrawFn, kind: Any) -> bytes:
    """A message that goes on as something else."""
    data, claim = draw(_message(kind)), draw(_CLAIMS)
    at = draw(st.integers(0, len(data)))
    return data[:at] + claim + data[at + draw(st.integers(0, 6)) :]


@st.composite
def _stream(draw: st.DrawFn, kind: Any) -> list[bytes]:
    """Frames, most of them framed as they should be, in pieces."""
    bodies = draw(st.lists(_message(kind) | _tree(kind) | _claiming(kind) | st.binary(max_size=40), max_size=4))
    data = b"".join(struct.pack("<I", len(body)) + body for body in bodies)
    data += draw(
        st.binary(max_size=8) | st.sampled_from([struct.pack("<I", MAX_FRAME), struct.pack("<I", MAX_FRAME + 1)])
    )
    cuts = sorted(draw(st.lists(st.integers(0, len(data)), max_size=6)))
    return [data[a:b] for a, b in pairwise([0, *cuts, len(data)])]


def _check(reader: Callable[[], FrameReader[Any]]) -> Callable[[list[bytes]], None]:
    def check(pieces: list[bytes]) -> None:
        frames = reader()
        try:
            for piece in pieces:
                list(frames.feed(piece))
            frames.finish()
        except WireError as error:
            assert str(error)

    return check


TARGETS = (
    Target("events", _stream(EngineEvent), _check(event_reader)),
    Target("commands", _stream(Inbound), _check(command_reader)),
)
