"""The state of the cache, folded from `StepReport`s alone.

The inspector draws only this, a trace is the same reports on disk, and a replay the same fold. The mirror never
asks the engine; a test holds it against the engine after every step of random workloads.
"""

from collections import OrderedDict
from functools import singledispatchmethod
from typing import Literal

import msgspec

from pagedchat import cache_events as ce
from pagedchat import events as ev
from pagedchat.step_batch import BatchEntry, DecodeBatch

BlockState = Literal["free", "cached", "in_use", "withheld"]
_REDACTED = (ce.REDACTED,)


class MirrorSequence(msgspec.Struct, array_like=True):
    """What the reports tell of one sequence; fields as in `engine.sequence.Sequence`."""

    seq_id: int
    status: ce.SequenceStatus = "parked"
    token_ids: list[int] = msgspec.field(default_factory=list)
    num_computed: int = 0
    block_table: list[int] = msgspec.field(default_factory=list)
    host_block_table: list[int] = msgspec.field(default_factory=list)
    held: ce.SequenceHeld | None = None
    """Why it waits, as far as that was told."""
    group_id: int = -1
    """Its group; -1: it is in none."""
    group_kind: ce.GroupKind = ""


class CacheMirror:
    """Blocks, block tables and queues after the last report."""

    def __init__(self, num_blocks: int, block_size: int, num_host_blocks: int = 0) -> None:
        self.num_blocks = num_blocks
        self.block_size = block_size
        self.ref_counts = [0] * num_blocks
        self.block_hashes: list[bytes | None] = [None] * num_blocks
        self.block_parents: list[bytes] = [b""] * num_blocks
        """For each findable block the hash of the block before it; empty for a first block."""
        self.block_tokens: list[tuple[int, ...]] = [()] * num_blocks
        """For each findable block its tokens."""
        self.withheld: dict[int, None] = {}
        """Blocks that a limit keeps out of reach; the last one comes back first."""
        self.pinned: dict[int, None] = {}
        """Blocks that are not evicted."""
        self.holders: list[list[int]] = [[] for _ in range(num_blocks)]
        """For each block the sequences whose block table has it, in order of arrival."""
        self.free_blocks = list(range(num_blocks - 1, -1, -1))
        """The last one is taken next."""
        self.cached_blocks: OrderedDict[int, None] = OrderedDict()
        """The first one is evicted next."""
        self.host_ref_counts = [0] * num_host_blocks
        self.sequences: dict[int, MirrorSequence] = {}
        self.touched: dict[int, int] = {}
        """Block -> number of the report that last changed it or wrote into it, the latest last."""
        self.num_reports = 0
        self.last: ev.StepReport | None = None

    def apply(self, report: ev.StepReport) -> None:
        """Fold one report in."""
        self.begin_report()
        for event in report.events:
            self.apply_event(event)
        self.end_report(report)

    def begin_report(self) -> None:
        """For somebody who looks between the events of a report: they follow, one by one, and then `end_report`."""
        self.num_reports += 1

    def apply_event(self, event: ce.CacheEvent) -> None:
        """Fold the next event of the report that was begun."""
        _FOLDS[type(event)](self, event)

    def end_report(self, report: ev.StepReport) -> None:
        """Fold in what the batch computed, after all events of the same report."""
        if type(report.batch) is DecodeBatch:
            self._fold_decodes(report.batch)
        else:
            for entry in report.batch:
                self._fold_entry(entry)
        self.last = report

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, CacheMirror):
            return NotImplemented
        return vars(self) == vars(other)

    __hash__ = None  # type: ignore[assignment]  # it changes with every report

    # --- what can be asked --------------------------------------------------------------------------

    def state(self, block_id: int) -> BlockState:
        """Free, cached, in use, or withheld by a limit."""
        if self.ref_counts[block_id]:
            return "in_use"
        if block_id in self.cached_blocks or block_id in self.pinned:
            return "cached"
        return "withheld" if block_id in self.withheld else "free"

    def next_out(self, count: int) -> list[int]:
        """The blocks that will be taken next: free ones first, then cached ones, least recently used first."""
        blocks = self.free_blocks[: -count - 1 : -1]
        for block_id in self.cached_blocks:
            if len(blocks) >= count:
                break
            blocks.append(block_id)
        return blocks

    def changed_since(self, number: int) -> set[int]:
        """The blocks that reports after this one changed or wrote into. Costs a look at no others."""
        changed: set[int] = set()
        for block_id, last in reversed(self.touched.items()):
            if last <= number:
                break
            changed.add(block_id)
        return changed

    def fill(self, block_id: int) -> int:
        """Slots of the block that hold valid tokens."""
        if self.block_hashes[block_id] is not None:
            return self.block_size
        filled = 0
        for seq_id in self.holders[block_id]:
            seq = self.sequences[seq_id]
            position = seq.block_table.index(block_id) * self.block_size
            filled = max(filled, min(self.block_size, seq.num_computed - position))
        return filled

    # --- folding ------------------------------------------------------------------------------------

    def _fold_entry(self, entry: BatchEntry) -> None:
        """Most entries are decodes of one token; thousands of reports are folded to travel in time."""
        seq = self.sequences[entry.seq_id]
        start = seq.num_computed
        end = seq.num_computed = start + entry.num_prefill + entry.num_decode
        seq.token_ids += entry.token_ids
        size, touched, number = self.block_size, self.touched, self.num_reports
        for block_id in seq.block_table[start // size : (end - 1) // size + 1]:  # as `_touch` does
            touched.pop(block_id, None)
            touched[block_id] = number

    def _fold_decodes(self, batch: DecodeBatch) -> None:
        """As `_fold_entry` for each, for what a fast engine reports a thousand times a second."""
        sequences, size, touched, number = self.sequences, self.block_size, self.touched, self.num_reports
        forget = touched.pop
        for seq_id, token_id in zip(batch.seq_ids, batch.token_ids, strict=True):
            seq = sequences[seq_id]
            start = seq.num_computed
            seq.num_computed = start + 1
            seq.token_ids.append(token_id)
            block_id = seq.block_table[start // size]
            forget(block_id, None)
            touched[block_id] = number

    @singledispatchmethod
    def _fold(self, event: ce.CacheEvent) -> None:
        raise TypeError(f"not a cache event: {event!r}")

    @_fold.register
    def _(self, event: ce.SequenceOpened) -> None:
        self.sequences[event.seq_id] = MirrorSequence(event.seq_id)

    @_fold.register
    def _(self, event: ce.SequenceExtended) -> None:
        seq = self.sequences[event.seq_id]
        seq.token_ids.extend(event.token_ids)
        seq.num_computed -= event.num_recomputed
        self._touch_end(seq)
        seq.status = "swapped" if seq.host_block_table else "waiting"

    @_fold.register
    def _(self, event: ce.SequenceScheduled) -> None:
        seq = self.sequences[event.seq_id]
        seq.status, seq.held = "running", None

    @_fold.register
    def _(self, event: ce.SequenceHeld) -> None:
        self.sequences[event.seq_id].held = event

    @_fold.register
    def _(self, event: ce.SequenceParked) -> None:
        seq = self.sequences[event.seq_id]
        seq.status, seq.held = "parked", None

    @_fold.register
    def _(self, event: ce.SequenceForked) -> None:
        parent = self.sequences[event.seq_id]
        child = MirrorSequence(
            event.child_id,
            event.status,
            parent.token_ids.copy(),
            parent.num_computed,
            host_block_table=parent.host_block_table.copy(),
        )
        self.sequences[event.child_id] = child
        if event.length >= 0:
            child.token_ids[event.length :] = event.token_ids
            child.num_computed = min(child.num_computed, len(child.token_ids) - 1)
        if event.grouped:
            child.group_id, child.group_kind = parent.group_id, parent.group_kind
        for block_id in parent.block_table:
            self._append(child, block_id)
        for block_id in child.host_block_table:
            self.host_ref_counts[block_id] += 1

    @_fold.register
    def _(self, event: ce.SequenceGrouped) -> None:
        seq = self.sequences[event.seq_id]
        seq.group_id, seq.group_kind = event.group_id, event.kind

    @_fold.register
    def _(self, event: ce.BeamsScored) -> None:
        """How likely beams are changes nothing."""

    @_fold.register
    def _(self, event: ce.SequenceRewound) -> None:
        seq = self.sequences[event.seq_id]
        del seq.token_ids[event.length :]
        seq.num_computed = min(seq.num_computed, event.length)
        self._touch_end(seq)

    @_fold.register
    def _(self, event: ce.SequencePreempted) -> None:
        seq = self.sequences[event.seq_id]
        seq.status = event.status
        if event.mode == "recompute":
            seq.num_computed = 0

    @_fold.register
    def _(self, event: ce.ContentsLost) -> None:
        seq = self.sequences[event.seq_id]
        seq.status = event.status
        seq.num_computed = 0

    @_fold.register
    def _(self, event: ce.SequenceClosed) -> None:
        del self.sequences[event.seq_id]

    @_fold.register
    def _(self, event: ce.BlockAllocated) -> None:
        self._append(self.sequences[event.seq_id], event.block_id)

    @_fold.register
    def _(self, event: ce.PrefixHit) -> None:
        seq = self.sequences[event.seq_id]
        for block_id in event.block_ids:
            self._append(seq, block_id)
        seq.num_computed += event.num_tokens
        self._recognise(seq, event.block_ids)

    @_fold.register
    def _(self, event: ce.BlockCopied) -> None:
        seq = self.sequences[event.seq_id]
        self._hold(seq, event.dst)
        seq.block_table[event.block_idx] = event.dst
        self._release(seq, event.src)

    @_fold.register
    def _(self, event: ce.BlocksFreed) -> None:
        seq = self.sequences[event.seq_id]
        del seq.block_table[-len(event.block_ids) :]
        for block_id in event.block_ids:
            self._release(seq, block_id)

    @_fold.register
    def _(self, event: ce.BlockEvicted) -> None:
        del self.cached_blocks[event.block_id]
        self._forget_contents(event.block_id)
        self.free_blocks.append(event.block_id)
        self._touch(event.block_id)

    @_fold.register
    def _(self, event: ce.BlockCached) -> None:
        self.block_hashes[event.block_id] = event.block_hash
        self.block_parents[event.block_id] = event.parent
        self.block_tokens[event.block_id] = self._tokens_in(event.block_id)
        self._touch(event.block_id)

    @_fold.register
    def _(self, event: ce.BlockUncached) -> None:
        self._forget_contents(event.block_id)
        self._touch(event.block_id)

    @_fold.register
    def _(self, event: ce.BlockPinned) -> None:
        self.pinned[event.block_id] = None
        self.cached_blocks.pop(event.block_id, None)
        self._touch(event.block_id)

    @_fold.register
    def _(self, event: ce.BlockUnpinned) -> None:
        del self.pinned[event.block_id]
        if not self.ref_counts[event.block_id]:
            self.cached_blocks[event.block_id] = None
        self._touch(event.block_id)

    @_fold.register
    def _(self, event: ce.BlocksWithheld) -> None:
        for block_id in event.block_ids:
            self._take(block_id)
            self.withheld[block_id] = None
            self._touch(block_id)

    @_fold.register
    def _(self, event: ce.BlocksReturned) -> None:
        for block_id in event.block_ids:
            del self.withheld[block_id]
            self.free_blocks.append(block_id)
            self._touch(block_id)

    @_fold.register
    def _(self, event: ce.PrefixMissed) -> None:
        """A lookup changes nothing."""

    @_fold.register
    def _(self, event: ce.SwappedOut) -> None:
        seq = self.sequences[event.seq_id]
        seq.block_table = []
        for block_id in reversed(event.block_ids):
            self._release(seq, block_id)
        seq.host_block_table = list(event.host_block_ids)
        for block_id in event.host_block_ids:
            self.host_ref_counts[block_id] += 1

    @_fold.register
    def _(self, event: ce.SwappedIn) -> None:
        seq = self.sequences[event.seq_id]
        for block_id in event.block_ids:
            self._append(seq, block_id)
        self._recognise(seq, event.block_ids)
        seq.host_block_table = []
        for block_id in event.host_block_ids:
            self.host_ref_counts[block_id] -= 1

    @_fold.register
    def _(self, event: ce.HostBlocksFreed) -> None:
        seq = self.sequences[event.seq_id]
        del seq.host_block_table[-len(event.host_block_ids) :]
        for block_id in event.host_block_ids:
            self.host_ref_counts[block_id] -= 1

    def _forget_contents(self, block_id: int) -> None:
        self.block_hashes[block_id] = None
        self.block_parents[block_id] = b""
        self.block_tokens[block_id] = ()

    def _tokens_in(self, block_id: int) -> tuple[int, ...]:
        """The tokens of a full block, as its first owner has them."""
        seq = self.sequences[self.holders[block_id][0]]
        start = seq.block_table.index(block_id) * self.block_size
        return tuple(seq.token_ids[start : start + self.block_size])

    def _recognise(self, seq: MirrorSequence, block_ids: list[int]) -> None:
        """Blocks of another client, found for a sequence of one's own, have its tokens, where it fills them."""
        for block_id in block_ids:
            if self.block_tokens[block_id][:1] == _REDACTED:
                end = (seq.block_table.index(block_id) + 1) * self.block_size
                if seq.num_computed >= end:
                    self.block_tokens[block_id] = tuple(seq.token_ids[end - self.block_size : end])

    def _touch(self, block_id: int) -> None:
        """Also puts the block behind those that were touched before."""
        self.touched.pop(block_id, None)
        self.touched[block_id] = self.num_reports

    def _touch_end(self, seq: MirrorSequence) -> None:
        """The block in which the computed tokens end now holds fewer of them."""
        index = seq.num_computed // self.block_size
        if index < len(seq.block_table):
            self._touch(seq.block_table[index])

    def _append(self, seq: MirrorSequence, block_id: int) -> None:
        self._hold(seq, block_id)
        seq.block_table.append(block_id)

    def _hold(self, seq: MirrorSequence, block_id: int) -> None:
        if not self.ref_counts[block_id]:
            self._take(block_id)
        self.ref_counts[block_id] += 1
        self.holders[block_id].append(seq.seq_id)
        self._touch(block_id)

    def _take(self, block_id: int) -> None:
        if block_id in self.cached_blocks:
            del self.cached_blocks[block_id]
        elif block_id in self.pinned:
            return
        elif self.free_blocks[-1] == block_id:
            self.free_blocks.pop()
        else:
            self.free_blocks.remove(block_id)

    def _release(self, seq: MirrorSequence, block_id: int) -> None:
        self.ref_counts[block_id] -= 1
        self.holders[block_id].remove(seq.seq_id)
        self._touch(block_id)
        if self.ref_counts[block_id]:
            return
        if block_id in self.pinned:
            return
        if self.block_hashes[block_id] is not None:
            self.cached_blocks[block_id] = None
        else:
            self.free_blocks.append(block_id)


_FOLDS = dict(CacheMirror.__dict__["_fold"].dispatcher.registry)
"""The fold for each type of event. `self._fold(event)` is the same, but makes a new function at every call."""
