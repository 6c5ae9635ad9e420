"""Captured steps by what they are for: those that are there, those that are being made, those that cannot be.

A step is made in pieces, none of which takes longer than a pass on the host: its kernels are looked for, and built
and loaded in the background; its memory is laid out; it is tried out; it is recorded; what was recorded is started
for the first time. Who may wait has all of it done at once (`capture`); for others it is only noted (`find`), and a
`workshop.Workshop` has the pieces done between steps of what serves meanwhile. Keeps in mind how long pieces took,
whoever had them made. Knows neither buckets nor models.
"""

import logging
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Generic, Literal, TypeVar

import torch

from pagedchat.errors import PagedChatError, first_line
from pagedchat.jit.build_ahead import BuildAhead
from pagedchat.jit.launch import NotBuiltError, build_ahead, built_only
from pagedchat.runtime.graphs.capture import GraphRecorder, Replayable, build_kernels_of
from pagedchat.runtime.graphs.decode.steps import Step

log = logging.getLogger(__name__)

Key = TypeVar("Key")
Piece = Literal["kernels", "layout", "trial", "capture", "start"]
"""What is next to be done for a step."""
_REMEMBERED = 4
"""Pieces of a kind whose length is kept in mind."""


@dataclass(slots=True)
class Making:
    """A step that is wanted and not there yet."""

    since: float
    """When it was wanted for the first time, in seconds."""
    asked: float
    """When for the last time."""
    piece: Piece = "kernels"
    kernels: BuildAhead | None = None
    """Those that are being built for it."""
    kind: Hashable = ""
    """Steps of the same kind take about as long to make."""
    step: Step | None = field(default=None, repr=False)
    """Laid out."""
    captured: Replayable | None = field(default=None, repr=False)
    """Recorded."""

    @property
    def may_go_on(self) -> bool:
        """Whether nothing that is being built is in the way."""
        return self.kernels is None or self.kernels.wait(0)


