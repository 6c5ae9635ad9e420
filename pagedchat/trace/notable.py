"""Which reports have an event worth stopping at, and where the next one is.

Allocating a block and making a full one findable is what every reply does every few steps, and why somebody waits
may change in each; everything else is an event.
"""

from pagedchat.cache_events import BeamsScored, BlockAllocated, BlockCached, BlockUncached, SequenceHeld
from pagedchat.events import StepReport
from pagedchat.trace.recording import Recording

_ROUTINE = (BeamsScored, BlockAllocated, BlockCached, BlockUncached, SequenceHeld)


def is_notable(report: StepReport) -> bool:
    """Whether something happened besides a block that filled up."""
    return any(not isinstance(event, _ROUTINE) for event in report.events)


def event_before(recording: Recording, position: int) -> int | None:
    """The last position before this one that an event led to."""
    index = position - 2
    while index >= recording.first:
        stretch = recording.stretch_at(index)
        if stretch.num_notable:
            reports = stretch.load()
            for at in range(index, stretch.first - 1, -1):
                if is_notable(reports[at - stretch.first]):
                    return at + 1
        index = stretch.first - 1
    return None


def event_after(recording: Recording, position: int) -> int | None:
    """The first position after this one that an event led to."""
    index = position
    while index < recording.end:
        stretch = recording.stretch_at(index)
        if stretch.num_notable:
            reports = stretch.load()
            for at in range(index, stretch.end):
                if is_notable(reports[at - stretch.first]):
                    return at + 1
        index = stretch.end
    return None
