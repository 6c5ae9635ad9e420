"""The second half of the tour: what happens when blocks run out, and how a chat goes back."""

from collections.abc import Iterable

from pagedchat.cache_events import (
    BlockEvicted,
    BlocksFreed,
    CacheEvent,
    PrefixHit,
    SequenceClosed,
    SequencePreempted,
    SequenceRewound,
    SequenceScheduled,
    SwappedIn,
)
from pagedchat.events import StepReport
from pagedchat.view.sentences.words import count
from pagedchat.view.tour.script import Script, TourStep, Waiting, first_event, until
from pagedchat.view.tour.sharing_steps import one_at_rest
from pagedchat.view.tour.stage import Stage

_SPARE = 1
"""Blocks that a limit leaves over what is in use."""


def _evict(stage: Stage) -> Script:
    yield from one_at_rest(stage)
    if len(stage.chats) < 2:
        stage.ask(stage.open())
    yield from until(lambda: not stage.busy)
    leaving = stage.chats[-1]
    stage.close(leaving)
    yield from first_event(SequenceClosed, lambda event: event.seq_id == leaving.session_id)
    spare = _SPARE if len(stage.mirror.cached_blocks) > _SPARE else 0  # else the last one need not go
    stage.limit(stage.in_use + spare)
    report, evicted = yield from _first_eviction()
    pool = report.pool
    return (
        f"There it is: {stage.blocks([evicted.block_id])}, the least recently used of the cached blocks, lost its "
        "hash and its tokens; who needs them computes them again. "
        f"The pool may use {pool.usable} of its {pool.total} blocks now."
    )


def _first_eviction() -> Waiting[tuple[StepReport, BlockEvicted]]:
    """By the limit, or for want of room; not one that the user asked for."""
    while True:
        report = yield
        for event in report.events if report is not None else ():
            if report is not None and isinstance(event, BlockEvicted) and event.cause in ("limit", "room"):
                return report, event


def _preempt(stage: Stage) -> Script:
    event, _ = yield from _squeeze(stage)
    doing = {"running": "had to stop in the middle of its turn", "parked": "had been at rest"}.get(
        event.was, "was waiting"
    )
    return (
        f"There it is: {stage.name(event.seq_id)} {_reason(stage, event)}. It {doing}. Its keys and values of "
        f"{count(event.num_tokens, 'token')} {_fate(event)}."
    )


def _fate(event: SequencePreempted) -> str:
    """What became of its tokens, as far as that is known at this moment."""
    if event.mode == "swap":
        return "are in host memory now"
    left = "left its blocks"
    if event.num_cached <= 0:
        return f"{left}, and none of them can be found in the cache: they are computed again when it goes on"
    if event.num_cached == event.num_tokens:
        return f"{left}, and all of them can still be found in the cache, until others need those blocks"
    return f"{left}; {event.num_cached} of them can still be found in the cache, until others need those blocks"


def _reason(stage: Stage, event: SequencePreempted) -> str:
    if event.for_seq_id == event.seq_id:
        return "needed one more block, nobody else had any to give, and so it gave its own and waits"
    return f"gave its blocks so that {stage.name(event.for_seq_id)} could go on"


def _squeeze(stage: Stage) -> Waiting[tuple[SequencePreempted, list[CacheEvent]]]:
    """All its chats write while the pool has next to nothing left; a running one that gives way is shown first.

    Returns:
        The preemption, and what else was reported with it afterwards: the chat may be back already.
    """
    stage.limit(None)
    yield from one_at_rest(stage)
    while len(stage.chats) < 2:
        stage.ask(stage.open())
    yield from until(lambda: not stage.busy)
    stage.limit(stage.in_use + sum(map(stage.blocks_to_start, stage.chats)) + _SPARE)
    for chat in stage.chats:
        stage.ask(chat)
    at_rest: tuple[SequencePreempted, list[CacheEvent]] | None = None
    while True:
        report = yield
        events = report.events if report is not None else []
        for index, event in enumerate(events):
            if isinstance(event, SequencePreempted):
                found = (event, events[index + 1 :])
                if event.was == "running":
                    return found
                at_rest = found
        if at_rest is not None and not stage.busy:
            return at_rest


def _come_back(stage: Stage) -> Script:
    victim, events = _waiting_chat(stage), list[CacheEvent]()
    while victim is None:
        event, events = yield from _squeeze(stage)
        victim = event.seq_id if event.status != "parked" else None  # one at rest has no reason to return
    stage.limit(None)
    while (back := _returned(stage, events, victim)) is None:
        report = yield
        events = report.events if report is not None else []
    return back


