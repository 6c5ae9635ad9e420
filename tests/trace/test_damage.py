"""Files that were cut, damaged, made by others: one sentence, never a traceback, never memory without bound."""

import struct
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagedchat.cache_events import BlocksFreed
from pagedchat.engine import keyframe
from pagedchat.engine.mirror import CacheMirror
from pagedchat.events import Counters as ReportCounters
from pagedchat.events import PoolCounts, QueueLengths, StepReport, Timings
from pagedchat.trace.bodies import Start, encode_start
from pagedchat.trace.columns import PackedReports, pack_reports, unpack_reports
from pagedchat.trace.format import HEADER_SIZE, MAGIC, PREAMBLE, VERSION, Kind, TraceError, pack_chunk
from pagedchat.trace.reader import open_trace
from pagedchat.trace.recording import Recording
from tests.fakes_tui import READY
from tests.trace.recorded import bare, random_run

START = pack_chunk(Kind.START, encode_start(Start("0", 0.0, READY)), 0, (0, 0))[1]


@pytest.fixture(scope="module")
def whole(tmp_path_factory) -> bytes:
    path = tmp_path_factory.mktemp("trace") / "run.trace"
    run = random_run(path, moves=900, seed=2)
    run.recorder.close()
    return path.read_bytes()


def opened(data: bytes, path: Path) -> Recording:
    path.write_bytes(data)
    return open_trace(path)


