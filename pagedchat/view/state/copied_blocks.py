"""What copy-on-write copied: blocks of the last moments, and how many for each sequence. Listens to the fold."""

from collections import Counter, deque

from pagedchat.cache_events import BlockCopied, SequenceClosed
from pagedchat.engine.mirror import CacheMirror
from pagedchat.events import StepReport
from pagedchat.view.state.copying import with_own_containers
from pagedchat.view.state.fold import Hears

FRESH_REPORTS = 30
"""A copied block is shown as just copied for so many reports: a second or so of decoding."""


class CopiedBlocks:
    """What was copied into, as far as `mirror` has been folded."""

    def __init__(self, mirror: CacheMirror) -> None:
        self._mirror = mirror
        self._recent: deque[tuple[int, int]] = deque()
        """(number of the report, block that was copied into), of the last `FRESH_REPORTS` reports."""
        self._by_sequence: Counter[int] = Counter()

    def hears(self) -> Hears:
        """Copies, and who is gone."""
        return {BlockCopied: self._copied, SequenceClosed: self._closed}

    def take(self, report: StepReport) -> None:
        """Copies grow old."""
        oldest = self._mirror.num_reports - FRESH_REPORTS
        while self._recent and self._recent[0][0] <= oldest:
            self._recent.popleft()

    def copy(self, mirror: CacheMirror) -> "CopiedBlocks":
        """The same, to follow a copy of the mirror."""
        twin = with_own_containers(self)
        twin._mirror = mirror
        return twin

    def fresh(self) -> set[int]:
        """Blocks in use that were copied into just now."""
        return {block_id for _, block_id in self._recent if self._mirror.ref_counts[block_id]}

    def count(self, seq_id: int) -> int:
        """Blocks copied for a sequence since it was opened or forked."""
        return self._by_sequence[seq_id]

    def _copied(self, event: BlockCopied) -> None:
        self._recent.append((self._mirror.num_reports, event.dst))
        self._by_sequence[event.seq_id] += 1

    def _closed(self, event: SequenceClosed) -> None:
        self._by_sequence.pop(event.seq_id, None)
