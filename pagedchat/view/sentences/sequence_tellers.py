"""Events of sequences in words. Each function sees the mirror as it stood when the event happened."""

from collections.abc import Callable
from typing import Any

from pagedchat import cache_events as ev
from pagedchat.view.sentences.event_lines import Teller, Told, device_blocks
from pagedchat.view.sentences.words import count


def _opened(teller: Teller, event: ev.SequenceOpened) -> Told:
    return Told("OPEN", teller.name(event.seq_id), (event.seq_id,))


def _extended(teller: Teller, event: ev.SequenceExtended) -> Told:
    words = f"{teller.name(event.seq_id)}: +{count(len(event.token_ids), 'prompt token')}"
    return Told("EXTEND", words, (event.seq_id,))


def _scheduled(teller: Teller, event: ev.SequenceScheduled) -> Told:
    lost, name = teller.lost.pop(event.seq_id, None), teller.name(event.seq_id)
    if lost is None:
        return Told("RUN", f"{name} enters the batch", (event.seq_id,))
    return Told("RESUME", f"{name}: {_resumed(teller, lost)}", (event.seq_id,), device_blocks(teller, event.seq_id))


def _resumed(teller: Teller, lost: ev.SequencePreempted | ev.ContentsLost) -> str:
    """What it costs to go on; blocks found again or swapped in are back in the table by now."""
    sequence = teller.mirror.sequences[lost.seq_id]
    swapped = isinstance(lost, ev.SequencePreempted) and lost.mode == "swap"
    if swapped and sequence.block_table:
        return f"back from host memory with {count(len(sequence.block_table), 'block')}, nothing to recompute"
    again = max(0, lost.num_tokens - sequence.num_computed)
    found = f", {lost.num_tokens - again} found in the cache" if again < lost.num_tokens else ""
    return f"recomputes {count(again, 'token')}{found}"


def _parked(teller: Teller, event: ev.SequenceParked) -> Told:
    words = f"{teller.name(event.seq_id)} ({event.reason}), keeps its blocks"
    return Told("PARK", words, (event.seq_id,), device_blocks(teller, event.seq_id))


def _forked(teller: Teller, event: ev.SequenceForked) -> Told:
    parent = teller.mirror.sequences.get(event.seq_id)
    shared = len(parent.block_table) + len(parent.host_block_table) if parent else 0
    names = f"{teller.name(event.seq_id)} → {teller.name(event.child_id)}"
    words = f"{names}: {count(shared, 'block')} shared, 0 copied"
    return Told("FORK", words, (event.seq_id, event.child_id), device_blocks(teller, event.seq_id))


def _rewound(teller: Teller, event: ev.SequenceRewound) -> Told:
    return Told("REWIND", f"{teller.name(event.seq_id)} cut to {count(event.length, 'token')}", (event.seq_id,))


def _preempted(teller: Teller, event: ev.SequencePreempted) -> Told:
    teller.lost[event.seq_id] = event
    fate = "to host memory" if event.mode == "swap" else "to be computed again"
    cost = f"−{count(event.num_tokens, 'token')} {fate}"
    gain = f", +{count(teller.gained.get(event.seq_id, 0), 'block')}"
    words = f"{teller.name(event.seq_id)}: {cost}{gain}{_need(teller, event)}"
    return Told("PREEMPT", words, (event.seq_id, event.for_seq_id))


def _need(teller: Teller, event: ev.SequencePreempted) -> str:
    """Who needed the room, and under which limit."""
    withheld, total = len(teller.mirror.withheld), teller.mirror.num_blocks
    limit = f", limit {total - withheld}" if withheld else ""
    known = event.for_seq_id != event.seq_id and event.for_seq_id in teller.mirror.sequences
    return (f" for {teller.name(event.for_seq_id)}" if known else "") + limit


def _contents_lost(teller: Teller, event: ev.ContentsLost) -> Told:
    teller.lost[event.seq_id] = event
    words = f"{teller.name(event.seq_id)}: a step failed, −{count(event.num_tokens, 'token')} to be computed again"
    return Told("LOST", words, (event.seq_id,))


def _closed(teller: Teller, event: ev.SequenceClosed) -> Told:
    teller.lost.pop(event.seq_id, None)
    teller.gained.pop(event.seq_id, None)
    return Told("CLOSE", teller.name(event.seq_id), (event.seq_id,))


SEQUENCE_TELLERS: dict[type, Callable[[Any, Any], Told]] = {
    ev.SequenceOpened: _opened,
    ev.SequenceExtended: _extended,
    ev.SequenceScheduled: _scheduled,
    ev.SequenceParked: _parked,
    ev.SequenceForked: _forked,
    ev.SequenceRewound: _rewound,
    ev.SequencePreempted: _preempted,
    ev.ContentsLost: _contents_lost,
    ev.SequenceClosed: _closed,
}
