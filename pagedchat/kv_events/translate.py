"""The engine's reports -> block events for others: which blocks became findable by hash, which are so no longer.

Only that is told. Who holds a block, copies, and swaps do not change what a prompt finds: blocks in host memory
belong to sequences that were swapped out, and no other prompt finds them there. Knows no socket.

Two halves, so that an engine's step has next to nothing to do with it: `changes_of` takes out of a report what
matters, beside the engine; `BlockEventTranslator` makes events of it, anywhere.
"""

from collections.abc import Callable

from pagedchat.cache_events import BlockCached, BlockEvicted, BlockUncached
from pagedchat.engine.prefix_cache import CachedBlock
from pagedchat.events import StepReport
from pagedchat.kv_events.schema import BlockEvent, BlockHash, Encoding

_INT_BYTES = 8

Change = CachedBlock | int
"""A block that can be found now; or the id of one that cannot be found any more as what it was."""


def as_int(block_hash: bytes) -> int:
    """The last 64 bits, as a number: what subscribers know blocks by that take no bytes."""
    return int.from_bytes(block_hash[-_INT_BYTES:], "big")


def as_bytes(block_hash: bytes) -> bytes:
    """All of it."""
    return block_hash


def changes_of(report: StepReport, entry: Callable[[int], CachedBlock | None]) -> list[Change]:
    """What a report says of findable blocks, in order.

    Args:
        report: the engine's newest.
        entry: what the engine's prefix cache knows of a block now. A block that can be found no longer as what the
            report says, or as something else, is left out; that it is gone is said by this report or by the next.
    """
    changes: list[Change] = []
    for event in report.events:
        if isinstance(event, BlockCached):
            found = entry(event.block_id)
            if found is not None and found.block_hash == event.block_hash:
                changes.append(found)
        elif isinstance(event, BlockEvicted | BlockUncached):
            changes.append(event.block_id)
    return changes


class BlockEventTranslator:
    """Takes the changes of one engine, from its first report on.

    Args:
        encoding: of which kind events are.
        block_size: tokens in a block.
        name_of: what a block's hash is called.
    """

    def __init__(self, encoding: Encoding, block_size: int, name_of: Callable[[bytes], BlockHash]) -> None:
        self._encoding = encoding
        self._block_size = block_size
        self._name_of = name_of
        self._told: dict[int, BlockHash] = {}
        """By block: what others know to be there."""

    def translate(self, changes: list[Change]) -> list[BlockEvent]:
        """What follows from the next changes, in order; neighbours are one event where they can be."""
        runs = _Runs(self._encoding, self._block_size, self._name_of)
        for change in changes:
            if isinstance(change, int):
                name = self._told.pop(change, None)
                if name is not None:
                    runs.remove(name)
            else:
                self._told[change.block_id] = runs.store(change)
        return runs.end()


class _Runs:
    """Blocks in the order in which they come and go, many of them in one event."""

    def __init__(self, encoding: Encoding, block_size: int, name_of: Callable[[bytes], BlockHash]) -> None:
        self._encoding = encoding
        self._block_size = block_size
        self._name_of = name_of
        self._events: list[BlockEvent] = []
        self._stored: list[BlockHash] = []
        self._removed: list[BlockHash] = []
        self._token_ids: list[int] = []
        self._first_parent = self._last_hash = b""

    def store(self, block: CachedBlock) -> BlockHash:
        """Returns what it is called."""
        if not self._stored or block.parent != self._last_hash:
            self.end()
            self._first_parent = block.parent
        name = self._name_of(block.block_hash)
        self._last_hash = block.block_hash
        self._stored.append(name)
        self._token_ids += block.token_ids
        return name

    def remove(self, name: BlockHash) -> None:
        if self._stored:
            self.end()
        self._removed.append(name)

    def end(self) -> list[BlockEvent]:
        """All events so far; what comes is another one."""
        if self._stored:
            parent = self._name_of(self._first_parent) if self._first_parent else None
            event = self._encoding.stored(self._stored, parent, self._token_ids, self._block_size)
            self._events.append(event)
            self._stored, self._token_ids = [], []
        if self._removed:
            self._events.append(self._encoding.removed(self._removed))
            self._removed = []
        return self._events
