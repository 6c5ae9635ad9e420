"""How a step of the tour is written down: as a generator that acts, and waits for the engine's reports.

Whoever runs one sends it every report that comes, and `None` when it looks and there was none. What the generator
returns is what is to be said when the thing has happened.
"""

from collections.abc import Callable, Generator
from dataclasses import dataclass
from typing import TypeVar

from pagedchat.cache_events import Event
from pagedchat.events import StepReport
from pagedchat.view.tour.stage import Stage

Found = TypeVar("Found")
Kind = TypeVar("Kind", bound=Event)

Waiting = Generator[None, StepReport | None, Found]
Script = Waiting[str]


@dataclass(frozen=True, slots=True)
class TourStep:
    """One thing that is shown."""

    title: str
    text: str
    """Two to four sentences: what will happen, and why it matters."""
    awaited: str
    """What is being waited for, as the rest of "Still waiting for ..."."""
    script: Callable[[Stage], Script]


def first_event(kind: type[Kind], wanted: Callable[[Kind], bool]) -> Waiting[Kind]:
    """Wait for an event of this kind."""
    while True:
        report = yield
        for event in report.events if report is not None else ():
            if isinstance(event, kind) and wanted(event):
                return event


def until(holds: Callable[[], bool]) -> Waiting[None]:
    """Wait until something is so, whatever the reports say."""
    while not holds():
        yield