class Shelf(ABC, Generic[Key]):
    """Captured steps by key.

    Args:
        device: where they run.
        at_first_use: whether a batch waits for its step; if not, `making` has what is wanted, and `go_on` makes it.
        clock: seconds.
    """

    def __init__(
        self, device: torch.device, *, at_first_use: bool, clock: Callable[[], float] = time.perf_counter
    ) -> None:
        self._device = device
        self._recorder = GraphRecorder(device)
        self._at_first_use = at_first_use
        self._clock = clock
        self._steps: dict[Key, Replayable | None] = {}
        """None for what cannot be captured."""
        self.making: dict[Key, Making] = {}
        self._told: set[str] = set()
        self.refusal = ""
        """Why the last one that could not be captured was not, in words that go after a colon."""
        self._seconds: dict[tuple[Hashable, Piece], deque[float]] = {}

    def __contains__(self, key: Key) -> bool:
        """Whether it has been captured, or tried in vain."""
        return key in self._steps

    def forget(self) -> None:
        """All that is there and all that is being made; nothing may be under way."""
        self._steps.clear()
        self.making.clear()
        self._recorder = GraphRecorder(self._device)  # torch takes back the memory of graphs with the last of them

    def find(self, key: Key) -> Replayable | None:
        """A step if it is there; one that is not is captured, or only noted, as `at_first_use` says."""
        if self._at_first_use:
            return self.capture(key)
        self.note(key)
        return self._steps.get(key)

    def note(self, key: Key) -> None:
        """Somebody would have use for a step. At first use is early enough where `at_first_use` says so."""
        if key in self._steps or self._at_first_use:
            return
        now = self._clock()
        if key not in self.making:
            self.making[key] = Making(now, now, kind=self._kind(key))
        self.making[key].asked = now

    def expected(self, making: Making) -> float | None:
        """Seconds that the next piece of what is being made will take: as long as the quickest of the last few of
        its kind, since the others had something to load that is there by now. None while none was made."""
        return min(self._seconds.get((making.kind, making.piece), ()), default=None)

    def describe(self, key: Key) -> str:
        """A step that is being made, in words that go after "of"."""
        what = self._what(key)
        return f"{what[0].lower()}{what[1:]} ({self.making[key].kind})"

    def capture(self, key: Key) -> Replayable | None:
        """A step, made at once if it is not there, whatever that takes; None if it cannot be captured.

        Where it has to be made, what is in the buffers is lost.
        """
        if key not in self._steps:
            self.making.pop(key, None)
            try:
                self._steps[key] = self._captured(key)
            except (RuntimeError, PagedChatError) as error:  # torch says all that can go wrong with RuntimeError
                self._give_up(key, error)
        return self._steps[key]

    def kernels_of(self, keys: Iterable[Key], *, quietly: bool) -> BuildAhead | None:
        """Begin to build the kernels of steps that are not there, in the background; None where they have none.

        What is in the buffers is lost.
        """
        missing = [key for key in keys if key not in self._steps]
        began = self._clock()
        kernels = build_kernels_of([partial(self._cleared, key) for key in missing], self._device, quietly=quietly)
        for key in missing:
            self._remember(self._kind(key), "kernels", (self._clock() - began) / len(missing))
        return kernels

    def _cleared(self, key: Key) -> Step:
        """A step to be rehearsed: without kernels of ours, torch's read whatever the last one has left behind."""
        if self._device.type == "cuda":
            torch.cuda.current_stream(self._device).synchronize()  # the copies before have left the pinned memory
        self._clear(key)
        return self._make(key)

    def go_on(self, key: Key) -> None:
        """Do the next piece of what is being made. Nothing is compiled in this thread.

        What is in the buffers is lost.
        """
        making = self.making[key]
        try:
            self._do(making.piece, key, making)
        except NotBuiltError as error:  # a rehearsal does not know for what there is no room
            making.kernels = self._build(error)
            if making.piece == "capture":  # nothing can be loaded in a recording
                making.piece = "trial"
        except (RuntimeError, PagedChatError) as error:
            self._give_up(key, error)
        if key in self._steps:
            del self.making[key]

    def _do(self, piece: Piece, key: Key, making: Making) -> None:
        if making.kernels is not None and making.kernels.failure is not None:
            raise making.kernels.failure
        if piece == "kernels":
            making.piece, making.kernels = "layout", self.kernels_of([key], quietly=True)
            return
        with built_only(), self._timed(making.kind, piece):
            if making.step is None:
                making.piece, making.step = "trial", self._laid_out(key)
                return
            self._clear(key)
            if piece == "trial":
                self._recorder.try_out(making.step)
                making.piece = "capture"
            elif making.captured is None:
                making.piece, making.captured = "start", self._recorder.capture(making.step)
            else:
                self._recorder.start(making.captured)
                self._steps[key] = making.captured

    def _captured(self, key: Key) -> Replayable:
        """All of it at once, once its kernels are there; those that are not are built here."""
        kind, recorder = self._kind(key), self._recorder
        with self._timed(kind, "layout"):
            step = self._laid_out(key)
        with self._timed(kind, "trial"):
            recorder.try_out(step)
        with self._timed(kind, "capture"):
            captured = recorder.capture(step)
        with self._timed(kind, "start"):
            recorder.start(captured)
        return captured

    def _laid_out(self, key: Key) -> Step:
        self._clear(key)
        return self._make(key)

    @contextmanager
    def _timed(self, kind: Hashable, piece: Piece) -> Iterator[None]:
        """What is done inside is such a piece; one that fails says nothing of how long others take."""
        began = self._clock()
        yield
        self._remember(kind, piece, self._clock() - began)

    def _remember(self, kind: Hashable, piece: Piece, seconds: float) -> None:
        self._seconds.setdefault((kind, piece), deque(maxlen=_REMEMBERED)).append(seconds)

    def _build(self, missing: NotBuiltError) -> BuildAhead:
        return build_ahead([missing.variant], self._device.index, quietly=True)

    def _give_up(self, key: Key, error: Exception) -> None:
        """For good; what others would say in the same words is said once."""
        level = logging.DEBUG if str(error) in self._told else logging.WARNING
        self._told.add(str(error))
        self.refusal = f"{first_line(error):.200}"
        log.log(level, "%s are not captured: %s", self._what(key), error)
        self._steps[key] = None

    @abstractmethod
    def _make(self, key: Key) -> Step:
        """The step itself, over its memory."""

    @abstractmethod
    def _kind(self, key: Key) -> Hashable:
        """What steps that take about as long to make have in common."""

    @abstractmethod
    def _clear(self, key: Key) -> None:
        """Queue making everything padding: what is made is run on that."""

    @abstractmethod
    def _what(self, key: Key) -> str:
        """The plural of such a step, to begin a sentence with."""