def _waiting_chat(stage: Stage) -> int | None:
    """A chat of the tour that was made to give way and has not come back."""
    for chat in stage.chats:
        sequence = stage.sequence(chat)
        waits = sequence is not None and sequence.status in ("waiting", "swapped") and not sequence.block_table
        if waits and stage.num_lost(chat.session_id):
            return chat.session_id
    return None


def _returned(stage: Stage, events: Iterable[CacheEvent], seq_id: int) -> str | None:
    """What it took, once it enters the batch: by then it has what was swapped in, or found."""
    found = 0
    for event in events:
        if isinstance(event, SwappedIn) and event.seq_id == seq_id:
            return (
                f"There it is: {stage.name(seq_id)} came back from host {stage.blocks(event.host_block_ids)} into "
                f"{stage.blocks(event.block_ids)}. {_copied_words(event)} Nothing was computed again."
            )
        if isinstance(event, PrefixHit) and event.seq_id == seq_id:
            found += event.num_tokens
        if isinstance(event, SequenceScheduled) and event.seq_id == seq_id:
            return _recomputed_words(stage, found, seq_id)
    return None


def _recomputed_words(stage: Stage, found: int, seq_id: int) -> str:
    """It had no blocks, so what is there of its tokens was found."""
    lost = stage.num_lost(seq_id)
    again = max(0, lost - found)
    return (
        f"There it is: {stage.name(seq_id)} runs again. Of the {count(lost, 'token')} that it had computed "
        f"{lost - again} were found in the cache, and {again} had to be computed a second time. "
        "Started with --preemption-mode swap, the engine would have copied its blocks to host memory and back "
        "instead."
    )


def _copied_words(event: SwappedIn) -> str:
    num_copied, total = sum(event.copied), len(event.copied)
    if num_copied == total:
        return "All of them were copied."
    return f"{num_copied} of {total} were copied; the others were still on the device, found by their hash."


def _rewind(stage: Stage) -> Script:
    stage.limit(None)
    chat = yield from one_at_rest(stage)
    yield from until(lambda: stage.ask_again(chat))
    seq_id = chat.session_id
    while True:
        report = yield
        rewound = _rewound(report, seq_id)
        if report is not None and rewound is not None:
            num_freed = _freed_by(rewound, report)
            return (
                f"There it is: {stage.name(seq_id)} was cut back to its first {count(rewound.length, 'token')}; "
                f"{count(num_freed, 'block')} past the cut went back. The prompt before the cut stays "
                "computed, so the new reply begins at once."
            )


def _rewound(report: StepReport | None, seq_id: int) -> SequenceRewound | None:
    events = report.events if report is not None else ()
    return next((event for event in events if isinstance(event, SequenceRewound) and event.seq_id == seq_id), None)


def _freed_by(rewound: SequenceRewound, report: StepReport) -> int:
    """Blocks past the cut: they are dropped by the very next event, if there are any."""
    after = report.events[report.events.index(rewound) + 1 :]
    dropped = isinstance(after[0], BlocksFreed) and after[0].seq_id == rewound.seq_id if after else False
    return len(after[0].block_ids) if dropped and isinstance(after[0], BlocksFreed) else 0


STEPS = (
    TourStep(
        "An eviction",
        "The tour closes one of its chats. Full blocks that nobody holds stay findable, as cached blocks, in "
        "case a prompt begins alike. Then a limit is put on the pool (/limit does it too), and cached blocks are "
        "the first to go, the least recently used one foremost.",
        "a cached block to be evicted",
        _evict,
    ),
    TourStep(
        "A preemption",
        "The pool now has room for the prompts of all chats of the tour, and for next to nothing of their replies. "
        "When nothing is free and nothing cached, chats at rest give their blocks first, then the newest of those "
        "that run. Nothing crashes, and no text is lost.",
        "a chat to give way",
        _preempt,
    ),
    TourStep(
        "A swap, or a recomputation",
        "A chat that gave way has to get its tokens back before it can go on. With --preemption-mode swap they "
        "were copied to host memory and are copied back; with recompute they are computed again. The limit is "
        "lifted now, so that it can return.",
        "the chat to return",
        _come_back,
    ),
    TourStep(
        "A rewind",
        "To ask again (^G) is to rewind: the sequence is cut back to the end of the prompt, the blocks past the "
        "cut are dropped, and another reply is written. A block that is cut in the middle stays, and is copied "
        "first if somebody shares it.",
        "the rewind",
        _rewind,
    ),
)
