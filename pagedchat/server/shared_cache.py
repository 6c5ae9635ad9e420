"""The cache of an engine that several clients watch: folded once, and told to each of them as it may see it.

While nobody watches there is no mirror, and steps pass by: folding them takes longer than all else that a server
does for a step. Whoever comes then waits for the engine to tell its cache at once.

Knows whose sequences are whose, no links and no commands.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial

from pagedchat.cache_events import (
    REDACTED,
    BlockCached,
    BlockEvicted,
    BlockUncached,
    CacheEvent,
    PrefixMissed,
    SequenceClosed,
    SequenceExtended,
    SequenceForked,
    SequenceOpened,
)
from pagedchat.engine import keyframe
from pagedchat.engine.mirror import CacheMirror
from pagedchat.events import CacheKeyframe, EngineEvent, EngineReady, StepReport, Steps, TokenTexts
from pagedchat.server.client_queue import ClientQueue
from pagedchat.server.numbers import Numbers
from pagedchat.server.redaction import Eyes

ANOTHERS_TOKEN = "·".encode()
"""What a token of another client's is drawn as."""


@dataclass(slots=True)
class Watcher:
    """A client that hears of the cache."""

    client: int
    eyes: Eyes
    queue: ClientQueue
    told: set[int] = field(default_factory=set)
    """Tokens whose text it knows."""


