"""Somebody who watches reports beside the view, and says by other means which numbers it has to state.

It keeps a mirror of its own and looks at it before and after every event; of the view's own code it uses nothing.
"""

import re
from collections import Counter
from typing import NamedTuple

from pagedchat import cache_events as ce
from pagedchat.engine.mirror import CacheMirror
from pagedchat.events import StepReport

SHOWN_IDS = 4
GROUP_WORDS = {"beams": "a beam", "answers": "another answer"}
MISFITS = ("limit", "pins", "limit and pins")


class Expected(NamedTuple):
    """A line of the event log: its kind, its numbers in their order, and words that it has."""

    kind: str
    numbers: list[int]
    words: str = ""


def numbers_in(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def taken_by(events: list[ce.CacheEvent]) -> set[int]:
    """Blocks that a sequence finds in the cache as it swaps in next: it has them before room is made for others."""
    for event in events:
        if isinstance(event, ce.SwappedIn):
            return {block_id for block_id, copied in zip(event.block_ids, event.copied, strict=True) if not copied}
        if not isinstance(event, ce.BlockEvicted):
            return set()
    return set()


class Witness:
    def __init__(self, mirror: CacheMirror, max_num_seqs: int, caching: bool) -> None:
        self.mirror = mirror
        self.max_num_seqs, self.caching = max_num_seqs, caching
        self.acting = "step"
        """What the user is doing by hand, if anything."""
        self.totals: Counter[str] = Counter()
        self.lost: dict[int, tuple[str, int]] = {}
        """Sequence -> how it last lost its blocks, and how many tokens had been computed when it did."""
        self.once: dict[int, int] = {}
        self.cut_by: dict[int, str] = {}
        self.kept: dict[int, int] = {}
        """Of requests that have not run yet: tokens found since they were asked for."""
        self.shown: dict[int, ce.SequenceHeld] = {}
        self.seen_available: set[int] = set()
        """Blocks that could be had at any moment of the last report."""
        self.seen_running: set[int] = set()
        self._being_taken: set[int] = set()
        """Blocks found by whoever the next room is made for: nobody's, and not to be evicted any more."""
        self._expected: list[Expected] = []
        self._group: tuple[int, int] | None = None
        """Who has been giving blocks up in the last events, and how many could be had before."""

    # --- what can be asked --------------------------------------------------------------------------

    @property
    def available(self) -> int:
        return len(self.mirror.free_blocks) + len(self.mirror.cached_blocks)

    def pool(self) -> dict[str, int]:
        mirror = self.mirror
        idle_pinned = sum(not mirror.ref_counts[block_id] for block_id in mirror.pinned)
        return {
            "total": mirror.num_blocks,
            "free": len(mirror.free_blocks),
            "cached": len(mirror.cached_blocks) + idle_pinned,
            "in_use": sum(count > 0 for count in mirror.ref_counts),
            "shared": sum(count > 1 for count in mirror.ref_counts),
            "table_entries": sum(len(seq.block_table) for seq in mirror.sequences.values()),
            "withheld": len(mirror.withheld),
            "pinned": len(mirror.pinned),
        }

    def queues(self) -> Counter[str]:
        return Counter(seq.status for seq in self.mirror.sequences.values())

    def findable(self, token_ids: list[int]) -> int:
        """Leading tokens that the findable blocks hold, by their parents and tokens alone."""
        mirror, parent, position = self.mirror, b"", 0
        while self.caching:
            after = [b for b, h in enumerate(mirror.block_hashes) if h and mirror.block_parents[b] == parent]
            rest = tuple(token_ids[position : position + mirror.block_size])
            lengths = {b: common_length(mirror.block_tokens[b], rest) for b in after}
            best = max(after, key=lengths.__getitem__, default=None)
            if best is None or lengths[best] < mirror.block_size:
                return position + (lengths[best] if best is not None else 0)
            position, parent = position + mirror.block_size, mirror.block_hashes[best] or b""
        return 0

    def check_reasons(self) -> None:
        """After a step: whatever is said of one that waits was so when the step was planned."""
        for seq_id, held in self.shown.items():
            seq, pool = self.mirror.sequences[seq_id], self.pool()
            usable = pool["total"] - pool["withheld"]
            if held.cause in MISFITS:
                assert held.num_needed == -(-len(seq.token_ids) // self.mirror.block_size) > held.num_there
                assert usable - pool["pinned"] <= held.num_there <= usable
            elif held.cause == "blocks":
                assert held.num_there in self.seen_available
            elif held.cause == "seats":
                assert held.num_there in self.seen_running

    # --- following ----------------------------------------------------------------------------------

    def watch(self, report: StepReport) -> list[Expected]:
        """Fold a report; the lines that are to be told of it."""
        self._expected, self._group = [], None
        self.seen_available, self.seen_running = {self.available}, {self.queues()["running"]}
        self.mirror.begin_report()
        for place, event in enumerate(report.events):
            self._being_taken = taken_by(report.events[place + 1 :])
            self._look(event)
            self.seen_available.add(self.available)
            self.seen_running.add(self.queues()["running"])
        self.mirror.end_report(report)
        if report.batch:
            tokens = sum(entry.num_prefill + entry.num_decode for entry in report.batch)
            self._say("STEP", len(report.batch), tokens)
            self.totals["steps"] += 1
            self.totals["prefill_tokens"] += sum(entry.num_prefill for entry in report.batch)
            self.totals["drafts"] += sum(entry.num_drafted > 0 for entry in report.batch)
            self.totals["draft_tokens"] += sum(entry.num_drafted for entry in report.batch)
            self.totals["accepted_tokens"] += sum(max(0, entry.num_decode - 1) for entry in report.batch)
            self.totals["decode_tokens"] += sum(entry.num_decode for entry in report.batch)
        return self._expected

    def _look(self, event: ce.CacheEvent) -> None:
        seq_id = getattr(event, "seq_id", -1)
        gives = isinstance(event, ce.BlocksFreed | ce.SwappedOut | ce.HostBlocksFreed)
        if gives and (self._group is None or self._group[0] != seq_id):
            self._group = (seq_id, self.available)
        look = getattr(self, re.sub("([A-Z])", r"_\1", type(event).__name__).lower(), None)
        if look is not None and not isinstance(event, ce.SequenceScheduled):
            look(event)
        self.mirror.apply_event(event)
        if isinstance(event, ce.SequenceScheduled):
            self._sequence_scheduled(event)
        if not gives:
            self._group = None

    def _say(self, kind: str, *numbers: int, words: str = "") -> None:
        self._expected.append(Expected(kind, list(numbers), words))

    # --- sequences ----------------------------------------------------------------------------------

    def _sequence_opened(self, event: ce.SequenceOpened) -> None:
        self._say("OPEN")

    def _sequence_extended(self, event: ce.SequenceExtended) -> None:
        self._say("EXTEND", len(event.token_ids))
        self.kept[event.seq_id] = 0
        computed = self.mirror.sequences[event.seq_id].num_computed
        if event.num_recomputed and computed % self.mirror.block_size == 0:
            self.cut_by[event.seq_id] = "last token once more"

    def _sequence_scheduled(self, event: ce.SequenceScheduled) -> None:
        seq = self.mirror.sequences[event.seq_id]
        self.shown.pop(event.seq_id, None)
        if event.seq_id in self.kept:
            self.totals["kept_tokens"] += seq.num_computed - self.kept.pop(event.seq_id)
        how, _ = self.lost.pop(event.seq_id, ("", 0))
        again = max(0, self.once.get(event.seq_id, 0) - seq.num_computed)
        if not how or not self.once.get(event.seq_id):
            self._say("RUN")
        elif how == "swap" and seq.block_table:
            self._say("RESUME", len(seq.block_table), *([again] if again else []), words="back from host memory")
        else:
            self._say("RESUME", again, *([seq.num_computed] if seq.num_computed else []), words="recomputes")

    def _sequence_held(self, event: ce.SequenceHeld) -> None:
        before, pool = self.mirror.sequences[event.seq_id].held, self.pool()
        seq, usable = self.mirror.sequences[event.seq_id], pool["total"] - pool["withheld"]
        assert seq.status in ("waiting", "swapped")
        assert event != before, "told when it changes"
        needed = -(-len(seq.token_ids) // self.mirror.block_size)
        if event.cause in MISFITS:
            assert (event.num_needed, event.num_there < needed) == (needed, True)
            assert usable - pool["pinned"] <= event.num_there <= usable
            assert ("limit" in event.cause, "pins" in event.cause) == (
                bool(pool["withheld"]) or not pool["pinned"], bool(pool["pinned"])
            )  # fmt: skip
        elif event.cause == "blocks":
            assert event.num_needed > event.num_there == self.available
        elif event.cause == "seats":
            assert event.num_there == self.max_num_seqs <= self.queues()["running"]
        self.shown[event.seq_id] = event
        if event.cause in MISFITS or (
            event.cause in ("blocks", "seats") and (before is None or before.cause != event.cause)
        ):
            seats = [event.num_there] if event.cause == "seats" else [event.num_needed, event.num_there]
            self._say("WAIT", *seats)

    def _sequence_parked(self, event: ce.SequenceParked) -> None:
        self._say("PARK", words=event.reason)
        self.kept.pop(event.seq_id, None)
        self.shown.pop(event.seq_id, None)

    def _sequence_forked(self, event: ce.SequenceForked) -> None:
        parent = self.mirror.sequences[event.seq_id]
        self._say("FORK", len(parent.block_table) + len(parent.host_block_table), 0)
        if event.grouped:
            self._expected[-1] = self._expected[-1]._replace(words=GROUP_WORDS[parent.group_kind])
        for known in (self.once, self.cut_by, self.kept):
            if event.seq_id in known:
                known[event.child_id] = known[event.seq_id]
        if event.length >= 0:
            length = event.length + len(event.token_ids) - 1
            if parent.num_computed > length:
                self.cut_by[event.child_id] = "last token once more"
            if event.child_id in self.once:
                self.once[event.child_id] = min(self.once[event.child_id], event.length)

    def _sequence_grouped(self, event: ce.SequenceGrouped) -> None:
        self._say("GROUP", event.size, words="beams" if event.kind == "beams" else "answers")

    def _sequence_rewound(self, event: ce.SequenceRewound) -> None:
        self._say("REWIND", event.length)
        if event.length < self.mirror.sequences[event.seq_id].num_computed:
            self.cut_by[event.seq_id] = "cut back into it"
        if event.seq_id in self.once:
            self.once[event.seq_id] = min(self.once[event.seq_id], event.length)

    def _sequence_preempted(self, event: ce.SequencePreempted) -> None:
        seq = self.mirror.sequences[event.seq_id]
        assert self._group is not None
        assert (event.was, event.num_tokens) == (seq.status, seq.num_computed)
        freed, withheld = self.available - self._group[1], len(self.mirror.withheld)
        limit = [self.mirror.num_blocks - withheld] if withheld else []
        computed = seq.num_computed
        if event.mode == "swap":
            self._say("PREEMPT", computed, freed, *limit, words="to host memory")
        else:
            cached = self.findable(seq.token_ids[:computed])
            words = "" if cached else "none still cached"
            self._say("PREEMPT", computed, *([cached] if cached else []), freed, *limit, words=words)
        self.totals["preemptions"] += 1
        self.once[event.seq_id] = max(computed, self.once.get(event.seq_id, 0))
        self.lost[event.seq_id] = (event.mode, computed)

    def _contents_lost(self, event: ce.ContentsLost) -> None:
        seq = self.mirror.sequences[event.seq_id]
        assert not seq.block_table, "dropped before"
        assert not seq.host_block_table
        assert event.num_tokens == seq.num_computed
        assert event.status == ("parked" if seq.status == "parked" else "waiting")
        self._say("LOST", event.num_tokens, words="a step failed")
        self.once[event.seq_id] = max(seq.num_computed, self.once.get(event.seq_id, 0))
        self.lost[event.seq_id] = ("fault", seq.num_computed)

    def _sequence_closed(self, event: ce.SequenceClosed) -> None:
        self._say("CLOSE")
        for known in (self.once, self.cut_by, self.kept, self.lost, self.shown):
            known.pop(event.seq_id, None)

    # --- blocks -------------------------------------------------------------------------------------

    def _block_allocated(self, event: ce.BlockAllocated) -> None:
        """Those of one sequence in a row share a line."""
        last = self._expected[-1] if self._expected else None
        if last is not None and last.kind == f"ALLOC {event.seq_id}":
            ids = last.numbers[1:] + ([event.block_id] if len(last.numbers) <= SHOWN_IDS else [])
            self._expected[-1] = Expected(last.kind, [last.numbers[0] + 1, *ids])
        else:
            self._say(f"ALLOC {event.seq_id}", 1, event.block_id)

    def _prefix_hit(self, event: ce.PrefixHit) -> None:
        seq, size = self.mirror.sequences[event.seq_id], self.mirror.block_size
        held = [token for block_id in event.block_ids for token in self.mirror.block_tokens[block_id]]
        start = seq.num_computed
        assert held[: event.num_tokens] == seq.token_ids[start : start + event.num_tokens]
        assert (len(event.block_ids) - 1) * size < event.num_tokens <= len(event.block_ids) * size
        self._say("HIT", event.num_tokens, len(event.block_ids), *event.block_ids[:SHOWN_IDS])
        self.totals["prefix_hits"] += event.num_tokens
        self.cut_by[event.seq_id] = "a hit ended in it"
        if event.seq_id in self.kept:
            self.kept[event.seq_id] += event.num_tokens

    def _prefix_missed(self, event: ce.PrefixMissed) -> None:
        assert event.position == self.mirror.sequences[event.seq_id].num_computed
        if event.cached_block_id < 0:
            self._say("MISS", *([event.position] if event.position else []))
        else:
            tokens = self.mirror.block_tokens[event.cached_block_id]
            assert tokens[event.position % self.mirror.block_size] == event.cached_token_id
            self._say("MISS", event.position, event.cached_block_id)

    def _block_copied(self, event: ce.BlockCopied) -> None:
        seq, refs = self.mirror.sequences[event.seq_id], self.mirror.ref_counts[event.src]
        slots = seq.num_computed - event.block_idx * self.mirror.block_size
        if refs > 1:
            words = {"beams": "a beam was forked", "answers": "answers part here", "": ""}[seq.group_kind]
            self._say("COW", event.src, refs, event.dst, slots, words=words)
        else:
            assert self.mirror.block_hashes[event.src] is not None
            self._say("COW", event.src, event.dst, slots, words=f"findable, {self.cut_by[event.seq_id]}")
        self.totals["copies"] += 1

    def _blocks_freed(self, event: ce.BlocksFreed) -> None:
        table = self.mirror.sequences[event.seq_id].block_table
        assert table[-len(event.block_ids) :] == event.block_ids[::-1]
        words = {"pruned": "others are likelier", "ended": "the search is over", "": ""}[event.cause]
        self._say("FREE", len(event.block_ids), *event.block_ids[:SHOWN_IDS], words=words)
        assert not event.cause or self.mirror.sequences[event.seq_id].group_kind == "beams"

    def _block_evicted(self, event: ce.BlockEvicted) -> None:
        causes = {"evict": "by hand", "flush": "by a flush", "limit": "least recently used, for the limit"}
        self._say("EVICT", event.block_id, words=causes.get(self.acting, "least recently used"))
        if self.acting not in ("evict", "flush"):
            assert event.block_id == next(
                each for each in self.mirror.cached_blocks if each not in self._being_taken
            )
        self.totals["evictions"] += 1

    def _block_pinned(self, event: ce.BlockPinned) -> None:
        self._say("PIN", event.block_id)

    def _block_unpinned(self, event: ce.BlockUnpinned) -> None:
        self._say("UNPIN", event.block_id)

    def _blocks_withheld(self, event: ce.BlocksWithheld) -> None:
        self._limited(event.block_ids, -len(event.block_ids))

    def _blocks_returned(self, event: ce.BlocksReturned) -> None:
        self._limited(event.block_ids, len(event.block_ids))

    def _limited(self, block_ids: list[int], change: int) -> None:
        total = self.mirror.num_blocks
        left = total - len(self.mirror.withheld) + change
        self._say("LIMIT", left, total, len(block_ids), *block_ids[:SHOWN_IDS])

    def _swapped_out(self, event: ce.SwappedOut) -> None:
        self._say("SWAP", len(event.block_ids), sum(event.copied), *event.host_block_ids[:SHOWN_IDS])
        self.totals["swaps_out"] += sum(event.copied)

    def _swapped_in(self, event: ce.SwappedIn) -> None:
        self._say("SWAP", len(event.block_ids), sum(event.copied), *event.block_ids[:SHOWN_IDS])
        self.totals["swaps_in"] += sum(event.copied)

    def _host_blocks_freed(self, event: ce.HostBlocksFreed) -> None:
        self._say("FREE", len(event.host_block_ids), *event.host_block_ids[:SHOWN_IDS])


def common_length(one: tuple[int, ...], other: tuple[int, ...]) -> int:
    return next((i for i, (a, b) in enumerate(zip(one, other, strict=False)) if a != b), min(len(one), len(other)))
