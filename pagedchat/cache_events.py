"""What happens to the cache: events of sequences and of blocks, and the base of all events.

Plain frozen structs (msgspec) that know neither the engine nor the screen. `CacheEvent`s are a complete
account: folding them in order (engine/mirror.py) gives the exact state of the cache, so every change of a
block, a block table or a queue must have its event here.
"""

from typing import Literal

import msgspec

SequenceStatus = Literal["waiting", "running", "swapped", "parked"]
FinishReason = Literal["stop", "length", "abort", "error"]
CopyCause = Literal["", "shared", "hit", "rewind", "again", "beam", "answer"]
FreeCause = Literal["", "pruned", "ended"]
GroupKind = Literal["", "answers", "beams"]
EvictCause = Literal["", "room", "limit", "hand", "flush", "fault"]
HoldCause = Literal["limit", "pins", "limit and pins", "blocks", "seats", "batch", "prompt", "turn"]

FIRST_OF_PROGRAMS = 1 << 20
"""Of an engine process, sequences with numbers from here on answer requests of programs; those of sessions have the
sessions' own, which are below."""
REDACTED = -1
"""Stands for a token that is another client's, where several share an engine: its place is told, and no more."""
CHILDREN = 1 << 30
"""To a client of a server its sequences that nobody gave a number, as beams, have numbers from here on."""
ANOTHERS = 1 << 31
"""Sequences with this number and above are another client's, in the eyes of one of several on one engine."""


