"""Events of sequences in words. Each function sees the mirror as it stood when the event happened."""

from collections.abc import Callable
from typing import Any

from pagedchat import cache_events as ev
from pagedchat.view.sentences.event_lines import Teller, Told, device_blocks
from pagedchat.view.sentences.waiting import LASTING, held_words
from pagedchat.view.sentences.words import count

_MEMBERS = {"beams": ", a beam", "answers": ", another answer"}
"""What the fork of a group's sequence is."""


def _opened(teller: Teller, event: ev.SequenceOpened) -> Told:
    return Told("OPEN", teller.name(event.seq_id), (event.seq_id,))


def _extended(teller: Teller, event: ev.SequenceExtended) -> Told:
    words = f"{teller.name(event.seq_id)}: +{count(len(event.token_ids), 'prompt token')}"
    return Told("EXTEND", words, (event.seq_id,))


def _scheduled(teller: Teller, event: ev.SequenceScheduled) -> Told:
    lost, name = teller.lost.pop(event.seq_id, None), teller.name(event.seq_id)
    if lost is None or not teller.once.of(event.seq_id):  # cut back to nothing meanwhile
        return Told("RUN", f"{name} enters the batch", (event.seq_id,))
    return Told("RESUME", f"{name}: {_resumed(teller, lost)}", (event.seq_id,), device_blocks(teller, event.seq_id))


def _resumed(teller: Teller, lost: ev.SequencePreempted | ev.ContentsLost) -> str:
    """What it costs to go on; blocks found again or swapped in are back in the table by now."""
    sequence = teller.mirror.sequences[lost.seq_id]
    again = max(0, teller.once.of(lost.seq_id) - sequence.num_computed)
    if isinstance(lost, ev.SequencePreempted) and lost.mode == "swap" and sequence.block_table:
        cost = f"recomputes {count(again, 'token')}" if again else "nothing to recompute"
        return f"back from host memory with {count(len(sequence.block_table), 'block')}, {cost}"
    found = f", {sequence.num_computed} found in the cache" if sequence.num_computed else ""
    return f"recomputes {count(again, 'token')}{found}"


def _held(teller: Teller, event: ev.SequenceHeld) -> Told | None:
    """Worth a line when the cause is a lasting one, and another than before."""
    before = teller.mirror.sequences[event.seq_id].held
    same = before is not None and before.cause == event.cause
    if event.cause not in LASTING or (same and event.cause in ("blocks", "seats")):
        return None
    return Told("WAIT", f"{teller.name(event.seq_id)}: {held_words(event)}", (event.seq_id,))


def _parked(teller: Teller, event: ev.SequenceParked) -> Told:
    words = f"{teller.name(event.seq_id)} ({event.reason}), keeps its blocks"
    return Told("PARK", words, (event.seq_id,), device_blocks(teller, event.seq_id))


def _forked(teller: Teller, event: ev.SequenceForked) -> Told:
    parent = teller.mirror.sequences.get(event.seq_id)
    shared = len(parent.block_table) + len(parent.host_block_table) if parent else 0
    names = f"{teller.name(event.seq_id)} → {teller.name(event.child_id)}"
    what = _MEMBERS.get(parent.group_kind, "") if parent and event.grouped else ""
    words = f"{names}: {count(shared, 'block')} shared, 0 copied{what}"
    return Told("FORK", words, (event.seq_id, event.child_id), device_blocks(teller, event.seq_id))


def _grouped(teller: Teller, event: ev.SequenceGrouped) -> Told:
    what = "beams of a search" if event.kind == "beams" else "answers to its prompt"
    return Told("GROUP", f"{teller.name(event.seq_id)} is the first of {event.size} {what}", (event.seq_id,))


def _scored(_teller: Teller, _event: ev.BeamsScored) -> None:
    """At every step of a search: no line. The panel of beams shows it."""


def _rewound(teller: Teller, event: ev.SequenceRewound) -> Told:
    return Told("REWIND", f"{teller.name(event.seq_id)} cut to {count(event.length, 'token')}", (event.seq_id,))


def _preempted(teller: Teller, event: ev.SequencePreempted) -> Told:
    teller.lost[event.seq_id] = event
    cost = f"−{count(event.num_tokens, 'token')}{_fate(event)}"
    freed = event.num_freed if event.num_freed >= 0 else teller.gained.get(event.seq_id, 0)
    gain = f", +{count(freed, 'block')}"
    words = f"{teller.name(event.seq_id)}: {cost}{gain}{_need(teller, event)}"
    return Told("PREEMPT", words, (event.seq_id, event.for_seq_id))


def _fate(event: ev.SequencePreempted) -> str:
    """Where its tokens are now; what is cached still may be found when it goes on, or be gone by then."""
    if event.mode == "swap":
        return " to host memory"
    if event.num_cached < 0:
        return ""
    return f" ({event.num_cached or 'none'} still cached)"


def _need(teller: Teller, event: ev.SequencePreempted) -> str:
    """Who needed the room, and under which limit."""
    withheld, total = len(teller.mirror.withheld), teller.mirror.num_blocks
    limit = f", limit {total - withheld}" if withheld else ""
    known = event.for_seq_id != event.seq_id and event.for_seq_id in teller.mirror.sequences
    return (f" for {teller.name(event.for_seq_id)}" if known else "") + limit


def _contents_lost(teller: Teller, event: ev.ContentsLost) -> Told:
    teller.lost[event.seq_id] = event
    words = f"{teller.name(event.seq_id)}: a step failed, −{count(event.num_tokens, 'token')}"
    return Told("LOST", words, (event.seq_id,))


def _closed(teller: Teller, event: ev.SequenceClosed) -> Told:
    teller.lost.pop(event.seq_id, None)
    teller.gained.pop(event.seq_id, None)
    return Told("CLOSE", teller.name(event.seq_id), (event.seq_id,))


SEQUENCE_TELLERS: dict[type, Callable[[Any, Any], Told | None]] = {
    ev.SequenceOpened: _opened,
    ev.SequenceExtended: _extended,
    ev.SequenceScheduled: _scheduled,
    ev.SequenceHeld: _held,
    ev.SequenceParked: _parked,
    ev.SequenceForked: _forked,
    ev.SequenceGrouped: _grouped,
    ev.BeamsScored: _scored,
    ev.SequenceRewound: _rewound,
    ev.SequencePreempted: _preempted,
    ev.ContentsLost: _contents_lost,
    ev.SequenceClosed: _closed,
}