def walk(recording: Recording) -> None:
    """Look at everything that a reader can ask for."""
    for position in range(recording.first, recording.end + 1, max(1, recording.end // 6)):
        recording.mirror_at(position)
        recording.step_at(position)
    recording.position_of(recording.last_step // 2)
    list(recording.reports(recording.first, recording.end))


def refused(data: bytes, path: Path) -> str:
    with pytest.raises(TraceError) as caught:
        walk(opened(data, path))
    assert caught.value.hint
    return str(caught.value)


# --- not a trace of this program ----------------------------------------------------------------------


def test_what_is_no_trace(tmp_path) -> None:
    path = tmp_path / "x"
    for data in (b"", b"hello", MAGIC[:-1], b"\x1f\x8b" + bytes(400)):
        assert "is not a trace of pagedchat." in refused(data, path)
    with pytest.raises(TraceError, match="does not exist"):
        open_trace(tmp_path / "nothing")
    with pytest.raises(TraceError, match="is not a file"):
        open_trace(tmp_path)


def test_another_version_says_so(tmp_path, whole: bytes) -> None:
    other = MAGIC + struct.pack("<H", VERSION + 6) + whole[len(PREAMBLE) :]
    assert f"is a trace of format {VERSION + 6}; this program reads format {VERSION}." in refused(
        other, tmp_path / "x"
    )


def test_a_file_without_a_beginning(tmp_path) -> None:
    assert "was cut before the recording began" in refused(PREAMBLE, tmp_path / "x")
    assert "was cut before the recording began" in refused(PREAMBLE + START[:-4], tmp_path / "x")
    nonsense = pack_chunk(Kind.START, b"\x93\x01\x02\x03", 0, (0, 0))[1]
    assert "does not say what was recorded" in refused(PREAMBLE + nonsense, tmp_path / "x")


def test_a_pool_beyond_all_measure_is_not_believed(tmp_path) -> None:
    for changes in ({"num_blocks": 1 << 60}, {"num_host_blocks": 1 << 40}, {"block_size": 0}, {"num_blocks": -1}):
        info = msgspec.structs.replace(READY, **changes)
        start = pack_chunk(Kind.START, encode_start(Start("0", 0.0, info)), 0, (0, 0))[1]
        assert "does not say what was recorded" in refused(PREAMBLE + start, tmp_path / "x")


# --- cut and damaged ----------------------------------------------------------------------------------


def test_a_cut_file_is_read_up_to_its_last_whole_chunk(tmp_path, whole: bytes) -> None:
    complete = opened(whole, tmp_path / "whole")
    for keep in (len(whole) - 1, len(whole) // 2, len(whole) // 3):
        cut = opened(whole[:keep], tmp_path / "cut")
        assert not cut.ended
        assert cut.damage == f"The file was cut after step {cut.last_step}."
        assert 0 < cut.end <= complete.end
        assert list(cut.reports(0, cut.end)) == list(complete.reports(0, cut.end))
        assert bare(cut.mirror_at(cut.end)) == bare(complete.mirror_at(cut.end))


def test_a_damaged_chunk_is_named_and_the_rest_can_be_read(tmp_path, whole: bytes) -> None:
    complete = opened(whole, tmp_path / "whole")
    second = [chunk for chunk in complete.chunks if chunk.header.kind == Kind.REPORTS][1]
    data = bytearray(whole)
    data[second.offset + HEADER_SIZE + 20] ^= 0x10
    damaged = opened(bytes(data), tmp_path / "damaged")
    header = second.header
    with pytest.raises(TraceError, match=f"damaged between steps {header.first_step} and {header.last_step}"):
        damaged.mirror_at(header.end)
    assert bare(damaged.mirror_at(header.first)) == bare(complete.mirror_at(header.first))


def test_something_behind_the_end_is_told(tmp_path, whole: bytes) -> None:
    assert opened(whole + b"more", tmp_path / "x").damage.startswith("Something that is no part of the recording")


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(at=st.integers(0, 1 << 30), flip=st.integers(1, 255), cut=st.integers(0, 1 << 30), both=st.booleans())
def test_flipped_and_cut_files_give_a_trace_or_an_error(tmp_path, whole, at, flip, cut, both) -> None:
    data = bytearray(whole)
    data[at % len(data)] ^= flip
    if both:
        del data[cut % len(data) :]
    with suppress(TraceError):
        recording = opened(bytes(data), tmp_path / "x")
        assert recording.end <= 2000
        walk(recording)


# --- well-formed lies ---------------------------------------------------------------------------------


def lying(body: bytes, kind: Kind = Kind.REPORTS, num_reports: int = 1) -> bytes:
    return PREAMBLE + START + pack_chunk(kind, body, 0, (1, 1), num_reports)[1]


def a_report(*events: object) -> StepReport:
    pool = PoolCounts(256, 256, 0, 0, 0, 0, 0, 0)
    return StepReport(1, 0.1, [], list(events), pool, QueueLengths(0, 0, 0, 0), Timings(), ReportCounters())


def test_reports_that_contradict_themselves(tmp_path) -> None:
    unknown = pack_reports([a_report(BlocksFreed(9, [1]))])
    assert "makes no sense before step 1" in refused(lying(unknown), tmp_path / "x")


@pytest.mark.parametrize(
    ("kind", "body"),
    [
        (Kind.REPORTS, b"\x00"),
        (Kind.REPORTS, pack_reports([a_report(), a_report()])),
        (Kind.KEYFRAME, b"\x91\xaakeyframe-1"),
    ],
)
def test_bodies_that_are_something_else(tmp_path, kind: Kind, body: bytes) -> None:
    assert "is damaged between steps" in refused(lying(body, kind, kind == Kind.REPORTS), tmp_path / "x")


@pytest.mark.parametrize("kind", [Kind.TEXTS, Kind.LABELS, 77])
def test_a_chunk_that_cannot_be_understood_ends_the_file(tmp_path, kind: int) -> None:
    recording = opened(lying(b"\xc1", kind, 0), tmp_path / "x")
    assert (recording.end, recording.damage) == (0, "The file was cut after step 0.")


def test_a_body_is_never_larger_than_its_header_says(tmp_path) -> None:
    bomb = lying(bytes(1 << 22))
    at = len(PREAMBLE) + len(START)
    fields = bytearray(bomb[at : at + HEADER_SIZE])
    struct.pack_into("<I", fields, 37, 10)
    struct.pack_into("<I", fields, 45, __import__("zlib").crc32(fields[:45]))
    assert "is damaged" in refused(bomb[:at] + bytes(fields) + bomb[at + HEADER_SIZE :], tmp_path / "x")


@pytest.mark.parametrize("field", ["batch_sizes", "event_counts", "num_sampled", "steps"])
@pytest.mark.parametrize("value", [-1, 5])
def test_counts_that_do_not_add_up(field: str, value: int) -> None:
    packed = msgspec.msgpack.decode(pack_reports([a_report()]), type=PackedReports)
    getattr(packed, field).append(value)
    with pytest.raises(ValueError):  # noqa: PT011 - whichever count is met first
        unpack_reports(msgspec.msgpack.encode(packed))


NESTED = msgspec.Raw(b"\x91" * 50_000 + b"\xc0")
"""Deeper than any reader goes down."""


def test_bodies_nested_without_end(tmp_path) -> None:
    start = msgspec.msgpack.decode(encode_start(Start("0", 0.0, READY)))
    start[2][16] = {"a": NESTED}
    deep = pack_chunk(Kind.START, msgspec.msgpack.encode(start), 0, (0, 0))[1]
    assert "does not say what was recorded" in refused(PREAMBLE + deep, tmp_path / "x")
    texts = opened(lying(msgspec.msgpack.encode([[], [], NESTED]), Kind.TEXTS, 0), tmp_path / "x")
    assert texts.damage == "The file was cut after step 0."
    packed = [*msgspec.msgpack.decode(pack_reports([a_report()])), NESTED]
    assert "is damaged between" in refused(lying(msgspec.msgpack.encode(packed)), tmp_path / "x")
    frame = [*msgspec.msgpack.decode(keyframe.encode(CacheMirror(4, 4))), NESTED]
    assert "is damaged between" in refused(lying(msgspec.msgpack.encode(frame), Kind.KEYFRAME, 0), tmp_path / "x")
