"""How reports become state: folded once, event by event, while everybody who wants to know is told.

The mirror is applied here and nowhere else in the view. Knows the mirror and that there are listeners, not what
they make of it.
"""

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from pagedchat.engine.mirror import CacheMirror
from pagedchat.events import StepReport

Hears = Mapping[type, Callable[[Any], None]]
"""Kind of event -> what is called with each one, while the mirror stands as it stood when the event happened."""


class Listener(Protocol):
    """Follows a fold. What the mirror knows it asks the mirror, so that it need not read reports itself."""

    def hears(self) -> Hears:
        """The kinds of events that it wants to know of."""

    def take(self, report: StepReport) -> None:
        """The mirror has folded all of the report in; `changed_since` tells the blocks that it changed."""


class Fold:
    """Calling it takes in the next report.

    Args:
        mirror: what is folded; all listeners look at the same one.
        listeners: in the order in which they are told.
    """

    def __init__(self, mirror: CacheMirror, listeners: Sequence[Listener]) -> None:
        self._mirror = mirror
        self._hearing: defaultdict[type, list[Callable[[Any], None]]] = defaultdict(list)
        for listener in listeners:
            for kind, hear in listener.hears().items():
                self._hearing[kind].append(hear)
        self._taking = [listener.take for listener in listeners]

    def __call__(self, report: StepReport) -> None:
        """Fold it, telling each event before it changes the mirror, and the report when it has."""
        mirror, hearing = self._mirror, self._hearing
        mirror.begin_report()
        for event in report.events:
            for hear in hearing[type(event)]:
                hear(event)
            mirror.apply_event(event)
        mirror.end_report(report)
        for take in self._taking:
            take(report)
