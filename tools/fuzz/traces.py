"""Trace files: whatever bytes are in one, it is a recording, maybe a shorter one, or a `TraceError`; so is every
look at it, and what the screens make of it.
"""

import struct
import tempfile
import zlib
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import NamedTuple

import msgspec
from hypothesis import strategies as st

from pagedchat.cli.replay import summary_text
from pagedchat.engine import keyframe
from pagedchat.errors import PagedChatError
from pagedchat.trace.bodies import decode_keyframe, decode_start
from pagedchat.trace.format import HEADER_SIZE, PREAMBLE, Header, Kind, TraceError, read_header, unpack_body
from pagedchat.trace.reader import open_trace
from pagedchat.trace.recording import Recording
from pagedchat.trace.summary import summarize
from pagedchat.tui.chat.header import header_line
from pagedchat.view.blocks.facts import block_facts
from pagedchat.view.blocks.page import describe_block, page_lines
from pagedchat.view.blocks.table_rows import Marks, block_row, fill_words, table_entries
from pagedchat.view.blocks.table_totals import count_tables
from pagedchat.view.engine_view import EngineView
from pagedchat.view.past.chat_texts import past_text
from pagedchat.view.past.playback import Playback
from pagedchat.view.past.time_travel import TimeTravel
from pagedchat.view.sharing.prefix_tree import prefix_tree
from pagedchat.view.sharing.savings import find_twins, saving
from pagedchat.view.state.invariant import counts_agree
from pagedchat.view.timeline.phases import phase_cells, step_phases
from pagedchat.view.timeline.step_story import step_story
from tests.trace.recorded import random_run
from tools.fuzz.bent_trees import any_of, bent
from tools.fuzz.target import Target

_MARKS = Marks(set(), frozenset())
_BOMBS = (bytes(1 << 24), b"\xdd\x03\xff\xff\xff" + bytes(1 << 22), b"\x91" * 100_000, b"\xdd\xff\xff\xff\xff", b"")


_NESTED = msgspec.Raw(b"\x91" * 50_000 + b"\xc0")


class Piece(NamedTuple):
    """A chunk, opened."""

    header: Header
    body: bytes

    def packed(self) -> bytes:
        """As it stands in a file, its checksums right."""
        packed = _compressed(self.body)
        sizes = {"packed_size": len(packed), "size": len(self.body), "checksum": zlib.crc32(packed)}
        fields = struct.pack("<BIQQQIIII", *self.header._replace(**sizes))
        return fields + struct.pack("<I", zlib.crc32(fields)) + packed


@cache
def whole() -> tuple[Piece, ...]:
    """A recording of forks, rewinds, preemptions and swaps, with a keyframe after every chunk of reports."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "run.trace"
        random_run(path, moves=500, seed=2).recorder.close()
        return tuple(_pieces(path.read_bytes(), open_trace(path)))


def _pieces(data: bytes, recording: Recording) -> Iterator[Piece]:
    at = len(PREAMBLE)
    while (header := read_header(data[at : at + HEADER_SIZE])) is not None:
        packed = data[at + HEADER_SIZE : at + HEADER_SIZE + header.packed_size]
        yield Piece(header, unpack_body(header, packed) or b"")
        at += HEADER_SIZE + header.packed_size
        if header.kind == Kind.REPORTS:
            after = header._replace(
                kind=Kind.KEYFRAME, num_reports=0, first=header.end, first_step=header.last_step, num_notable=0
            )
            yield Piece(after, keyframe.encode(recording.mirror_at(header.end)))


@lru_cache(256)
def _compressed(body: bytes) -> bytes:
    return zlib.compress(body, 1)


_NUMBERS = st.sampled_from([0, 1, 2, 5, 100, 2**31, 2**32 - 1])
_FIELD_NAMES = ("kind", "num_reports", "first", "first_step", "last_step", "num_notable")


@st.composite
def _bent_piece(draw: st.DrawFn, piece: Piece) -> Piece:
    """A chunk with another body, or a header that lies."""
    how = draw(st.sampled_from(("tree", "tree", "tree", "header", "bytes", "bomb")))
    if how == "header":
        name = draw(st.sampled_from(_FIELD_NAMES))
        number = draw(st.integers(0, 255) if name == "kind" else _NUMBERS)
        return piece._replace(header=piece.header._replace(**{name: number}))
    if how == "bomb":
        return piece._replace(body=draw(any_of(_BOMBS)))
    if how == "bytes" or not piece.body:
        at = draw(st.integers(0, len(piece.body)))
        return piece._replace(
            body=piece.body[:at] + draw(st.binary(max_size=9)) + piece.body[at + draw(st.integers(0, 9)) :]
        )
    try:
        tree = draw(bent(msgspec.msgpack.decode(piece.body), st.integers(-300, 300) | any_of([_NESTED])))
        return piece._replace(body=msgspec.msgpack.encode(tree))
    except (
        OverflowError,
        TypeError,
        RecursionError,
        UnicodeDecodeError,
        msgspec.MsgspecError,
    ):  # bent already, or nothing that msgpack carries
        return piece


@st.composite
def _files(draw: st.DrawFn) -> bytes:
    """The recording with pieces bent, dropped, doubled and moved, and then bytes."""
    pieces = list(whole())
    for _ in range(draw(st.integers(0, 3))):
        at, to = (draw(st.integers(0, max(0, len(pieces) - 1))) for _ in range(2))
        if not pieces:
            break
        how = draw(st.sampled_from(("bend", "bend", "bend", "bend", "drop", "double", "move")))
        if how == "bend":
            pieces[at] = draw(_bent_piece(pieces[at]))
        elif how == "double":
            pieces.insert(to, pieces[at])
        else:
            piece = pieces.pop(at)
            if how == "move":
                pieces.insert(to, piece)
    data = PREAMBLE + b"".join(piece.packed() for piece in pieces)
    if draw(st.integers(0, 3)) == 0:
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(st.binary(max_size=5)) + data[at + draw(st.integers(0, 200)) :]
    return data[: draw(st.integers(0, len(data)))] if draw(st.integers(0, 5)) == 0 else data


def _look(data: bytes) -> None:
    """Open it and look at everything that a replay shows."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "bent.trace"
        path.write_bytes(data)
        with suppress(TraceError):
            _replay(path, len(data))


