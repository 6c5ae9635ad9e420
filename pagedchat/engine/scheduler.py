"""One step's batch: who runs, how many tokens each, and who gives blocks back when there are too few.

A step has one token budget. It is filled with decodes first and with chunks of prefill after them, so that a
long prompt never stops the chats that are streaming (continuous batching, Yu et al. 2022; chunked prefill, Agrawal
et al. 2023). First come, first served, under priorities.

When blocks run out, in this order: cached blocks are evicted (inside the pool), parked sequences give theirs, the
oldest first, then waiting ones that keep blocks of earlier turns, then running ones, the newest first. Blocks leave
by swap to host memory or by being dropped and recomputed later, as configured; swap falls back to recomputation
where host memory is full.
"""

from collections.abc import Iterable
from heapq import merge
from typing import Literal

from pagedchat import cache_events as ev
from pagedchat.config import PreemptionMode
from pagedchat.engine.batch import Lockstep, in_lockstep
from pagedchat.engine.block_manager import NO_MATCH, BlockManager, PrefixMatch
from pagedchat.engine.blocks_ahead import BlocksAhead
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.output import ScheduledSequence
from pagedchat.engine.queues import Holds, Queues, precedence
from pagedchat.engine.sequence import Sequence
from pagedchat.engine.speculation.drafts import Drafts
from pagedchat.engine.swapping import Swapper
from pagedchat.engine.tokens.logprobs import wants_prompt_logprobs

MOST_TOLD = 256
"""Prompt tokens of a step of which it is told how likely they were: each takes a row of logits, for which room was
measured as for so many sequences."""

Admission = Literal["ok", "later", "never"]
"""Whether a newcomer was taken, or its turn was used; `never`: nothing will come of waiting alone."""


