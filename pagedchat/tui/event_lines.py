"""Cache events told in words, one line each. Knows the mirror and the chats' labels, not the screen."""

from collections.abc import Callable
from typing import Any, Literal, NamedTuple

from pagedchat import events as ev
from pagedchat.engine.mirror import CacheMirror

Group = Literal["sequences", "blocks", "steps"]

GROUPS: dict[str, Group] = {
    "OPEN": "sequences", "EXTEND": "sequences", "RUN": "sequences", "PARK": "sequences", "FORK": "sequences",
    "REWIND": "sequences", "PREEMPT": "sequences", "CLOSE": "sequences",
    "ALLOC": "blocks", "HIT": "blocks", "COW": "blocks", "FREE": "blocks", "EVICT": "blocks", "SWAP": "blocks",
    "STEP": "steps",
}  # fmt: skip
"""Every kind of line, and the group it is filtered by."""

SHOWN_IDS = 4
"""Block ids written out in one line before they are elided."""


class EventLine(NamedTuple):
    """One line of the event log; `str()` of it is the whole line."""

    step: int
    kind: str
    """A key of `GROUPS`."""
    text: str
    """In words, without the step and the kind."""

    @property
    def group(self) -> Group:
        """What the line is filtered by."""
        return GROUPS[self.kind]

    def __str__(self) -> str:
        return f"{self.step} {self.kind} {self.text}"


class Narrator:
    """Tells reports in words. `name` gives a sequence's label."""

    def __init__(self, mirror: CacheMirror, name: Callable[[int], str]) -> None:
        self.mirror = mirror
        self.name = name
        self._step = 0
        self._lines: list[EventLine] = []
        self._allocations: list[ev.BlockAllocated] = []

    def fold(self, report: ev.StepReport) -> list[EventLine]:
        """Fold the report into the mirror, and tell it: each event with the ref counts it met."""
        self._step = report.step
        self.mirror.apply(report, before=self._tell)
        self._tell_allocations()
        if report.batch:
            self._lines.append(EventLine(report.step, "STEP", step_words(report)))
        lines, self._lines = self._lines, []
        return lines

    def _tell(self, event: ev.CacheEvent) -> None:
        if isinstance(event, ev.BlockAllocated):
            if self._allocations and self._allocations[-1].seq_id != event.seq_id:
                self._tell_allocations()
            self._allocations.append(event)
        elif (teller := _TELLERS.get(type(event))) is not None:
            self._tell_allocations()
            self._add(*teller(self, event))

    def _tell_allocations(self) -> None:
        """Blocks that one sequence was given in a row share a line."""
        if self._allocations:
            given, self._allocations = self._allocations, []
            name, block_ids = self.name(given[0].seq_id), [event.block_id for event in given]
            self._add("ALLOC", f"{name} +{len(block_ids)}: {ids(block_ids)}")

    def _add(self, kind: str, text: str) -> None:
        self._lines.append(EventLine(self._step, kind, text))


def count(number: int, noun: str) -> str:
    """`1 block`, `2 blocks`."""
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"


def ids(block_ids: list[int], prefix: str = "") -> str:
    """Block ids as the screen writes them, elided after a few."""
    shown = " ".join(f"{prefix}{block_id:03d}" for block_id in block_ids[:SHOWN_IDS])
    return shown + " …" * (len(block_ids) > SHOWN_IDS)


def step_words(report: ev.StepReport) -> str:
    """`b2 2 tok  schedule .2  forward 3.1  sample .4 ms`: the batch, its tokens, phases over 0.05 ms."""
    tokens = sum(entry.num_prefill + entry.num_decode for entry in report.batch)
    phases = [f"{name} {milliseconds(seconds)}" for name, seconds in phase_times(report) if seconds >= 5e-5]
    timing = f"  {'  '.join(phases)} ms" if phases else ""
    return f"b{len(report.batch)} {tokens} tok{timing}"


def phase_times(report: ev.StepReport) -> list[tuple[str, float]]:
    """Phase -> seconds, in the order in which a step goes through them."""
    times = report.timings
    return [
        ("schedule", times.schedule), ("copy", times.copy), ("forward", times.forward), ("sample", times.sample),
        ("update", times.update),
    ]  # fmt: skip


def milliseconds(seconds: float) -> str:
    """Two significant digits or so: `.2`, `3.1`, `42`."""
    value = seconds * 1e3
    return f"{value:.0f}" if value >= 9.95 else f"{value:.1f}".removeprefix("0")


# --- one function an event ----------------------------------------------------------------------------


def _opened(narrator: Narrator, event: ev.SequenceOpened) -> tuple[str, str]:
    return "OPEN", narrator.name(event.seq_id)


