"""A recorded run of one engine, as long as it is or so far, read in pieces: no more is in memory than is looked at.

A *position* is a number of reports: position 0 is before the first one, position n after the n-th. Many positions
can have the same step (commands are reported between steps too); a step stands for the last of them. Whether the
reports lie in a finished file or are being recorded at this moment makes no difference here.
"""

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from typing import NamedTuple

import msgspec

from pagedchat.engine.mirror import CacheMirror
from pagedchat.events import StepReport
from pagedchat.trace.bodies import Start, decode_keyframe
from pagedchat.trace.chunk_file import ChunkFile
from pagedchat.trace.chunk_index import Chunk, ChunkList
from pagedchat.trace.columns import unpack_reports
from pagedchat.trace.format import Kind, TraceError

KEPT_CHUNKS = 24
"""Unpacked chunks of reports kept for going back and forth."""
NONSENSE = (ValueError, LookupError, TypeError, AttributeError, OverflowError)
"""What decoding and folding raise when reports contradict themselves."""


class Recording:
    """What is known of the run, and its reports."""

    def __init__(self, start: Start) -> None:
        self.start = start
        self.first = start.first
        """The first position that can be gone to."""
        self.first_step = start.first_step
        self.token_texts: dict[int, bytes] = {}
        """What each token that occurs stands for."""
        self.labels: list[tuple[int, Mapping[int, str]]] = []
        """From which position on the sequences were called what; ascending."""
        self.tail: list[StepReport] = []
        """The last reports, where they are in no chunk yet."""
        self.ended = False
        """Whether the recording ended of its own will."""
        self.damage = ""
        """What is missing at the end of a file that was cut, in one sentence."""
        self._reports = ChunkList()
        self._keyframes = ChunkList()
        self._unpacked: OrderedDict[tuple[ChunkFile, int], list[StepReport]] = OrderedDict()

    # --- what there is ------------------------------------------------------------------------------

    @property
    def end(self) -> int:
        """The last position."""
        return self.packed_end + len(self.tail)

    @property
    def last_step(self) -> int:
        """The step of the last position."""
        if self.tail:
            return self.tail[-1].step
        return self._reports.chunks[-1].header.last_step if self._reports.chunks else self.first_step

    @property
    def chunks(self) -> list[Chunk]:
        """All reports and keyframes on disk, in the order of their positions."""
        both = [*self._keyframes.chunks, *self._reports.chunks]
        return sorted(both, key=lambda chunk: (chunk.header.first, chunk.header.kind == Kind.REPORTS))

    def begun_anew(self) -> Start:
        """What a file with all that there is begins with."""
        return msgspec.structs.replace(self.start, first=self.first, first_step=self.first_step)

    def labels_at(self, position: int) -> Mapping[int, str]:
        """What the sequences were called then."""
        index = self._labels_index(position)
        return self.labels[index][1] if index >= 0 else {}

    def _labels_index(self, position: int) -> int:
        """Which of the labels hold at a position; -1 if there are none yet."""
        return bisect_right(self.labels, position, key=lambda entry: entry[0]) - 1

    # --- reading ------------------------------------------------------------------------------------

    def reports(self, start: int, stop: int) -> Iterator[StepReport]:
        """The reports from position `start` to position `stop`.

        Raises:
            TraceError: some of them are damaged.
        """
        position = start
        while position < stop:
            stretch = self.stretch_at(position)
            yield from stretch.load()[position - stretch.first : stop - stretch.first]
            position = stretch.end

    def report(self, position: int) -> StepReport:
        """The report that led to a position."""
        stretch = self.stretch_at(position - 1)
        return stretch.load()[position - 1 - stretch.first]

    def mirror_at(self, position: int) -> CacheMirror:
        """The cache at a position: the keyframe before it, and the reports from there on.

        Raises:
            TraceError: what it would be made of is damaged.
        """
        index = self._keyframes.before(position)
        chunk = self._keyframes.chunks[index] if index >= 0 else None
        try:
            mirror = self._keyframe(chunk) if chunk else self.start.empty_mirror()
            for report in self.reports(mirror.num_reports, position):
                mirror.apply(report)
        except NONSENSE as error:
            raise nonsense(self.step_at(position)) from error
        return mirror

    def step_at(self, position: int) -> int:
        """The step of a position."""
        return self.report(position).step if position > self.first else self.first_step

    def position_of(self, step: int) -> int:
        """The last position with this step, or with the nearest one before it."""
        if self.tail and step >= self.tail[0].step:
            return self.packed_end + bisect_right(self.tail, step, key=lambda report: report.step)
        index = self._reports.before_step(step)
        if index < 0:
            return self.first
        chunk = self._reports.chunks[index]
        return chunk.header.first + bisect_right(self._unpack(chunk), step, key=lambda report: report.step)

    def stretch_at(self, index: int) -> "Stretch":
        """The chunk, or the tail, with the report that follows position `index`.

        Raises:
            TraceError: there is no such report.
        """
        if index >= self.packed_end:
            if index < self.end:
                return Stretch(self.packed_end, self.end, len(self.tail), lambda: self.tail)
        elif index >= self.first:
            chunk = self._reports.chunks[self._reports.before(index)]
            header = chunk.header
            return Stretch(header.first, header.end, header.num_notable, lambda: self._unpack(chunk))
        raise TraceError(f"Report {index} is not in the recording.", f"It has {self.first} to {self.end - 1}.")

    def _unpack(self, chunk: Chunk) -> list[StepReport]:
        key = chunk.file, chunk.offset
        reports = self._unpacked.get(key)
        if reports is None:
            try:
                reports = unpack_reports(chunk.body())
            except NONSENSE as error:
                raise chunk.damaged() from error
            if len(reports) != chunk.header.num_reports:
                raise chunk.damaged()
            self._keep_unpacked(chunk, reports)
        self._unpacked.move_to_end(key)
        return reports

    def _keep_unpacked(self, chunk: Chunk, reports: list[StepReport]) -> None:
        self._unpacked[chunk.file, chunk.offset] = reports
        if len(self._unpacked) > KEPT_CHUNKS:
            self._unpacked.popitem(last=False)

    def _keyframe(self, chunk: Chunk) -> CacheMirror:
        try:
            return decode_keyframe(chunk.body(), self.start, chunk.header.first)
        except NONSENSE as error:
            raise chunk.damaged() from error

    @property
    def packed_end(self) -> int:
        """The position up to which reports lie in chunks."""
        chunks = self._reports.chunks
        return chunks[-1].header.end if chunks else self.first

    # --- growing ------------------------------------------------------------------------------------

    def add_reports(self, chunk: Chunk, reports: list[StepReport] | None = None) -> None:
        """A chunk with the next reports is in a file now; `reports` are these, where they are at hand."""
        self._reports.add(chunk)
        if reports is not None:
            self._keep_unpacked(chunk, reports)

    def add_keyframe(self, chunk: Chunk) -> None:
        """The cache at the end of the reports so far is in a file now."""
        self._keyframes.add(chunk)

    def set_labels(self, position: int, labels: Mapping[int, str]) -> None:
        """The sequences are called this from now on."""
        self.labels.append((position, dict(labels)))

    def drop(self, file: ChunkFile) -> None:
        """Forget what lies in the oldest file; the next one must begin with a keyframe."""
        self._reports = self._reports.without(file)
        self._keyframes = self._keyframes.without(file)
        self._unpacked.clear()
        kept = self._keyframes.chunks[0].header
        self.first, self.first_step = kept.first, kept.last_step
        del self.labels[: max(0, self._labels_index(self.first))]


class Stretch(NamedTuple):
    """Reports that lie together."""

    first: int
    """Position before them."""
    end: int
    """Position after them."""
    num_notable: int
    """How many of them have an event worth stopping at; at most."""
    load: Callable[[], list[StepReport]]


def nonsense(step: int) -> TraceError:
    """What is said where reports can be read but contradict themselves."""
    return TraceError(
        f"The trace makes no sense before step {step}.", "It was not written by pagedchat, or damaged."
    )
