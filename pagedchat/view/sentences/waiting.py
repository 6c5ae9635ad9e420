"""Why a sequence waits, in words: what the engine last told of it. Knows no chats and no screen."""

from pagedchat.cache_events import HoldCause, SequenceHeld
from pagedchat.engine.mirror import CacheMirror
from pagedchat.view.sentences.words import count

ITS_TURN = "its turn has not come"
"""Nothing was told: those before it in the queue were asked first."""
LASTING = frozenset({"limit", "pins", "limit and pins", "blocks", "seats"})
"""Causes that are worth a line of the event log; the others pass with a step or two."""
_WANTS_BLOCKS = LASTING - {"seats"}


def held_words(held: SequenceHeld | None) -> str:
    """`needs 24 blocks, the limit is 1`."""
    if held is None:
        return ITS_TURN
    return _WORDS[held.cause].format(
        needed=count(held.num_needed, "block"),
        more=count(held.num_needed, "more block"),
        there=held.num_there,
        chats=count(held.num_there, "chat"),
        tokens=count(held.num_there, "token"),
    )


def cure_words(held: SequenceHeld | None, mirror: CacheMirror) -> str:
    """`more with /limit off`; empty where it waits for something else, or for those that run."""
    if held is None or held.cause not in _WANTS_BLOCKS:
        return ""
    if held.cause == "blocks" and any(seq.status == "running" for seq in mirror.sequences.values()):
        return ""
    cures = [cure for cure, due in (("/limit off", mirror.withheld), ("/unpin", mirror.pinned)) if due]
    return f"more with {' or '.join(cures)}" if cures else ""


_WORDS: dict[HoldCause, str] = {
    "limit": "needs {needed}, the limit is {there}",
    "pins": "needs {needed}, pins leave {there}",
    "limit and pins": "needs {needed}, limit and pins leave {there}",
    "blocks": "needs {more}, {there} can be had",
    "seats": "no more than {chats} at once",
    "batch": "the step is full with {tokens}",
    "prompt": "another chat computes the same prompt",
    "turn": ITS_TURN,
}
