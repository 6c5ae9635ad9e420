"""The first half of the tour: how blocks fill, and how chats share them."""

from collections.abc import Iterable

from pagedchat.cache_events import BlockAllocated, BlockCopied, PrefixHit, SequenceForked, SequenceParked
from pagedchat.chat.session import ChatSession
from pagedchat.events import StepReport
from pagedchat.view.sentences.words import count
from pagedchat.view.tour.script import Script, TourStep, Waiting, first_event, until
from pagedchat.view.tour.stage import Stage


def _fill(stage: Stage) -> Script:
    chat = stage.open()
    stage.ask(chat)
    taken: set[int] = set()
    while True:
        report = yield
        taken |= set(_allocated(report, chat.session_id))
        full = _full_blocks(stage, chat)
        filled = next((block_id for block_id in full if block_id in taken), None)
        if filled is not None:
            size = stage.mirror.block_size
            position = full.index(filled)
            return (
                f"There it is: {stage.blocks([filled])} has all {size} of its slots filled, with tokens "
                f"{position * size} to {(position + 1) * size - 1} of {stage.name(chat.session_id)}. "
                f"It is entry {position} of that chat's block table."
            )


def _allocated(report: StepReport | None, seq_id: int) -> Iterable[int]:
    events = report.events if report is not None else ()
    return (event.block_id for event in events if isinstance(event, BlockAllocated) and event.seq_id == seq_id)