class Scheduler:
    """Chooses batches; owns the queues, uses the block manager, knows no model."""

    def __init__(self, limits: EngineLimits, blocks: BlockManager) -> None:
        self.limits = limits
        self.blocks = blocks
        self.queues = Queues()
        self.swapper = Swapper(blocks)
        self.num_preemptions = 0
        """Times that blocks were taken from a sequence."""
        self.prefix_queries = 0
        self.prefix_hits = 0
        self.kept_tokens = 0
        """Prompt tokens that sequences had already when their requests first ran."""
        self._gave_way = False
        """Whether a running sequence had to leave the batch that is being made."""
        self._holds = Holds(blocks)
        self.held_back: list[Sequence] = []
        """Those in the queues that cannot run however long they wait: a limit or pins leave them too few blocks."""
        self._stalled = False
        self.ahead = BlocksAhead(blocks, limits.reserve_ahead)
        self.drafts = Drafts(limits.speculation, blocks, limits.most_draft_rows)
        """What is guessed for those that decode, and what came of it."""
        self.lockstep: Lockstep | None = None
        """Everybody in the last batch, where that was the one before it once more, one token further."""
        self._num_changes = -1
        """Of the queues, when the last batch was complete."""
        self._start_batch([])

    @property
    def has_work(self) -> bool:
        """Whether some sequence wants a token and can have it. Those that are held back wait for a `wake`."""
        queues = self.queues
        return bool(queues.running or ((queues.waiting or queues.swapped) and not self._stalled))

    def wake(self) -> None:
        """Something has changed: who was held back may run now."""
        self._stalled = False

    def break_run(self) -> None:
        """The last batch did not go as planned: the next one does not follow from it."""
        self.lockstep = None
        self._start_batch([])
        self.wake()

    def schedule(self) -> list[ScheduledSequence]:
        """The next batch. Every sequence in it has the blocks it writes to, and they are its own."""
        changes, self._gave_way = self.queues.num_changes, False
        if self._holds.asked:
            self._holds.begin()
        self.ahead.given = []
        self.lockstep = self._next_lockstep()
        self._start_batch([] if self.lockstep is None else self.lockstep.batch())
        if self.lockstep is None and self._schedule_decodes():
            self._schedule_prefills()
        if len(self.queues.running) > self.ahead.at_once:
            self.ahead.take_turns(self.queues.running)
        if not self._gave_way:  # otherwise newcomers would take what was just given back
            self._admit()
            self._stalled = not self.queues.running
        if self._holds.before:
            self._holds.end()
        self._num_changes = self.queues.num_changes
        if self._num_changes != changes:
            self.lockstep = None
        elif self.lockstep is not None:
            self.lockstep.grown = self.ahead.given
        if self.drafts.is_on:
            self._draft()
        return self._batch

    def _draft(self) -> None:
        """Guess what comes next, where the batch leaves room for it."""
        if self.lockstep is None or self.blocks.block_ops:
            self.drafts.note(self._batch, self.blocks.block_ops)
        else:
            self.drafts.note_run(self.lockstep, self._batch)
        if self.lockstep is not None and self.drafts.rests(self.lockstep):
            return
        try:
            if not self._gave_way and self.drafts.add(self._batch, self._budget):
                self.lockstep = None
        except BaseException:  # an interrupt, while a draft model computed: this batch will not be run
            self.drafts.give_back()
            self.break_run()
            raise

    def _start_batch(self, decodes: list[ScheduledSequence]) -> None:
        self._budget = self.limits.max_num_batched_tokens - len(decodes)
        self._batch = decodes
        self._told_left = MOST_TOLD
        self._being_computed: set[bytes] = set()
        """Hashes of the blocks that the prefills of this batch fill next."""

    def _next_lockstep(self) -> Lockstep | None:
        """The batch before, if it is to run once more and nothing has to be taken from anybody for it."""
        running, lockstep = self.queues.running, self.lockstep
        if self.queues.num_changes != self._num_changes:
            return None
        if lockstep is None:
            if not in_lockstep(self._batch, running):
                return None
            lockstep = Lockstep(running.copy())
        lockstep.room -= 1
        return lockstep if lockstep.room > 1 or self.ahead.suffice(lockstep) else None

    # --- running sequences --------------------------------------------------------------------------

    def _schedule_decodes(self) -> bool:
        """Whoever wants one token; returns whether somebody who runs wants more, as far as the budget let look."""
        running = self.queues.running
        batch, budget, index, has_chunks = self._batch, self._budget, 0, False
        while index < len(running) and budget:
            seq = running[index]
            start = seq.num_computed
            num_uncomputed = len(seq.token_ids) - start
            if num_uncomputed > 1:
                has_chunks = True
            elif num_uncomputed and (start < seq.writable_len or self._make_writable(seq, start + 1)):
                batch.append(ScheduledSequence(seq, start, 1, True))
                budget -= 1
                if start + 1 == seq.writable_len:
                    self.ahead.give(running, [index])
            index += 1
        self._budget = budget
        return has_chunks

    def _schedule_prefills(self) -> None:
        running = self.queues.running
        index = 0
        while index < len(running) and self._budget:
            seq = running[index]
            if seq.num_uncomputed > 1:
                end = self._end_of_chunk(seq)
                if end > seq.num_computed and self._make_writable(seq, end):
                    self._add(seq, end)
            index += 1

    def _end_of_chunk(self, seq: Sequence) -> int:
        """How far it may be computed in this step."""
        most = min(self._budget, self._told_left) if wants_prompt_logprobs(seq) else self._budget
        return seq.num_computed + min(seq.num_uncomputed, most)

    def _add(self, seq: Sequence, end: int) -> None:
        start = seq.num_computed
        next_hash = self.blocks.next_hash(seq)
        if next_hash is not None:
            self._being_computed.add(next_hash)
        self._batch.append(ScheduledSequence(seq, start, end - start, end == len(seq.token_ids)))
        self._budget -= end - start
        if wants_prompt_logprobs(seq):
            self._told_left -= end - start
        self.ahead.begin_reply(seq, end, len(self.queues.running))

    def _make_writable(self, seq: Sequence, end: int) -> bool:
        """Blocks for a running sequence, taken from others if need be; False if it had to give its own."""
        while not self.blocks.prepare_write(seq, end):
            victim = self._next_victim(seq) or self.queues.running[-1]
            if not self.blocks.fits(seq):
                victim = seq  # whatever others gave, it would not do
            self._take_blocks_from(victim, seq)
            if victim is seq:
                return False
        return True

    # --- newcomers ----------------------------------------------------------------------------------

    def _admit(self) -> None:
        """Waiting and swapped sequences, in order of precedence, until one does not fit.

        One whose next block is being computed for another sequence in this very step is passed over: a step later
        it finds the block in the prefix cache. So a prompt sent to many chats at once is computed once. Passed over
        are also those that would not fit if all others gave way; nobody gives anything for them.
        """
        self.held_back = []
        for seq in self._newcomers():
            if not self._budget or (not self._told_left and wants_prompt_logprobs(seq)):
                self._wait_for_room(seq, "batch", self.limits.max_num_batched_tokens)
                return
            if len(self.queues.running) >= self.limits.max_num_seqs:
                self._wait_for_room(seq, "seats", self.limits.max_num_seqs)
                return
            admission = self._admit_one(seq)
            if admission == "later":
                return
            if admission == "never":
                self.held_back.append(seq)

    def _newcomers(self) -> Iterable[Sequence]:
        """In order of precedence, as they stand now."""
        waiting, swapped = self.queues.waiting.copy(), self.queues.swapped.copy()
        return merge(waiting, swapped, key=precedence) if swapped else waiting

    def _admit_one(self, seq: Sequence) -> Admission:
        if seq.status == "swapped":
            if self._is_misfit(seq, self.swapper.found_on_device(seq)):
                return "never"
            admitted = self._swap_in(seq)
        else:
            match = self.blocks.match_prefix(seq)
            if match.next_hash in self._being_computed:
                self._holds.note(seq, "prompt")
                return "ok"
            if self._is_misfit(seq, match.block_ids):
                return "never"
            admitted = self._start(seq, match)
        if admitted:
            return "ok"
        return "later" if self.queues.running else "never"

    def _is_misfit(self, seq: Sequence, found: list[int]) -> bool:
        """Whether it would not fit if all others gave way; `found` are cached blocks that it would take."""
        if self.blocks.fits(seq, found):
            return False
        self._holds.note_misfit(seq, self.blocks.num_usable(seq, found))
        return True

    def _wait_for_room(self, seq: Sequence, cause: Literal["batch", "seats"], most: int) -> None:
        """There is none for it in this step; where limit and pins forbid it as well, that is what it waits for."""
        pool = self.blocks.pool
        if pool.withheld or pool.pinned:
            swapped = seq.status == "swapped"
            found = self.swapper.found_on_device(seq) if swapped else self.blocks.match_prefix(seq).block_ids
            if self._is_misfit(seq, found):
                return
        self._holds.note(seq, cause, 0, most)

    def _wait_for_blocks(self, seq: Sequence, num_missing: int) -> bool:
        """Not now: those that run have the blocks."""
        self._holds.note(seq, "blocks", num_missing, self.blocks.pool.num_available)
        return False

    def _start(self, seq: Sequence, match: PrefixMatch) -> bool:
        """A waiting sequence runs if blocks for all its tokens are there, or if it is alone."""
        length = len(seq.token_ids)
        while self.blocks.num_missing(seq, length, match) > self.blocks.pool.num_available:
            victim = self._next_victim(seq)
            if victim is not None:
                self._take_blocks_from(victim, seq)
                match = self.blocks.match_prefix(seq)
            elif self.queues.running:
                return self._wait_for_blocks(seq, self.blocks.num_missing(seq, length, match))
            elif match is not NO_MATCH:
                match = NO_MATCH  # alone, and not even enough to copy the block in which the match ends
            elif self.blocks.can_write_in_place(seq, length):
                break
            else:
                return self._wait_for_blocks(seq, self.blocks.num_missing(seq, length))
        self._take_prefix(seq, match)
        end = self._end_of_chunk(seq)
        if not self.blocks.prepare_write(seq, end):
            return self._wait_for_blocks(seq, self.blocks.num_missing(seq, end))
        self._run(seq)
        self._add(seq, end)
        return True

    def _swap_in(self, seq: Sequence) -> bool:
        """A swapped sequence runs if blocks for its next token are there; if it is alone, for all its tokens."""
        length = seq.num_computed + 1 if self.queues.running else len(seq)
        while self.swapper.num_missing(seq, length) > self.blocks.pool.num_available:
            victim = self._next_victim(seq)
            if victim is None:
                return self._wait_for_blocks(seq, self.swapper.num_missing(seq, length))
            self._take_blocks_from(victim, seq)
        self.swapper.swap_in(seq)
        self._begin_request(seq)
        end = self._end_of_chunk(seq)
        self._run(seq)
        if self.blocks.prepare_write(seq, end):
            self._add(seq, end)
        return True

    def _run(self, seq: Sequence) -> None:
        seq.held = None
        self.queues.remove(seq)
        self.queues.enqueue(seq, "running")
        self.blocks.events.append(ev.SequenceScheduled(seq.seq_id))

    def _take_prefix(self, seq: Sequence, match: PrefixMatch) -> None:
        """Take what was found, count it, and tell where the request's first lookup ended."""
        is_first = self._begin_request(seq)
        if self.blocks.is_looked_up(seq):
            self.prefix_queries += seq.num_uncomputed
            self.prefix_hits += match.num_tokens
        if is_first:
            seq.num_cached_tokens += match.num_tokens
            seq.num_found_tokens = match.num_tokens
        self.blocks.take_prefix(seq, match)
        if is_first and match.missed:
            self.blocks.tell_miss(seq)

    def _begin_request(self, seq: Sequence) -> bool:
        """Whether its request runs for the first time; what is computed of its prompt by then was kept."""
        is_first, seq.awaits_first_run = seq.awaits_first_run, False
        if is_first:
            seq.num_cached_tokens = seq.num_computed
            self.kept_tokens += seq.num_computed
        return is_first

    # --- taking blocks back -------------------------------------------------------------------------

    def make_available(self, num_blocks: int) -> list[int]:
        """Between steps: take blocks from sequences until so many are available.

        Returns:
            The ids of the sequences that were preempted.
        """
        preempted = []
        while self.blocks.pool.num_available < num_blocks:
            victim = self._next_victim() or self.queues.running[-1]
            preempted.append(victim.seq_id)
            self._take_blocks_from(victim, victim)
        return preempted

    def _next_victim(self, for_seq: Sequence | None = None) -> Sequence | None:
        """Who gives blocks before any running sequence does."""
        parked = self.queues.parked_on_device
        if parked:
            return next(iter(parked.values()))
        for seq in reversed(self.queues.waiting):
            if seq.block_table and seq is not for_seq:
                return seq
        return None

    def _take_blocks_from(self, victim: Sequence, for_seq: Sequence) -> None:
        """Swap the victim out or drop its blocks; a running one leaves the batch."""
        num_tokens, num_cached, was = victim.num_computed, -1, victim.status
        num_available = self.blocks.pool.num_available
        self.num_preemptions += 1
        if victim.status == "running":
            self._gave_way = True
            self._unschedule(victim)
        self.queues.remove(victim)
        self.blocks.truncate(victim)  # what it has not written to is not worth a move
        mode: PreemptionMode = "recompute"
        if self.limits.preemption_mode == "swap" and self.swapper.swap_out(victim):
            mode = "swap"
        else:
            self.blocks.free(victim)
            num_cached = self.blocks.num_findable(victim, num_tokens)
        if victim.status == "parked":
            self.queues.park(victim)
        else:
            self.queues.enqueue(victim, "swapped" if mode == "swap" else "waiting")
        num_freed = self.blocks.pool.num_available - num_available
        event = ev.SequencePreempted(
            victim.seq_id, mode, num_tokens, for_seq.seq_id, victim.status, num_cached, num_freed, was
        )
        self.blocks.events.append(event)

    def _unschedule(self, victim: Sequence) -> None:
        for index, item in enumerate(self._batch):
            if item.sequence is victim:
                self._budget += item.num_tokens
                del self._batch[index]
                return