class Event(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """Base of all events: immutable, compact on the wire, told apart by the class name."""


# --- sequences --------------------------------------------------------------------------------------


class SequenceOpened(Event, frozen=True):
    """A new sequence, parked, with no tokens and no blocks."""

    seq_id: int
    for_seq_id: int = -1
    """For which other one it works: a search is a chat's; -1: for none."""


class SequenceExtended(Event, frozen=True):
    """Prompt tokens were appended and generation was asked for.

    The sequence is now `waiting`, or `swapped` if its blocks lie in host memory. `num_recomputed` tokens at the
    end of what was computed count as not computed again (1 where the last logits are needed anew, else 0).
    """

    seq_id: int
    token_ids: list[int]
    num_recomputed: int


class SequenceScheduled(Event, frozen=True):
    """From `waiting` or `swapped` into `running`."""

    seq_id: int


class SequenceHeld(Event, frozen=True):
    """Why a waiting or swapped sequence did not come into the batch; told when that changes. Moves nothing.

    It holds until the sequence is scheduled or parked.
    """

    seq_id: int
    cause: HoldCause
    """`limit`, `pins`, or both: they leave it fewer blocks than it needs, whatever others give. `blocks`: those
    that run need them. `seats`: so many run already. `batch`: the step's tokens are given out. `prompt`: another
    one computes the same beginning, which it then finds. `turn`: nobody has asked again since something changed."""
    num_needed: int = 0
    """Blocks: with `limit` and `pins` those for all of its tokens, with `blocks` those that it lacks."""
    num_there: int = 0
    """Blocks that limit and pins leave it, or that can be had now; sequences that run; tokens of a step."""


class SequenceParked(Event, frozen=True):
    """Generation ended; the sequence keeps its tokens and its blocks."""

    seq_id: int
    reason: FinishReason


class SequenceForked(Event, frozen=True):
    """`child_id` now shares every block of `seq_id`, on the device and in host memory; nothing was copied.

    The child is `status`: parked, or queued to go on generating; running, where it takes another beam's place.
    """

    seq_id: int
    child_id: int
    status: SequenceStatus
    length: int = -1
    """The child has only so many of the tokens, with `token_ids` behind them, the last of which is not computed;
    blocks that it does not need for that are dropped by the `BlocksFreed` that follows. -1: all of them."""
    token_ids: list[int] = []
    grouped: bool = False
    """Whether the child belongs to the group of `seq_id`."""


class SequenceGrouped(Event, frozen=True):
    """The sequence is the first of a group, to which grouped forks will belong; moves nothing."""

    seq_id: int
    group_id: int
    kind: GroupKind
    """`answers`: each goes on as it likes; `beams`: at every step the likeliest go on, be they forks of one, and
    the others are closed."""
    size: int
    """Sequences that it is for."""


class BeamsScored(Event, frozen=True):
    """The beams of a search that live, and how likely they are; moves nothing."""

    seq_ids: list[int]
    """The likeliest first."""
    cum_logprobs: list[float]
    """The sum of the log-probabilities of each one's tokens, the prompt left out; empty where it is another
    client's search."""


class SequenceRewound(Event, frozen=True):
    """Tokens from `length` on were cut; blocks past the cut are dropped by the `BlocksFreed` that follows."""

    seq_id: int
    length: int


class SequencePreempted(Event, frozen=True):
    """Blocks were taken from a sequence because the pool ran out.

    A running one becomes `waiting` (recompute) or `swapped` (swap); a parked or waiting one keeps its status.
    `num_tokens` is how many computed tokens left the device; `for_seq_id` who needed the room: the sequence itself
    where that was a limit.
    """

    seq_id: int
    mode: Literal["recompute", "swap"]
    num_tokens: int
    for_seq_id: int
    status: SequenceStatus
    """Its status from now on."""
    num_cached: int = -1
    """Of `num_tokens`, leading ones that a lookup would find in the prefix cache now; -1 where not known (swap,
    old traces)."""
    num_freed: int = -1
    """Blocks that can be had now and could not before; -1 in old traces."""
    was: SequenceStatus | Literal[""] = ""
    """Its status until now; empty in old traces."""


class ContentsLost(Event, frozen=True):
    """A step failed before blocks of this sequence had what was to be moved into them: its block table was dropped
    by the `BlocksFreed` or `HostBlocksFreed` before.

    A running or swapped one is `waiting` now. `num_tokens` is how many computed tokens it had.
    """

    seq_id: int
    num_tokens: int
    status: SequenceStatus
    """Its status from now on."""


class SequenceClosed(Event, frozen=True):
    """The sequence is gone; its blocks were dropped by the `BlocksFreed` before."""

    seq_id: int


# --- blocks -----------------------------------------------------------------------------------------


class BlockAllocated(Event, frozen=True):
    """A free block (ref count 1 now) became the last entry of the sequence's block table."""

    seq_id: int
    block_id: int


class PrefixHit(Event, frozen=True):
    """Cached blocks were found by hash and appended to the block table: every ref count went up by one.

    `num_tokens` more tokens count as computed; it may end inside the last block (taken by copy-on-write).
    """

    seq_id: int
    block_ids: list[int]
    num_tokens: int


class BlockCopied(Event, frozen=True):
    """Copy-on-write: entry `block_idx` of the block table, `src`, was replaced by a fresh copy `dst`.

    `num_slots` slots of `src` were valid for the sequence. Where nobody else holds `src`, it is findable, with
    all that it has in it.
    """

    seq_id: int
    block_idx: int
    src: int
    dst: int
    num_slots: int
    cause: CopyCause = ""
    """`shared`: somebody else holds it; of a group's sequence `beam` or `answer`. Else why the sequence ends inside
    a block that is findable: a prefix `hit` ended there, a `rewind`, or its last token is computed `again`. Empty
    in old traces."""


class BlocksFreed(Event, frozen=True):
    """The last entries of the block table were dropped, last first: every ref count went down by one.

    At zero a block goes to the end of the cached blocks if its hash is registered, else onto the free blocks.
    """

    seq_id: int
    block_ids: list[int]
    cause: FreeCause = ""
    """Of a beam: it was `pruned`, as others are likelier, or its search has `ended`."""


class BlockEvicted(Event, frozen=True):
    """A cached block lost its hash and became free."""

    block_id: int
    cause: EvictCause = ""
    """`room`, `limit`: it was the least recently used one when a sequence needed a block, or a limit was set. By
    `hand` this block was chosen; by a `flush` all were; by a `fault` it may not have what its hash says. Empty in
    old traces."""


class BlockCached(Event, frozen=True):
    """A full block can now be found by the hash of its tokens chained to its parent's hash."""

    block_id: int
    block_hash: bytes
    parent: bytes = b""
    """The hash of the block before it; empty for a first block."""


class BlockPinned(Event, frozen=True):
    """A findable block is not evicted from now on, even when nobody holds it."""

    block_id: int


class BlockUnpinned(Event, frozen=True):
    """The block may be evicted again; with no owner it is now the most recently used cached block."""

    block_id: int


class BlocksWithheld(Event, frozen=True):
    """Free blocks were taken out of the pool because it was given a limit; nobody can have them."""

    block_ids: list[int]


class BlocksReturned(Event, frozen=True):
    """Withheld blocks are free again, the first of them to be taken last."""

    block_ids: list[int]


class PrefixMissed(Event, frozen=True):
    """A lookup in the prefix cache ended at token `position` of the sequence, which must be computed from there on.

    Changes nothing. Where a cached block continues what was found, but with another token at that position, it is
    `cached_block_id` and its token there `cached_token_id`; where nothing cached comes after, both are -1.
    """

    seq_id: int
    position: int
    token_id: int
    """The sequence's own token at that position."""
    cached_token_id: int
    cached_block_id: int


class BlockUncached(Event, frozen=True):
    """A block in use lost its hash because its only owner writes into it in place, or because the step failed that
    was to fill it."""

    block_id: int
    cause: Literal["", "write", "fault"] = ""
    """Which of the two; empty in old traces."""


class SwappedOut(Event, frozen=True):
    """The sequence's whole block table moved to host memory: `block_ids[i]` -> `host_block_ids[i]`.

    Device blocks are dropped last first (as in `BlocksFreed`); `copied` says which pairs needed copying: the others
    were in host memory already, found by hash.
    """

    seq_id: int
    block_ids: list[int]
    host_block_ids: list[int]
    copied: list[bool]


class SwappedIn(Event, frozen=True):
    """The sequence's whole block table came back: `host_block_ids[i]` -> `block_ids[i]`.

    Where `copied[i]` is false the block was still on the device, found by hash and shared.
    """

    seq_id: int
    host_block_ids: list[int]
    block_ids: list[int]
    copied: list[bool]


class HostBlocksFreed(Event, frozen=True):
    """The last entries of a swapped sequence's host block table were dropped, last first."""

    seq_id: int
    host_block_ids: list[int]


CacheEvent = (
    SequenceOpened | SequenceExtended | SequenceScheduled | SequenceHeld | SequenceParked | SequenceForked
    | SequenceGrouped | BeamsScored | SequenceRewound | SequencePreempted | ContentsLost | SequenceClosed
    | BlockAllocated | PrefixHit | BlockCopied | BlocksFreed | BlockEvicted | BlockCached | BlockUncached
    | BlockPinned | BlockUnpinned | BlocksWithheld | BlocksReturned | PrefixMissed
    | SwappedOut | SwappedIn | HostBlocksFreed
)  # fmt: skip
