"""Reports told in words, a line an event. Knows the mirror, the chats' labels and the tokens' texts; no screen."""

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType
from typing import Any

from pagedchat import cache_events as ce
from pagedchat import events as ev
from pagedchat.engine.mirror import CacheMirror
from pagedchat.step_batch import Batch, DecodeBatch
from pagedchat.view.sentences.block_tellers import BLOCK_TELLERS
from pagedchat.view.sentences.event_lines import EventLine, Told
from pagedchat.view.sentences.sequence_tellers import SEQUENCE_TELLERS
from pagedchat.view.sentences.words import block_words
from pagedchat.view.state.computed_once import ComputedOnce
from pagedchat.view.state.copying import with_own_containers
from pagedchat.view.state.fold import Hears
from pagedchat.view.timeline.phases import MIN_PHASE, phase_words, step_phases

MAX_LINES = 5000
_TELLERS: dict[type, Callable[[Any, Any], Told | None]] = {**SEQUENCE_TELLERS, **BLOCK_TELLERS}
_NO_TEXTS: Mapping[int, bytes] = MappingProxyType({})


class Narrator:
    """Tells what is folded in words. Listens to the fold, so that it sees each event with the state that it met.

    Args:
        mirror: the cache.
        name: sequence id -> label.
        token_texts: token id -> its text in UTF-8, as far as it has been told.
    """

    def __init__(
        self,
        mirror: CacheMirror,
        name: Callable[[int], str],
        token_texts: Mapping[int, bytes] = _NO_TEXTS,
    ) -> None:
        self.mirror = mirror
        self.name = name
        self.token_texts = token_texts
        self.gained: dict[int, int] = {}
        """Sequence -> device blocks that nobody else had when it was last made to give its own up."""
        self.lost: dict[int, ce.SequencePreempted | ce.ContentsLost] = {}
        """Sequences that lost what they had computed and have not run again."""
        self.once = ComputedOnce()
        self.lines: deque[EventLine] = deque(maxlen=MAX_LINES)
        """The last lines, oldest first."""
        self.num_lines = 0
        """Lines told so far, those forgotten included."""
        self._told: list[Told] = []
        """Of the report that is being folded."""
        self._allocations: list[ce.BlockAllocated] = []

    def copy(self, mirror: CacheMirror) -> "Narrator":
        """The same, to follow a copy of the mirror."""
        twin = with_own_containers(self)
        twin.mirror, twin.once = mirror, self.once.copy()
        return twin

    def hears(self) -> Hears:
        """Everything that is worth a line."""
        once = self.once.hears()
        told = {kind: partial(self._tell, teller, once.get(kind)) for kind, teller in _TELLERS.items()}
        return {**told, ce.BlockAllocated: self._allocated}

    def take(self, report: ev.StepReport) -> None:
        """Add the report's lines, and one for the step."""
        self._tell_allocations()
        if report.batch:
            self._told.append(Told("STEP", step_words(report), _seq_ids(report.batch)))
        self.lines.extend([EventLine(report.step, *told) for told in self._told])
        self.num_lines += len(self._told)
        self._told.clear()

    def _tell(
        self,
        teller: Callable[[Any, Any], Told | None],
        also: Callable[[Any], None] | None,
        event: ce.CacheEvent,
    ) -> None:
        told = teller(self, event)
        if told is not None:
            self._tell_allocations()
            self._told.append(told)
        if also is not None:
            also(event)

    def _allocated(self, event: ce.BlockAllocated) -> None:
        if self._allocations and self._allocations[-1].seq_id != event.seq_id:
            self._tell_allocations()
        self._allocations.append(event)

    def _tell_allocations(self) -> None:
        """Blocks that one sequence was given in a row share a line."""
        if self._allocations:
            given, self._allocations = self._allocations, []
            seq_id, block_ids = given[0].seq_id, tuple(event.block_id for event in given)
            words = f"{self.name(seq_id)} +{len(block_ids)}: {block_words(block_ids)}"
            self._told.append(Told("ALLOC", words, (seq_id,), block_ids))


def step_words(report: ev.StepReport) -> str:
    """`b2 2 tok  schedule .2  forward 3.1  sample .4 ms`: the batch, its tokens, the phases worth a word."""
    batch = report.batch
    is_plain = type(batch) is DecodeBatch
    tokens = len(batch) if is_plain else sum(entry.num_prefill + entry.num_decode for entry in batch)
    phases = [phase_words(phase) for phase in step_phases(report.timings) if phase.seconds >= MIN_PHASE]
    timing = f"  {'  '.join(phases)} ms" if phases else ""
    return f"b{len(batch)} {tokens} tok{timing}"


def _seq_ids(batch: Batch) -> tuple[int, ...]:
    if type(batch) is DecodeBatch:
        return tuple(batch.seq_ids)
    return tuple(entry.seq_id for entry in batch)
