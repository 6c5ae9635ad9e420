"""Records every engine of a run of the program from its first report on: into a file, or into one without a name.

The file without a name is kept below a size: when it is half full a second one is begun, and when that is half full
too the first is dropped, so that at least the later half of what fits can always be gone back to. When writing
fails, recording ends and the program goes on. Knows events and files, no screen.
"""

import time
from collections.abc import Callable, Mapping
from itertools import count
from pathlib import Path

from pagedchat.engine.mirror import CacheMirror
from pagedchat.events import CacheKeyframe, EngineDied, EngineEvent, EngineReady, Steps, TokenTexts
from pagedchat.trace.chunk_file import ChunkFile, new_file, scratch_file
from pagedchat.trace.format import PREAMBLE, TraceError
from pagedchat.trace.recording import Recording
from pagedchat.trace.writer import TraceWriter

MAX_SCRATCH = 256 * 1024**2
"""Bytes of files without a name."""
FLUSH_SECONDS = 2.0
"""A report is in a named file after so many seconds at the latest, whatever happens to the program then."""


class Recorder:
    """Writes one recording after the other: a new engine begins a new one.

    Args:
        path: where to; without it only for this run of the program.
        max_scratch: bytes that files without a name may have together.
        clock: seconds.
        make_file: makes a recording's file, by the path (None: one without a name) and whether it is the first.
        joins: an engine is recorded from a keyframe on, not from its start.

    Raises:
        TraceError: the file cannot be made, or has something in it already.
    """

    def __init__(
        self,
        path: Path | None = None,
        max_scratch: int = MAX_SCRATCH,
        clock: Callable[[], float] = time.monotonic,
        make_file: Callable[[Path | None, bool], ChunkFile] | None = None,
        *,
        joins: bool = False,
    ) -> None:
        self.problem: TraceError | None = None
        """Why nothing is recorded any more."""
        self._path = path
        self._max_segment = max_scratch // 2
        self._clock = clock
        self._make_file = make_file or _make_file
        self._joins = joins
        self._info: EngineReady | None = None
        """Of an engine whose keyframe is awaited."""
        self._texts: dict[int, bytes] = {}
        """What tokens stand for, told before that."""
        self._writer: TraceWriter | None = None
        self._files: list[ChunkFile] = []
        """Of the present recording, oldest first."""
        self._flushed = clock()
        if path is not None:
            self._files = [self._make_file(path, True)]
            self._files[0].append(PREAMBLE)

    @property
    def recording(self) -> Recording | None:
        """The present engine's, or the last one's; None before there was one."""
        return self._writer.recording if self._writer else None

    # --- what is heard ------------------------------------------------------------------------------

    def apply(self, event: EngineEvent, mirror: CacheMirror | None, labels: Mapping[int, str]) -> None:
        """Record an event that `mirror` has just folded."""
        if self.problem is not None:
            return
        try:
            match event:
                case EngineReady() if self._joins:
                    self._info = event
                case EngineReady():
                    self._begin(event)
                case CacheKeyframe() if self._info is not None and mirror is not None:
                    self._begin(self._info, mirror)
                case TokenTexts(token_ids=token_ids, texts=texts):
                    self._add_texts(dict(zip(token_ids, texts, strict=True)))
                case Steps(reports=reports) if self._writer is not None and mirror is not None:
                    self._writer.set_labels(labels)
                    self._writer.add(reports, mirror)
                    self._keep_small(self._writer, mirror)
                case EngineDied():
                    self._finish()
        except TraceError as error:
            self.problem = error

    def keep_up(self) -> None:
        """To be called now and then: what waits to be written does not wait for ever."""
        if self._path is None or self._clock() < self._flushed + FLUSH_SECONDS:
            return
        self._flushed = self._clock()
        try:
            if self._writer is not None and self.problem is None:
                self._writer.flush()
        except TraceError as error:
            self.problem = error

    def close(self) -> None:
        """Nothing more will come."""
        try:
            if self.problem is None:
                self._finish()
        except TraceError as error:
            self.problem = error

    # --- files --------------------------------------------------------------------------------------

    def _add_texts(self, texts: dict[int, bytes]) -> None:
        if self._writer is not None:
            self._writer.add_texts(texts)
        elif self._joins:
            self._texts |= texts

    def _begin(self, info: EngineReady, mirror: CacheMirror | None = None) -> None:
        if self._writer is not None:
            self._finish()
            for file in self._files:
                file.close()
            self._files = []
        if not self._files:
            self._files = [self._make_file(self._path, False)]
        texts = dict(self._writer.recording.token_texts) if self._writer is not None and mirror is not None else {}
        self._writer = TraceWriter(self._files[0], info, mirror)
        self._writer.add_texts(texts | self._texts)
        self._texts.clear()

    def _keep_small(self, writer: TraceWriter, mirror: CacheMirror) -> None:
        if self._path is not None or self._files[-1].size < self._max_segment:
            return
        self._files.append(self._make_file(None, False))
        writer.go_on_in(self._files[-1], mirror)
        if len(self._files) > 2:
            oldest = self._files.pop(0)
            writer.recording.drop(oldest)
            oldest.close()

    def _finish(self) -> None:
        if self._writer is not None and not self._writer.recording.ended:
            self._writer.finish()


def _make_file(path: Path | None, is_first: bool) -> ChunkFile:
    if path is None:
        return scratch_file()
    return new_file(path) if is_first else _next_file(path)


def _next_file(path: Path) -> ChunkFile:
    """Beside the first engine's file: `run.2.trace` after `run.trace`."""
    for number in count(2):
        candidate = path.with_name(f"{path.stem}.{number}{path.suffix}")
        if not candidate.exists():
            return new_file(candidate)
    raise AssertionError("there is always a next number")