def _full_blocks(stage: Stage, chat: ChatSession) -> list[int]:
    sequence = stage.sequence(chat)
    if sequence is None:
        return []
    return sequence.block_table[: sequence.num_computed // stage.mirror.block_size]


def one_at_rest(stage: Stage) -> Waiting[ChatSession]:
    """A chat of the tour that has its reply, and blocks; one is made if there is none."""
    if not stage.chats:
        stage.ask(stage.open())
    chat = stage.chats[0]
    while True:
        yield from until(lambda: not chat.busy)
        sequence = stage.sequence(chat)
        if sequence is not None and sequence.block_table:
            return chat
        stage.ask(chat)


def _share(stage: Stage) -> Script:
    if not stage.chats:
        stage.ask(stage.open())
    second = stage.open()
    stage.ask(second)
    report, hit = yield from _first_hit(second.session_id)
    copied = [event for event in report.events if isinstance(event, BlockCopied) and event.src in hit.block_ids]
    found = f"{count(hit.num_tokens, 'token')} in {stage.blocks(hit.block_ids)}"
    return (
        f"There it is: {stage.name(second.session_id)} took {found} instead of computing them."
        f"{_held_now(stage, second, hit)}{_copied_at_once(stage, second, copied)}"
    )


def _first_hit(seq_id: int) -> Waiting[tuple[StepReport, PrefixHit]]:
    while True:
        report = yield
        for event in report.events if report is not None else ():
            if report is not None and isinstance(event, PrefixHit) and event.seq_id == seq_id:
                return report, event


def _held_now(stage: Stage, chat: ChatSession, hit: PrefixHit) -> str:
    """Which of the blocks that were found the chat shares at this moment."""
    counts = stage.mirror.ref_counts
    sequence = stage.sequence(chat)
    table = sequence.block_table if sequence is not None else []
    shared = [block_id for block_id in hit.block_ids if block_id in table and counts[block_id] > 1]
    if not shared:
        return ""
    refs = sorted({counts[block_id] for block_id in shared})
    number = str(refs[0]) if len(refs) == 1 else f"{refs[0]} to {refs[-1]}"
    each = "it" if len(shared) == 1 else "each of them"
    return f" The ref count of {stage.blocks(shared)} is {number} now: so many chats hold {each}."


def _copied_at_once(stage: Stage, chat: ChatSession, copied: list[BlockCopied]) -> str:
    """What was found may end inside a block, which the chat then cannot write on in."""
    if not copied or copied[0].seq_id != chat.session_id:
        return ""
    event = copied[0]
    copy = stage.blocks([event.dst])
    return f" What it found ended inside {stage.blocks([event.src])}, which was copied into {copy}."


def _fork(stage: Stage) -> Script:
    source = yield from one_at_rest(stage)
    child = stage.fork(source)
    yield from first_event(SequenceForked, lambda event: event.child_id == child.session_id)
    shared = _in_both(stage, source, child)
    return (
        f"There it is: {stage.name(child.session_id)} lists the same {count(shared, 'block')} as "
        f"{stage.name(source.session_id)}. Nothing was copied and nothing computed; "
        "every one of them serves both chats."
    )


def _in_both(stage: Stage, source: ChatSession, child: ChatSession) -> int:
    """Blocks that stand in both tables."""
    tables = [set(sequence.block_table) for chat in (source, child) if (sequence := stage.sequence(chat))]
    return len(set.intersection(*tables)) if len(tables) > 1 else 0


def _copy(stage: Stage) -> Script:
    yield from until(lambda: not stage.busy)
    while True:
        writer = yield from _fresh_fork(stage)
        stage.ask(writer)
        copied = yield from _copy_by(stage, writer)
        if copied is not None:
            return (
                f"There it is: {stage.name(copied.seq_id)} was the first to write into "
                f"{stage.blocks([copied.src])}, so it got a copy, {stage.blocks([copied.dst])}, "
                f"with {count(copied.num_slots, 'slot')} filled.{_shared_before(stage, writer, copied)}"
            )


def _shared_before(stage: Stage, writer: ChatSession, copied: BlockCopied) -> str:
    """Of the blocks before the copied one, how many are shared at this moment."""
    sequence = stage.sequence(writer)
    before = sequence.block_table[: copied.block_idx] if sequence is not None else []
    num_shared = sum(stage.mirror.ref_counts[block_id] > 1 for block_id in before)
    if not before:
        return ""
    return (
        f" Of the {count(len(before), 'block')} before it {num_shared} {'is' if num_shared == 1 else 'are'} shared."
    )


def _fresh_fork(stage: Stage) -> Waiting[ChatSession]:
    """The fork made last if it has not written yet, else a new one."""
    last = stage.chats[-1] if stage.chats else None
    if last is not None and last.origin is not None and len(last.entries) == last.origin.num_entries:
        return last
    source = yield from one_at_rest(stage)
    return stage.fork(source if last is None or last.origin is None else last)


def _copy_by(stage: Stage, writer: ChatSession) -> Waiting[BlockCopied | None]:
    """The copy that its reply causes; None if it ended without: its source ended exactly where a block does."""
    while True:
        report = yield
        for event in report.events if report is not None else ():
            if isinstance(event, BlockCopied) and event.cause == "shared" and event.seq_id == writer.session_id:
                return event
            if isinstance(event, SequenceParked) and event.seq_id == writer.session_id:
                return None
        if report is None and not writer.busy:  # it was refused, or all that it did has been looked at
            return None


STEPS = (
    TourStep(
        "A block fills",
        "The keys and values of all tokens lie in blocks of a fixed number of slots. A chat gets a block only when "
        "the one before it is full, so it never reserves memory that it does not use. Watch a new cell of the map: "
        "it belongs to the chat that the tour has just opened.",
        "a block of the tour's chat to fill",
        _fill,
    ),
    TourStep(
        "Two chats share a prompt",
        "A full block can be found by the hash of its tokens and of all before them. A second chat now sends the "
        "very same prompt: the engine looks its blocks up and lists them in the second chat's table too.",
        "the second chat to find the prompt in the cache (is prefix caching off?)",
        _share,
    ),
    TourStep(
        "A fork",
        "A fork is a second chat with the same past. Its block table is a copy of the first one's; the blocks "
        "themselves stay where they are, and their ref counts go up by one. It takes as long for two tokens as for "
        "two thousand.",
        "the fork",
        _fork,
    ),
    TourStep(
        "Copy-on-write",
        "Both chats share all their blocks, one that is not full among them. Now the fork goes on writing. It may "
        "not change what the other one reads, so at its first write that one block is copied; nothing else is.",
        "the copy",
        _copy,
    ),
)
