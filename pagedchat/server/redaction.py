"""What one of several clients sees of the engine: its own sequences by its own numbers, with their tokens; those of
others as numbers, lengths and blocks.

Blocks, ref counts and queues are the engine's, for everybody. Tokens of others are `REDACTED`, and hashes, by which
a text that one can guess could be found out, are hashed once more with a secret: they still say which blocks follow
which. A block's tokens are known to whoever computed it, and to whoever holds it. Knows no client, only one's eyes.
"""

import hashlib
import secrets
from collections.abc import Callable, Mapping
from typing import Any, get_args

import msgspec

from pagedchat.cache_events import ANOTHERS, REDACTED, BeamsScored, BlockCached, CacheEvent, PrefixMissed
from pagedchat.engine.keyframe import FindableFrame, Keyframe, frame_of
from pagedchat.engine.mirror import CacheMirror, MirrorSequence
from pagedchat.events import StepReport
from pagedchat.step_batch import Batch, BatchEntry, DecodeBatch

NUMBERS = frozenset({"seq_id", "child_id", "for_seq_id", "group_id"})
"""Fields of cache events that name a sequence."""
OF_SEARCHES = frozenset(BeamsScored.__struct_fields__)
"""Fields that name all beams of a search, which are one client's, and say how likely their tokens are."""
TOKENS = frozenset({"token_ids", "token_id", "cached_token_id"})
"""Fields that have tokens of the sequence `seq_id`; the cached one is of `cached_block_id`."""
HASHES = frozenset({"block_hash", "parent"})


def _fields(names: frozenset[str]) -> dict[type, tuple[str, ...]]:
    kinds = {kind: tuple(name for name in kind.__struct_fields__ if name in names) for kind in get_args(CacheEvent)}
    return {kind: found for kind, found in kinds.items() if found}


_NUMBERS, _TOKENS = _fields(NUMBERS), _fields(TOKENS)


class OpaqueHashes:
    """Hashes of blocks as outsiders see them: equal where they are equal, and no more."""

    def __init__(self) -> None:
        self._key = secrets.token_bytes(32)

    def __call__(self, block_hash: bytes) -> bytes:
        """Empty for none."""
        if not block_hash:
            return block_hash
        return hashlib.blake2b(block_hash, digest_size=16, key=self._key).digest()


class Eyes:
    """One client's view of reports and of the cache.

    Args:
        own: the engine's number of each of its sequences -> its own number for it; may change.
        opaque: makes hashes opaque, the same for all clients.
    """

    def __init__(self, own: Mapping[int, int], opaque: OpaqueHashes) -> None:
        self._own = own
        self._opaque = opaque
        self.forget()

    def forget(self) -> None:
        """Its numbers have changed."""
        self._seq_ids: list[int] | None = None
        """Of the last batch of decodes, as the engine has them; lists of the same sequences are shared."""
        self._seen_ids: list[int] = []
        self._is_own: list[bool] = []

    def number(self, seq_id: int) -> int:
        """What it calls a sequence; below 0 there is none."""
        return self._own.get(seq_id, ANOTHERS + seq_id) if seq_id >= 0 else seq_id

    # --- reports ------------------------------------------------------------------------------------

    def event(self, event: CacheEvent, knows: Callable[[int], bool]) -> CacheEvent:
        """What it hears of an event; `knows` says of which blocks it knows the tokens."""
        kind = type(event)
        if isinstance(event, BlockCached):
            return BlockCached(event.block_id, self._opaque(event.block_hash), self._opaque(event.parent))
        if isinstance(event, BeamsScored):
            own = not self._own.keys().isdisjoint(event.seq_ids)
            return BeamsScored(list(map(self.number, event.seq_ids)), event.cum_logprobs if own else [])
        names = _NUMBERS.get(kind)
        if names is None:
            return event
        changes: dict[str, Any] = {name: self.number(getattr(event, name)) for name in names}
        if kind in _TOKENS and event.seq_id not in self._own:  # type: ignore[union-attr]  # all of these have it
            changes |= {name: _redacted(getattr(event, name)) for name in _TOKENS[kind]}
        elif isinstance(event, PrefixMissed) and event.cached_block_id >= 0 and not knows(event.cached_block_id):
            changes["cached_token_id"] = REDACTED
        return msgspec.structs.replace(event, **changes)

    def batch(self, batch: Batch) -> Batch:
        """Who took part in a step."""
        if type(batch) is DecodeBatch:
            self._follow(batch.seq_ids)
            if all(self._is_own):
                return DecodeBatch(self._seen_ids, batch.token_ids)
            pairs = zip(batch.token_ids, self._is_own, strict=True)
            return DecodeBatch(self._seen_ids, [token_id if own else REDACTED for token_id, own in pairs])
        return [self._entry(entry) for entry in batch]

    def own_tokens(self, batch: Batch) -> list[int]:
        """Of a batch, the tokens that are its own."""
        if type(batch) is DecodeBatch:
            self._follow(batch.seq_ids)
            return [token_id for token_id, own in zip(batch.token_ids, self._is_own, strict=True) if own]
        return [token_id for entry in batch if entry.seq_id in self._own for token_id in entry.token_ids]

    def _follow(self, seq_ids: list[int]) -> None:
        if seq_ids is not self._seq_ids:
            self._seq_ids = seq_ids
            self._seen_ids = [self.number(seq_id) for seq_id in seq_ids]
            self._is_own = [seq_id in self._own for seq_id in seq_ids]

    def _entry(self, entry: BatchEntry) -> BatchEntry:
        own = entry.seq_id in self._own
        token_ids = entry.token_ids if own else _redacted(entry.token_ids)
        return msgspec.structs.replace(entry, seq_id=self.number(entry.seq_id), token_ids=token_ids)

    # --- the cache at once --------------------------------------------------------------------------

    def keyframe(self, mirror: CacheMirror, knows: Callable[[int], bool]) -> Keyframe:
        """All of the cache as it sees it."""
        whole = frame_of(mirror)
        findable = {
            block_id: FindableFrame(
                self._opaque(block.block_hash),
                self._opaque(block.parent),
                block.token_ids if knows(block_id) else (REDACTED,) * len(block.token_ids),
            )
            for block_id, block in whole.findable.items()
        }
        return msgspec.structs.replace(
            whole,
            holders={block: [self.number(seq_id) for seq_id in ids] for block, ids in whole.holders.items()},
            findable=findable,
            sequences=[self._sequence(seq) for seq in whole.sequences],
            last=None if whole.last is None else self._last(whole.last),
        )

    def _sequence(self, seq: MirrorSequence) -> MirrorSequence:
        own = seq.seq_id in self._own
        held = seq.held and msgspec.structs.replace(seq.held, seq_id=self.number(seq.held.seq_id))
        return msgspec.structs.replace(
            seq,
            seq_id=self.number(seq.seq_id),
            token_ids=seq.token_ids if own else _redacted(seq.token_ids),
            held=held,
            group_id=seq.group_id if seq.group_id < 0 else self.number(seq.group_id),
        )

    def _last(self, report: StepReport) -> StepReport:
        """Of the last report what is asked of it later: counts, and who was in the batch."""
        return msgspec.structs.replace(report, batch=self.batch(report.batch), events=[])


def _redacted(tokens: list[int] | int) -> list[int] | int | Any:
    """As many tokens, and not which; what stands for none is kept."""
    if isinstance(tokens, int):
        return REDACTED
    return [REDACTED] * len(tokens)
