"""Many reports as columns of numbers, which compress far better than reports one after the other.

Numbers that grow (steps, times, counters) are kept as differences; times are whole microseconds, the one thing that
is rounded. Knows no files. What is unpacked has the right types, but only folding it
shows whether it makes sense.
"""

from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, chain, pairwise
from typing import Any, TypeVar

import msgspec

from pagedchat.cache_events import CacheEvent
from pagedchat.events import Counters, PoolCounts, QueueLengths, StepReport, Timings
from pagedchat.step_batch import Batch, BatchEntry, DecodeBatch

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
    drafted: Column = []
    """Of all batch entries, as `decodes`; empty where nobody had a draft, and in old traces."""


_DECODER: "msgspec.msgpack.Decoder[PackedReports]" = msgspec.msgpack.Decoder(PackedReports)
_ENCODER = msgspec.msgpack.Encoder()


def pack_reports(reports: Sequence[StepReport]) -> bytes:
    """The reports as bytes."""
    entries = _EntryColumns()
    for report in reports:
        entries.add(report.batch)
    return _ENCODER.encode(
        PackedReports(
            steps=_differences(report.step for report in reports),
            times=_differences(_micros(report.time) for report in reports),
            timings=_columns([map(_micros, _values(report.timings)) for report in reports]),
            pools=_growing(report.pool for report in reports),
            queues=_growing(report.queues for report in reports),
            counters=_growing(report.counters for report in reports),
            batch_sizes=[len(report.batch) for report in reports],
            seq_ids=entries.seq_ids,
            prefills=entries.prefills,
            decodes=entries.decodes,
            num_sampled=entries.num_sampled,
            sampled=entries.sampled,
            event_counts=[len(report.events) for report in reports],
            events=[event for report in reports for event in report.events],
            drafted=entries.drafted if any(entries.drafted) else [],
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
        _batches(packed),
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


class _EntryColumns:
    """The columns of batch entries, in the making."""

    def __init__(self) -> None:
        self.seq_ids: Column = []
        self.prefills: Column = []
        self.decodes: Column = []
        self.num_sampled: Column = []
        self.sampled: Column = []
        self.drafted: Column = []

    def add(self, batch: Batch) -> None:
        """One report's entries."""
        if type(batch) is DecodeBatch:
            self._add_decodes(batch)
            return
        for entry in batch:
            self.seq_ids.append(entry.seq_id)
            self.prefills.append(entry.num_prefill)
            self.decodes.append(entry.num_decode)
            self.num_sampled.append(len(entry.token_ids))
            self.sampled += entry.token_ids
            self.drafted.append(entry.num_drafted)

    def _add_decodes(self, batch: DecodeBatch) -> None:
        ones = [1] * len(batch)
        self.seq_ids += batch.seq_ids
        self.prefills += [0] * len(batch)
        self.decodes += ones
        self.num_sampled += ones
        self.sampled += batch.token_ids
        self.drafted += [0] * len(batch)


def _batches(packed: PackedReports) -> Iterator[Batch]:
    """Of each report; what is nothing but decodes of one token is read as that."""
    sampled = _sliced(packed.sampled, packed.num_sampled)
    sizes = packed.batch_sizes
    drafted = packed.drafted or [0] * len(packed.seq_ids)
    columns = (packed.seq_ids, packed.prefills, packed.decodes, packed.num_sampled, list(sampled), drafted)
    last_ids: Column = []
    for seq_ids, prefills, decodes, num_sampled, token_ids, num_drafted in zip(
        *[_sliced(c, sizes) for c in columns], strict=True
    ):
        ones = [1] * len(seq_ids)
        if seq_ids and decodes == ones == num_sampled and not any(prefills) and not any(num_drafted):
            last_ids = last_ids if last_ids == seq_ids else seq_ids
            yield DecodeBatch(last_ids, [token_id for (token_id,) in token_ids])
        else:
            yield list(map(BatchEntry, seq_ids, prefills, decodes, token_ids, num_drafted))


V = TypeVar("V")


def _sliced(values: list[V], sizes: Column) -> Iterator[list[V]]:
    """The values in pieces of these sizes, none of them left over."""
    ends = list(accumulate(sizes))
    if min(sizes, default=0) < 0 or len(values) != (ends[-1] if ends else 0):
        raise ValueError("sizes that do not add up to what there is")
    return (values[end - size : end] for end, size in zip(ends, sizes, strict=True))