def _extended(narrator: Narrator, event: ev.SequenceExtended) -> tuple[str, str]:
    return "EXTEND", f"{narrator.name(event.seq_id)}: +{count(len(event.token_ids), 'prompt token')}"


def _scheduled(narrator: Narrator, event: ev.SequenceScheduled) -> tuple[str, str]:
    return "RUN", f"{narrator.name(event.seq_id)} enters the batch"


def _parked(narrator: Narrator, event: ev.SequenceParked) -> tuple[str, str]:
    return "PARK", f"{narrator.name(event.seq_id)} ({event.reason}), keeps its blocks"


def _forked(narrator: Narrator, event: ev.SequenceForked) -> tuple[str, str]:
    parent = narrator.mirror.sequences.get(event.seq_id)
    shared = len(parent.block_table) + len(parent.host_block_table) if parent else 0
    names = f"{narrator.name(event.seq_id)} → {narrator.name(event.child_id)}"
    return "FORK", f"{names}: {count(shared, 'block')} shared, 0 copied"


def _rewound(narrator: Narrator, event: ev.SequenceRewound) -> tuple[str, str]:
    return "REWIND", f"{narrator.name(event.seq_id)} cut to {count(event.length, 'token')}"


def _preempted(narrator: Narrator, event: ev.SequencePreempted) -> tuple[str, str]:
    fate = "to host memory" if event.mode == "swap" else "to be computed again"
    gone = f"−{count(event.num_tokens, 'token')} {fate}"
    reason = f", room for {narrator.name(event.for_seq_id)}" if event.for_seq_id != event.seq_id else ""
    return "PREEMPT", f"{narrator.name(event.seq_id)}: {gone}{reason}"


def _closed(narrator: Narrator, event: ev.SequenceClosed) -> tuple[str, str]:
    return "CLOSE", narrator.name(event.seq_id)


def _prefix_hit(narrator: Narrator, event: ev.PrefixHit) -> tuple[str, str]:
    found = f"{count(event.num_tokens, 'token')} in {count(len(event.block_ids), 'block')}"
    return "HIT", f"{narrator.name(event.seq_id)} found {found}: {ids(event.block_ids)}"


def _copied(narrator: Narrator, event: ev.BlockCopied) -> tuple[str, str]:
    refs = narrator.mirror.ref_counts[event.src]
    source = f"{event.src:03d} (ref {refs})"
    slots = count(event.num_slots, "slot")
    return "COW", f"{narrator.name(event.seq_id)} wrote {source} → {event.dst:03d}, {slots}"


def _freed(narrator: Narrator, event: ev.BlocksFreed) -> tuple[str, str]:
    return "FREE", f"{narrator.name(event.seq_id)} −{len(event.block_ids)}: {ids(event.block_ids)}"


def _evicted(_narrator: Narrator, event: ev.BlockEvicted) -> tuple[str, str]:
    return "EVICT", f"cached block {event.block_id:03d}, least recently used"


def _swapped_out(narrator: Narrator, event: ev.SwappedOut) -> tuple[str, str]:
    moved = f"{count(len(event.block_ids), 'block')} out, {sum(event.copied)} copied"
    return "SWAP", f"{narrator.name(event.seq_id)} {moved}: {ids(event.host_block_ids, 'h')}"


def _swapped_in(narrator: Narrator, event: ev.SwappedIn) -> tuple[str, str]:
    moved = f"{count(len(event.block_ids), 'block')} in, {sum(event.copied)} copied"
    return "SWAP", f"{narrator.name(event.seq_id)} {moved}: {ids(event.block_ids)}"


def _host_freed(narrator: Narrator, event: ev.HostBlocksFreed) -> tuple[str, str]:
    return "FREE", f"{narrator.name(event.seq_id)} −{len(event.host_block_ids)}: {ids(event.host_block_ids, 'h')}"


_TELLERS: dict[type, Callable[[Narrator, Any], tuple[str, str]]] = {
    ev.SequenceOpened: _opened,
    ev.SequenceExtended: _extended,
    ev.SequenceScheduled: _scheduled,
    ev.SequenceParked: _parked,
    ev.SequenceForked: _forked,
    ev.SequenceRewound: _rewound,
    ev.SequencePreempted: _preempted,
    ev.SequenceClosed: _closed,
    ev.PrefixHit: _prefix_hit,
    ev.BlockCopied: _copied,
    ev.BlocksFreed: _freed,
    ev.BlockEvicted: _evicted,
    ev.SwappedOut: _swapped_out,
    ev.SwappedIn: _swapped_in,
    ev.HostBlocksFreed: _host_freed,
}
"""Every event worth a line of its own; that a block became findable or not is seen in the block's own detail."""
