"""How much of a sequence had been computed before it was lost: what of it is computed again follows from that.

Fed with events of sequences by whoever hears them; knows no mirror and no words.
"""

from pagedchat.cache_events import ContentsLost, SequenceClosed, SequenceForked, SequencePreempted, SequenceRewound
from pagedchat.view.state.copying import with_own_containers
from pagedchat.view.state.fold import Hears


class ComputedOnce:
    """Leading tokens of each sequence that were computed when it was last made to give blocks up."""

    def __init__(self) -> None:
        self._lengths: dict[int, int] = {}

    def of(self, seq_id: int) -> int:
        """So many; 0 for one that never lost any, or was cut back before them."""
        return self._lengths.get(seq_id, 0)

    def copy(self) -> "ComputedOnce":
        """The same, to be fed on by itself."""
        return with_own_containers(self)

    def hears(self) -> Hears:
        """All that it is to be fed with."""
        return {
            SequencePreempted: self._lost,
            ContentsLost: self._lost,
            SequenceRewound: self._cut,
            SequenceForked: self._forked,
            SequenceClosed: self._closed,
        }

    def _lost(self, event: SequencePreempted | ContentsLost) -> None:
        self._lengths[event.seq_id] = max(event.num_tokens, self.of(event.seq_id))

    def _cut(self, event: SequenceRewound) -> None:
        if event.seq_id in self._lengths:
            self._lengths[event.seq_id] = min(event.length, self._lengths[event.seq_id])

    def _forked(self, event: SequenceForked) -> None:
        if event.seq_id in self._lengths:
            length = self._lengths[event.seq_id]
            self._lengths[event.child_id] = length if event.length < 0 else min(event.length, length)

    def _closed(self, event: SequenceClosed) -> None:
        self._lengths.pop(event.seq_id, None)
