"""Why a sequence waits, in words: what the engine last told of it. Knows no chats and no screen."""

from pagedchat.cache_events import HoldCause, SequenceHeld
from pagedchat.engine.mirror import CacheMirror
from pagedchat.view.sentences.words import count

ITS_TURN = "its turn has not come"
"""Nothing was told: those before it in the queue were asked first."""
LASTING = frozenset({"limit", "pins", "limit and pins", "blocks", "seats"})
"""Causes that are worth a line of the event log; the others pass with a step or two."""
_MISFITS = frozenset({"limit", "pins", "limit and pins"})
"""Causes that do not pass by themselves."""


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
    """`/limit off lets it run`; empty where the user cannot help, or need not."""
    if held is None or held.cause not in _MISFITS or held.num_needed > mirror.num_blocks:
        return ""
    withheld, pinned = len(mirror.withheld), len(mirror.pinned)
    enough = {
        "/limit off": withheld > 0 and held.num_needed <= held.num_there + withheld,
        "/unpin": pinned > 0 and held.num_needed <= mirror.num_blocks - withheld,
    }
    if cures := [cure for cure, suffices in enough.items() if suffices]:
        return f"{' or '.join(cures)} lets it run"
    return f"{' and '.join(enough)} let it run" if withheld and pinned else ""


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
