"""When blocks last changed hands: what chats share is only counted again after that. Listens to the fold."""

from typing import get_args

from pagedchat.cache_events import (
    BeamsScored,
    CacheEvent,
    SequenceExtended,
    SequenceHeld,
    SequenceParked,
    SequenceScheduled,
)
from pagedchat.engine.mirror import CacheMirror
from pagedchat.events import StepReport
from pagedchat.view.state.copying import with_own_containers
from pagedchat.view.state.fold import Hears

_CHANGES_NOTHING = {BeamsScored, SequenceExtended, SequenceScheduled, SequenceHeld, SequenceParked}
"""Events after which every block is held by the same chats and found by the same hash as before."""


class Regrouping:
    """Follows `mirror`."""

    def __init__(self, mirror: CacheMirror) -> None:
        self._mirror = mirror
        self.last = 0
        """Number of the last report after which something may be shared in another way; 0 before the first."""

    def hears(self) -> Hears:
        """All events but those that leave blocks where they are."""
        return dict.fromkeys(set(get_args(CacheEvent)) - _CHANGES_NOTHING, self._note)

    def take(self, report: StepReport) -> None:
        """A batch alone changes no owners."""

    def copy(self, mirror: CacheMirror) -> "Regrouping":
        """The same, to follow a copy of the mirror."""
        twin = with_own_containers(self)
        twin._mirror = mirror
        return twin

    def _note(self, event: CacheEvent) -> None:
        self.last = self._mirror.num_reports