class SharedCache:
    """The mirror, and who has computed what.

    Args:
        numbers: whose sequences are whose; it is told what the engine makes of them.
    """

    def __init__(self, numbers: Numbers) -> None:
        self._numbers = numbers
        self.mirror: CacheMirror | None = None
        """None while there is no engine, while nobody watches, and until the engine has told what it has."""
        self._authors: dict[int, int] = {}
        """Findable blocks -> the client that computed them."""
        self._texts: dict[int, bytes] = {}

    # --- the engine ---------------------------------------------------------------------------------

    def begin(self, info: EngineReady, *, is_watched: bool) -> None:
        """A new engine is ready."""
        self.end()
        if is_watched:
            self.mirror = CacheMirror(info.num_blocks, info.block_size, info.num_host_blocks)

    def go_on(self, told: CacheKeyframe) -> None:
        """What the engine has, for somebody who watches; whoever computed it is not known any more."""
        self.mirror = keyframe.restore(keyframe.decode(told.state))

    def rest(self) -> None:
        """Nobody watches any more."""
        self.mirror = None
        self._authors.clear()

    def end(self) -> None:
        """The engine is gone."""
        self.rest()
        self._texts.clear()

    def learn(self, texts: TokenTexts) -> None:
        """What tokens stand for; each client is told only of those that occur in its own sequences."""
        self._texts.update(zip(texts.token_ids, texts.texts, strict=True))

    def exists(self, seq_id: int) -> bool:
        """Whether there is such a sequence, by the engine's number."""
        return self.mirror is not None and seq_id in self.mirror.sequences

    # --- steps --------------------------------------------------------------------------------------

    def fold(self, steps: Steps, watchers: Iterable[Watcher]) -> None:
        """Take in what the engine reports, and pass it on to those that follow it."""
        mirror = self.mirror
        if mirror is None:
            return
        following = [watcher for watcher in watchers if watcher.queue.takes_steps]
        seen: list[list[StepReport]] = [[] for _ in following]
        tokens: list[set[int]] = [set() for _ in following]
        for report in steps.reports:
            told = self._fold_events(mirror, report.events, following, tokens)
            mirror.end_report(report)
            for watcher, reports, new, events in zip(following, seen, tokens, told, strict=True):
                reports.append(self._seen(watcher, report, events))
                new.update(watcher.eyes.own_tokens(report.batch))
        for watcher, reports, new in zip(following, seen, tokens, strict=True):
            self._tell_texts(watcher, new)
            watcher.queue.put(Steps(reports))

    def _fold_events(
        self,
        mirror: CacheMirror,
        events: Sequence[CacheEvent],
        following: Sequence[Watcher],
        tokens: Sequence[set[int]],
    ) -> list[list[CacheEvent]]:
        """What each of those hears of a report's events; tokens of their own that occur are added to `tokens`."""
        told: list[list[CacheEvent]] = [[] for _ in following]
        mirror.begin_report()
        for event in events:
            if isinstance(event, SequenceForked):
                self._numbers.made_of(event.seq_id, event.child_id)
            elif isinstance(event, SequenceOpened):
                self._numbers.made_of(event.for_seq_id, event.seq_id)
            if following:
                for watcher, heard, new in zip(following, told, tokens, strict=True):
                    seen = watcher.eyes.event(event, partial(self.knows, watcher))
                    heard.append(seen)
                    new.update(_tokens_in(seen))
            mirror.apply_event(event)
            self._settle(mirror, event)
        return told

    def _settle(self, mirror: CacheMirror, event: CacheEvent) -> None:
        """What follows from an event for whose is what."""
        match event:
            case BlockCached(block_id=block_id):
                self._authors[block_id] = self._numbers.owners.get(mirror.holders[block_id][0], 0)
            case BlockEvicted(block_id=block_id) | BlockUncached(block_id=block_id):
                self._authors.pop(block_id, None)
            case SequenceClosed(seq_id=seq_id):
                self._numbers.closed(seq_id)

    def _seen(self, watcher: Watcher, report: StepReport, events: list[CacheEvent]) -> StepReport:
        return StepReport(
            report.step, report.time, watcher.eyes.batch(report.batch), events,
            report.pool, report.queues, report.timings, report.counters,
        )  # fmt: skip

    def _tell_texts(self, watcher: Watcher, tokens: set[int]) -> None:
        new = [token_id for token_id in tokens - watcher.told if token_id in self._texts]
        if new:
            watcher.told.update(new)
            watcher.queue.put(TokenTexts(new, [self._texts[token_id] for token_id in new]))

    # --- all of it at once --------------------------------------------------------------------------

    def knows(self, watcher: Watcher, block_id: int) -> bool:
        """Whether the tokens of a findable block are its own: it computed them, or holds them all."""
        mirror = self.mirror
        if mirror is None:
            return False
        if self._authors.get(block_id) == watcher.client:
            return True
        own = [seq_id for seq_id in mirror.holders[block_id] if self._numbers.owners.get(seq_id) == watcher.client]
        return any(_holds_all(mirror, seq_id, block_id) for seq_id in own)

    def fresh(self, watcher: Watcher) -> list[EngineEvent]:
        """The cache as a client sees it, for one that has heard nothing yet, or not all."""
        if self.mirror is None:
            return []
        watcher.eyes.forget()
        frame = watcher.eyes.keyframe(self.mirror, partial(self.knows, watcher))
        tokens = {token_id for seq in frame.sequences for token_id in seq.token_ids}
        tokens.update(token_id for block in frame.findable.values() for token_id in block.token_ids)
        known = [token_id for token_id in tokens if token_id in self._texts]
        watcher.told = set(known)
        texts = TokenTexts([REDACTED, *known], [ANOTHERS_TOKEN, *(self._texts[token_id] for token_id in known)])
        return [texts, CacheKeyframe(keyframe.encoded(frame))]


def _holds_all(mirror: CacheMirror, seq_id: int, block_id: int) -> bool:
    """Whether every slot of the block has a token of the sequence: a hit may end inside it."""
    seq = mirror.sequences[seq_id]
    return seq.num_computed >= (seq.block_table.index(block_id) + 1) * mirror.block_size


def _tokens_in(event: CacheEvent) -> Iterable[int]:
    """Those that an event brings, as a client sees it."""
    match event:
        case SequenceExtended(token_ids=token_ids) | SequenceForked(token_ids=token_ids):
            return token_ids
        case PrefixMissed(token_id=token_id, cached_token_id=cached_token_id):
            return token_id, cached_token_id
    return ()
