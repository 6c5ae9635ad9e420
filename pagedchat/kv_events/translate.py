"""The engine's reports -> block events for others: which blocks became findable by hash, which are so no longer.

Only that is told. Who holds a block, copies, and swaps do not change what a prompt finds: blocks in host memory
belong to sequences that were swapped out, and no other prompt finds them there. Knows no socket.
"""

from collections.abc import Callable

from pagedchat.cache_events import BlockCached, BlockEvicted, BlockUncached
from pagedchat.engine.mirror import CacheMirror
from pagedchat.events import StepReport
from pagedchat.kv_events.schema import BlockEvent, BlockHash, Encoding

TOLD = frozenset({BlockCached, BlockEvicted, BlockUncached})
"""The events of the cache from which something follows for others."""
_INT_BYTES = 8


def as_int(block_hash: bytes) -> int:
    """The last 64 bits, as a number: what subscribers know blocks by that take no bytes."""
    return int.from_bytes(block_hash[-_INT_BYTES:], "big")


def as_bytes(block_hash: bytes) -> bytes:
    """All of it."""
    return block_hash


class BlockEventTranslator:
    """Folds the reports of one engine, from its first one on.

    Args:
        mirror: of the engine's sizes, with nothing in it; the translator's own from now on.
        encoding: of which kind events are.
        name_of: what a block's hash is called.
    """

    def __init__(self, mirror: CacheMirror, encoding: Encoding, name_of: Callable[[bytes], BlockHash]) -> None:
        self._mirror = mirror
        self._encoding = encoding
        self._name_of = name_of

    def translate(self, report: StepReport) -> list[BlockEvent]:
        """What follows from the next report, in order; neighbours of one kind are one event where they can be."""
        run = _Runs(self._encoding, self._mirror.block_size, self._name_of)
        mirror = self._mirror
        mirror.begin_report()
        for event in report.events:
            if isinstance(event, BlockEvicted | BlockUncached):
                block_hash = mirror.block_hashes[event.block_id]
                if block_hash is not None:
                    run.remove(block_hash)
            mirror.apply_event(event)
            if isinstance(event, BlockCached):
                run.store(event.block_hash, event.parent, mirror.block_tokens[event.block_id])
        mirror.end_report(report)
        return run.events()


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

    def store(self, block_hash: bytes, parent: bytes, token_ids: tuple[int, ...]) -> None:
        if not self._stored or parent != self._last_hash:
            self._end_run()
            self._first_parent = parent
        self._last_hash = block_hash
        self._stored.append(self._name_of(block_hash))
        self._token_ids += token_ids

    def remove(self, block_hash: bytes) -> None:
        if not self._removed:
            self._end_run()
        self._removed.append(self._name_of(block_hash))

    def events(self) -> list[BlockEvent]:
        self._end_run()
        return self._events

    def _end_run(self) -> None:
        if self._stored:
            parent = self._name_of(self._first_parent) if self._first_parent else None
            self._events.append(self._encoding.stored(self._stored, parent, self._token_ids, self._block_size))
            self._stored, self._token_ids = [], []
        if self._removed:
            self._events.append(self._encoding.removed(self._removed))
            self._removed = []
