"""Many reports as columns of numbers, which compress far better than reports one after the other.

Numbers that grow (steps, times, counters) are kept as differences; times are whole microseconds, the one thing that
is rounded. Knows no files. What is unpacked has the right types, but only folding it
shows whether it makes sense.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, TypeVar

import msgspec

from pagedchat.events import BatchEntry, CacheEvent, Counters, PoolCounts, QueueLengths, StepReport, Timings

T = TypeVar("T", PoolCounts, QueueLengths, Counters)
Column = list[int]
_MICRO = 1e6


class PackedReports(msgspec.Struct, array_like=True, gc=False):
    """Reports, a column a field; everything but the events has as many entries as there are reports."""

    steps: Column
    times: Column
    timings: list[Column]
    pools: list[Column]
    queues: list[Column]
    counters: list[Column]
    batch_sizes: Column
    seq_ids: Column
    """Of all batch entries of all reports, as the following columns."""
    prefills: Column
    decodes: Column
    num_sampled: Column
    sampled: Column
    """The tokens of all batch entries."""
    event_counts: Column
    events: list[CacheEvent]


_DECODER: "msgspec.msgpack.Decoder[PackedReports]" = msgspec.msgpack.Decoder(PackedReports)
_ENCODER = msgspec.msgpack.Encoder()


def pack_reports(reports: Sequence[StepReport]) -> bytes:
    """The reports as bytes."""
    entries = [entry for report in reports for entry in report.batch]
    return _ENCODER.encode(
        PackedReports(
            steps=_differences(report.step for report in reports),
            times=_differences(_micros(report.time) for report in reports),
            timings=_columns([map(_micros, _values(report.timings)) for report in reports]),
            pools=_growing(report.pool for report in reports),
            queues=_growing(report.queues for report in reports),
            counters=_growing(report.counters for report in reports),
            batch_sizes=[len(report.batch) for report in reports],
            seq_ids=[entry.seq_id for entry in entries],
            prefills=[entry.num_prefill for entry in entries],
            decodes=[entry.num_decode for entry in entries],
            num_sampled=[len(entry.token_ids) for entry in entries],
            sampled=[token_id for entry in entries for token_id in entry.token_ids],
            event_counts=[len(report.events) for report in reports],
            events=[event for report in reports for event in report.events],
        )
    )


def unpack_reports(data: bytes) -> list[StepReport]:
    """The reports that `pack_reports` packed.

    Raises:
        ValueError: the bytes are something else.
    """
    try:
        packed = _DECODER.decode(data)
    except (msgspec.MsgspecError, RecursionError) as error:
        raise ValueError(f"not reports: {error}") from error
    rows = zip(
        accumulate(packed.steps),
        accumulate(packed.times),
        _sliced(_entries(packed), packed.batch_sizes),
        _sliced(packed.events, packed.event_counts),
        _grown(PoolCounts, packed.pools),
        _grown(QueueLengths, packed.queues),
        _timings(packed.timings),
        _grown(Counters, packed.counters),
        strict=True,
    )
    return [StepReport(step, time / _MICRO, *others) for step, time, *others in rows]


# --- columns ----------------------------------------------------------------------------------------


def _micros(seconds: float) -> int:
    return round(seconds * _MICRO)


def _values(struct: msgspec.Struct) -> Iterator[Any]:
    return (getattr(struct, name) for name in struct.__struct_fields__)


def _columns(rows: Sequence[Iterable[int]]) -> list[Column]:
    return [list(column) for column in zip(*rows, strict=True)]


def _differences(values: Iterable[int]) -> Column:
    return [after - before for before, after in pairwise(chain((0,), values))]


def _growing(structs: Iterable[msgspec.Struct]) -> list[Column]:
    return [_differences(column) for column in _columns([tuple(_values(struct)) for struct in structs])]


def _grown(kind: type[T], columns: list[Column]) -> Iterator[T]:
    return (kind(*row) for row in zip(*map(accumulate, columns), strict=True))


def _timings(columns: list[Column]) -> Iterator[Timings]:
    return (Timings(*[value / _MICRO for value in row]) for row in zip(*columns, strict=True))


def _entries(packed: PackedReports) -> list[BatchEntry]:
    sampled = _sliced(packed.sampled, packed.num_sampled)
    columns = zip(packed.seq_ids, packed.prefills, packed.decodes, sampled, strict=True)
    return [BatchEntry(*row) for row in columns]


V = TypeVar("V")


def _sliced(values: list[V], sizes: Column) -> Iterator[list[V]]:
    """The values in pieces of these sizes, none of them left over."""
    ends = list(accumulate(sizes))
    if min(sizes, default=0) < 0 or len(values) != (ends[-1] if ends else 0):
        raise ValueError("sizes that do not add up to what there is")
    return (values[end - size : end] for end, size in zip(ends, sizes, strict=True))
