"""Reports told in words, a line an event. Knows the mirror, the chats' labels and the tokens' texts; no screen."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

from pagedchat import events as ev
from pagedchat.engine.mirror import CacheMirror
from pagedchat.view.sentences.block_tellers import BLOCK_TELLERS
from pagedchat.view.sentences.event_lines import EventLine, Told
from pagedchat.view.sentences.sequence_tellers import SEQUENCE_TELLERS
from pagedchat.view.sentences.words import block_words, milliseconds
from pagedchat.view.timeline.phases import MIN_PHASE, step_phases

_TELLERS = {**SEQUENCE_TELLERS, **BLOCK_TELLERS}
_NO_TEXTS: Mapping[int, bytes] = MappingProxyType({})


class Narrator:
    """Tells reports in words.

    Args:
        mirror: the cache, folded by the narrator itself so that it sees each event with the state that it met.
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
        self.lost: dict[int, ev.SequencePreempted] = {}
        """Preempted sequences that have not run again."""
        self._step = 0
        self._lines: list[EventLine] = []
        self._allocations: list[ev.BlockAllocated] = []

    def fold(self, report: ev.StepReport) -> list[EventLine]:
        """Fold the report into the mirror, and tell it."""
        self._step = report.step
        self.mirror.apply(report, before=self._tell)
        self._tell_allocations()
        if report.batch:
            self._add(Told("STEP", step_words(report), tuple(entry.seq_id for entry in report.batch)))
        lines, self._lines = self._lines, []
        return lines

    def _tell(self, event: ev.CacheEvent) -> None:
        if isinstance(event, ev.BlockAllocated):
            if self._allocations and self._allocations[-1].seq_id != event.seq_id:
                self._tell_allocations()
            self._allocations.append(event)
        elif (teller := _TELLERS.get(type(event))) is not None:
            self._tell_allocations()
            self._add(teller(self, event))

    def _tell_allocations(self) -> None:
        """Blocks that one sequence was given in a row share a line."""
        if self._allocations:
            given, self._allocations = self._allocations, []
            seq_id, block_ids = given[0].seq_id, tuple(event.block_id for event in given)
            words = f"{self.name(seq_id)} +{len(block_ids)}: {block_words(block_ids)}"
            self._add(Told("ALLOC", words, (seq_id,), block_ids))

    def _add(self, told: Told) -> None:
        self._lines.append(EventLine(self._step, *told))


def step_words(report: ev.StepReport) -> str:
    """`b2 2 tok  schedule .2  forward 3.1  sample .4 ms`: the batch, its tokens, the phases worth a word."""
    tokens = sum(entry.num_prefill + entry.num_decode for entry in report.batch)
    phases = [
        f"{phase.name} {milliseconds(phase.seconds)}"
        for phase in step_phases(report.timings)
        if phase.seconds >= MIN_PHASE
    ]
    timing = f"  {'  '.join(phases)} ms" if phases else ""
    return f"b{len(report.batch)} {tokens} tok{timing}"