def _replay(path: Path, size: int) -> None:
    recording = open_trace(path)
    with suppress(PagedChatError):
        summary_text(summarize(recording, size))
    view = EngineView()
    view.token_texts = recording.token_texts
    travel = TimeTravel(view, lambda: recording, has_live=False)
    playback = Playback(travel)
    for move in _moves(travel, playback):
        with suppress(PagedChatError):
            move()
            _draw(view)


def _moves(travel: TimeTravel, playback: Playback) -> list[Callable[[], object]]:
    """What keys do in a replay."""
    first, last = travel.first, travel.last
    steps = (last, first, (first + last) // 2, first + 7, last - 1)
    goto: list[Callable[[], object]] = [partial(travel.goto, step) for step in steps]
    move: list[Callable[[], object]] = [
        travel.back,
        travel.forward,
        travel.previous_event,
        travel.next_event,
        partial(travel.back, 300),
    ]
    return [*goto, *move, playback.toggle, *[partial(playback.advance, 0.5)] * 3]


def _draw(view: EngineView) -> None:
    """Read what the panels read."""
    shown = view.shown
    mirror = shown.mirror
    assert all(str(line) for line in view.recent_events(50))
    for seq_id, sequence in list(mirror.sequences.items())[:5]:
        assert view.name(seq_id)
        past_text(view, seq_id)
        table_entries(mirror, sequence, _MARKS, 40, 0)
        fill_words(mirror, sequence)
        view.blocks_of(seq_id)
        view.shared_with(seq_id)
        view.sequence_rate(seq_id)
        for place in range(min(3, len(sequence.block_table))):
            block_row(mirror, sequence, place, _MARKS, view.token_texts, 60)
    for block_id in range(min(6, mirror.num_blocks)):
        page_lines(block_facts(view, mirror, block_id), 60)
        describe_block(view, mirror, block_id)
    for report in list(shown.history)[-3:]:
        step_story(view, report)
        phase_cells(step_phases(report.timings), 40)
    prefix_tree(mirror)
    saving(mirror)
    find_twins(mirror)
    count_tables(mirror)
    if mirror.last is not None:
        counts_agree(mirror, mirror.last)
    header_line(view, "", 120)


def _keyframe(example: tuple[bytes, int]) -> None:
    """Read it as one of the recording's; how much memory a cache of another size takes is not believed."""
    body, num_reports = example
    try:
        decode_keyframe(body, decode_start(whole()[0].body), num_reports)
    except ValueError as error:
        assert str(error)


@st.composite
def _keyframes(draw: st.DrawFn) -> tuple[bytes, int]:
    frame = draw(st.sampled_from([piece for piece in whole() if piece.header.kind == Kind.KEYFRAME]))
    return draw(_bent_piece(frame)).body, frame.header.first


TARGETS = (
    Target("traces", _files(), _look),
    Target("keyframes", _keyframes(), _keyframe),
)
