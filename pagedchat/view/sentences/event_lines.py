"""What a line of the event log is, and what the functions that make one have in common. Knows no screen."""

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple, Protocol

from pagedchat.cache_events import ContentsLost, SequencePreempted
from pagedchat.engine.mirror import CacheMirror
from pagedchat.view.sentences.token_text import quote
from pagedchat.view.state.computed_once import ComputedOnce

Group = Literal["sequences", "blocks", "steps"]

GROUPS: dict[str, Group] = {
    "OPEN": "sequences", "EXTEND": "sequences", "RUN": "sequences", "PARK": "sequences", "FORK": "sequences",
    "GROUP": "sequences", "REWIND": "sequences", "WAIT": "sequences", "PREEMPT": "sequences", "LOST": "sequences",
    "RESUME": "sequences", "CLOSE": "sequences",
    "ALLOC": "blocks", "HIT": "blocks", "MISS": "blocks", "COW": "blocks", "FREE": "blocks", "EVICT": "blocks",
    "SWAP": "blocks", "PIN": "blocks", "UNPIN": "blocks", "LIMIT": "blocks",
    "STEP": "steps",
}  # fmt: skip
"""Every kind of line, and the group it is filtered by."""
MEANINGS = {
    "OPEN": "a sequence was opened", "EXTEND": "it was given a prompt", "RUN": "it entered the batch",
    "PARK": "it is done and keeps its blocks", "FORK": "it shares its blocks with a second one",
    "GROUP": "answers or beams begin with it",
    "REWIND": "it was cut back", "WAIT": "it cannot run, and why", "PREEMPT": "blocks were taken from it",
    "LOST": "a step failed before its blocks were filled", "RESUME": "it runs again after that",
    "CLOSE": "it is gone", "ALLOC": "free blocks were given out", "HIT": "cached blocks were found",
    "MISS": "where a lookup ended, and why", "COW": "a shared or findable block was copied before a write",
    "FREE": "blocks were dropped", "EVICT": "a cached block was given up", "SWAP": "blocks to or from host memory",
    "PIN": "a block is kept", "UNPIN": "it may go again", "LIMIT": "blocks left or joined the pool",
    "STEP": "batch, tokens and phases of a step",
}  # fmt: skip
"""What each kind of line tells."""
QUOTE_CELLS = 28
"""A quotation is cut to so many cells."""


class EventLine(NamedTuple):
    """One line of the event log; `str()` of it is the whole line."""

    step: int
    kind: str
    """A key of `GROUPS`."""
    text: str
    """In words, without the step and the kind."""
    seq_ids: tuple[int, ...] = ()
    """The sequences that it is about, the first of them foremost."""
    block_ids: tuple[int, ...] = ()
    """The device blocks that it is about."""

    @property
    def group(self) -> Group:
        """What the line is filtered by."""
        return GROUPS[self.kind]

    def __str__(self) -> str:
        return f"{self.step} {self.kind} {self.text}"


class Told(NamedTuple):
    """An event in words."""

    kind: str
    text: str
    seq_ids: tuple[int, ...] = ()
    block_ids: tuple[int, ...] = ()


class Teller(Protocol):
    """What the functions that tell events ask of the narrator."""

    mirror: CacheMirror
    name: Callable[[int], str]
    token_texts: Mapping[int, bytes]
    gained: dict[int, int]
    lost: dict[int, SequencePreempted | ContentsLost]
    once: ComputedOnce


def device_blocks(teller: Teller, seq_id: int) -> tuple[int, ...]:
    """The sequence's block table."""
    sequence = teller.mirror.sequences.get(seq_id)
    return tuple(sequence.block_table) if sequence else ()


def quoted(teller: Teller, tokens: Sequence[int], width: int = QUOTE_CELLS) -> str:
    """The tokens' text between quotation marks; one whose text is not known is told by its number."""
    texts = teller.token_texts
    return quote(tokens, {token: texts.get(token) or b"#%d" % token for token in tokens}, width)
