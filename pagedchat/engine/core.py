"""The engine: sequences, their five verbs, and the step.

`EngineCore` ties block manager, scheduler and model runner together in one thread. It knows token ids only; text,
sessions and processes are for others. Between two steps any verb may be called; each `StepReport` tells all that
happened since the one before.
"""

import time
from collections.abc import Callable
from collections.abc import Sequence as Items

from pagedchat import cache_events as ce
from pagedchat import events as ev
from pagedchat.engine.batch import commit
from pagedchat.engine.block_hashes import forget_hashes
from pagedchat.engine.block_manager import BlockManager
from pagedchat.engine.cache_upkeep import CacheUpkeep
from pagedchat.engine.failed_step import forget_unfilled, may_be_isolated, note_moves, run_apart, take_back
from pagedchat.engine.groups.fork import cut_fork
from pagedchat.engine.groups.groups import Groups
from pagedchat.engine.groups.place import take_place
from pagedchat.engine.integrity import check_integrity
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.new_requests import NewRequests
from pagedchat.engine.output import (
    DraftVerifier,
    Grammars,
    ModelRunner,
    ModelRunnerOutput,
    ScheduledSequence,
    SchedulerOutput,
)
from pagedchat.engine.pool_controls import PoolControls
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.scheduler import Scheduler
from pagedchat.engine.sequence import Sequence
from pagedchat.engine.speculation.draft_model import DraftModel, DraftRunner
from pagedchat.engine.speculation.rows import execute_in_rows
from pagedchat.engine.speculation.settle import settle
from pagedchat.engine.stats import EngineStats, engine_stats
from pagedchat.engine.tokens.logprobs import keep_logprobs, keep_logprobs_of_run
from pagedchat.engine.watch import Watch
from pagedchat.errors import RequestError
from pagedchat.step_batch import Batch


class EngineCore:
    """Sequences on a paged KV cache.

    Args:
        limits: sizes of the cache and of a batch.
        runner: carries out the batches.
        clock: seconds, for the timings in the reports.
        grammars: what forms of replies mean for the runner's tokens; None: it holds no reply to a form.
        draft: carries out the batches of a draft model; None: there is none.
        first_id: the first number that a sequence gets which is given none.
    """

    def __init__(
        self,
        limits: EngineLimits,
        runner: ModelRunner,
        clock: Callable[[], float] = time.perf_counter,
        *,
        grammars: Grammars | None = None,
        draft: DraftRunner | None = None,
        first_id: int = 1,
    ) -> None:
        self.limits = limits
        self.runner = runner
        self.sequences: dict[int, Sequence] = {}
        self.blocks = BlockManager(
            limits.num_blocks, limits.block_size, limits.num_host_blocks, limits.enable_prefix_caching
        )
        self.scheduler = Scheduler(limits, self.blocks)
        if draft is not None:
            sizes = (limits.num_blocks, limits.block_size, limits.most_draft_rows)
            self.scheduler.drafts.use(DraftModel(draft, *sizes, clock))
        if isinstance(runner, DraftVerifier):
            self.scheduler.drafts.verify_by(runner)
        self.watch = Watch(self.blocks, self.sequences)
        """Holds the books against each other, a little at every step."""
        self.controls = PoolControls(self.blocks, self.scheduler)
        """Limits, pins and evictions by hand, between two steps."""
        self.failures: dict[int, BaseException] = {}
        """Sequence -> what its part of a step raised, where that ended its last request."""
        self._clock = clock
        self._start_time = clock()
        self._last_id, self._step = first_id - 1, 0
        self._prefill_tokens = self._decode_tokens = 0
        self._requests = NewRequests(limits, self.scheduler.queues, grammars)
        self._upkeep = CacheUpkeep(self.blocks, self.scheduler.queues, clock, self.scheduler.drafts)
        self.groups = Groups(self, chosen_by_runner=getattr(runner, "chooses_beams", False))
        """Several answers to one prompt, and beam searches."""

    # --- the five verbs -----------------------------------------------------------------------------

    def open(self, seq_id: int | None = None, priority: int = 0, *, for_seq_id: int = -1) -> int:
        """A new sequence without tokens; reports say for which other one it works, if it does.

        Returns:
            Its id: `seq_id`, or one that no sequence had before.

        Raises:
            RequestError: the id is taken.
        """
        seq = self._new_sequence(seq_id)
        seq.priority = priority
        self.tell(ce.SequenceOpened(seq.seq_id, for_seq_id))
        self.scheduler.queues.park(seq)
        return seq.seq_id

    def extend(self, seq_id: int, token_ids: list[int], params: SamplingParams, *, num_begun: int = 0) -> None:
        """Append prompt tokens and ask for generation; what is computed already is not computed again.

        Without new tokens the sequence simply goes on (after a rewind: another reply). The last `num_begun` tokens
        that it then has count as the beginning of the reply, not as prompt.

        Raises:
            RequestError: unknown sequence, one that is generating, no tokens at all, tokens that the model does not
                have, or a prompt longer than the model's context or the whole cache, or one of which is to be told
                and which is computed in part; nothing has changed then.
            InvalidValueError: a form that no reply can be held to; the same.
        """
        seq = self._parked(seq_id)
        self._requests.check_length(len(seq) + len(token_ids))
        self._requests.check_tokens(token_ids, params)
        self._requests.check_choice(params)
        self._requests.check_drafts(params)
        self._requests.check_form(params)
        self.groups.check_answers(params.n, len(seq) + len(token_ids))
        self._requests.check_beginning(seq, params)
        seq.token_ids.extend(token_ids)
        self.failures.pop(seq_id, None)
        self._requests.add(seq, params, num_begun)
        self.scheduler.drafts.hear(params)
        recomputed = self._uncompute_last_token(seq)
        self.tell(ce.SequenceExtended(seq_id, list(token_ids), recomputed))
        self.blocks.truncate(seq)
        if params.n > 1:
            self.groups.ask_answers(seq)

    def fork(
        self,
        seq_id: int,
        new_id: int | None = None,
        params: SamplingParams | None = None,
        *,
        length: int | None = None,
        token_ids: Items[int] = (),
        grouped: bool = False,
    ) -> int:
        """A second sequence over the same blocks; no block is copied until one of the two writes.

        The fork of a sequence that is generating goes on generating too, with `params` or else with those of the
        source and a seed of its own. The fork of a parked sequence is parked.

        Args:
            seq_id: the source.
            new_id: of the fork; by default one that no sequence had before.
            params: of the fork.
            length: the fork has only so many of the source's tokens, at least one, and
            token_ids: these behind them; its last token counts as not computed.
            grouped: whether it belongs to the source's group.

        Returns:
            The new sequence's id.

        Raises:
            RequestError: unknown sequence, or the new id is taken.
        """
        parent = self._get(seq_id)
        child = self._new_sequence(new_id)
        self.blocks.fork(parent, child)
        child.priority = parent.priority
        child.group = parent.group if grouped else None
        if length is not None:
            cut_fork(child, length, token_ids, self.limits.block_size)
        if parent.status == "parked":
            child.num_prompt_tokens = min(parent.num_prompt_tokens, len(child))
            self.scheduler.queues.park(child)
        else:
            self._requests.add_fork(parent, child, params)
            self.scheduler.drafts.hear(child.sampling_params)
        cut = -1 if length is None else length
        self.tell(ce.SequenceForked(seq_id, child.seq_id, child.status, cut, list(token_ids), grouped))
        if length is not None:
            self.blocks.truncate(child)
            if not child.block_table:
                self.scheduler.queues.parked_on_device.pop(child.seq_id, None)
        return child.seq_id

    def fork_into(self, seq_id: int, place_id: int, token_id: int, *, moved: bool) -> int:
        """A fork of a sequence that is generating, with another last token, in the place of one that is given up
        and was run beside it to the same length; see `groups.place`.

        Args:
            seq_id: the source.
            place_id: who is given up.
            token_id: of the fork.
            moved: whether its last block has what the source's has.

        Returns:
            The new sequence's id.
        """
        source, place = self._get(seq_id), self._get(place_id)
        self._last_id += 1
        take_place(self.blocks, source, place, self._last_id, token_id, moved=moved)
        self.sequences[place.seq_id] = self.sequences.pop(place_id)
        return place.seq_id

    def rewind(self, seq_id: int, length: int) -> None:
        """Cut the sequence back to its first `length` tokens; one that is generating is stopped first.

        Blocks past the cut are dropped. A block that is cut in the middle stays, and is copied at the next write if
        anybody else can still need it.

        Raises:
            RequestError: unknown sequence, or it is not that long.
        """
        seq = self._get(seq_id)
        if not 0 <= length <= len(seq):
            raise RequestError(f"Sequence {seq_id} has {len(seq)} tokens and cannot be rewound to {length}.")
        self.stop(seq_id)
        if length == len(seq):
            return
        del seq.token_ids[length:]
        forget_hashes(seq, length, self.limits.block_size)
        if length < seq.num_computed:
            seq.num_computed, seq.cut_by = length, "rewind"
        seq.num_prompt_tokens = min(seq.num_prompt_tokens, length)
        self.tell(ce.SequenceRewound(seq_id, length))
        self.blocks.truncate(seq)
        if not seq.block_table:
            self.scheduler.queues.parked_on_device.pop(seq_id, None)

    def close(self, seq_id: int, cause: ce.FreeCause = "") -> None:
        """Drop the sequence and every reference it holds; its full blocks stay findable until they are needed.

        Raises:
            RequestError: unknown sequence.
        """
        seq = self._get(seq_id)
        self.scheduler.queues.remove(seq)
        seq.held = None
        self.blocks.free(seq, cause)
        del self.sequences[seq_id]
        self.failures.pop(seq_id, None)
        self.tell(ce.SequenceClosed(seq_id))

    def stop(self, seq_id: int, reason: ce.FinishReason = "abort") -> None:
        """End generation now and park the sequence; a parked one stays as it is.

        Raises:
            RequestError: unknown sequence.
        """
        seq = self._get(seq_id)
        if seq.status != "parked":
            self.scheduler.queues.remove(seq)
            self._park(seq, reason)

    def set_priority(self, seq_id: int, priority: int) -> None:
        """Higher goes first from the next step on.

        Raises:
            RequestError: unknown sequence.
        """
        self.scheduler.queues.set_priority(self._get(seq_id), priority)

    # --- the step -----------------------------------------------------------------------------------

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything; not where a limit or pins hold back all that wait."""
        return self.scheduler.has_work

    def step(self) -> ev.StepReport:
        """Schedule a batch, run it, take in what came back.

        Where nobody can run (all that ran outgrew a limit, say), no step is counted and the report has no batch.
        """
        started = self._clock()
        batch = self._schedule()
        scheduled = self._clock()
        if batch is None:
            return self._report([], ev.Timings(scheduled - started))
        try:
            drafts = self.scheduler.drafts.is_on
            output = execute_in_rows(self.runner, batch) if drafts else self.runner.execute(batch)
        except BaseException as error:
            output = self._rescue(batch, error)
        self.blocks.block_ops.clear()
        returned, upkeep = self._clock(), 0.0
        if batch.meanwhile is not None:
            upkeep = self._upkeep.seconds
            self._upkeep.finish()  # where the runner had no time for it
        entries = self._update(batch.scheduled, output)
        updated = self._clock()
        if self.scheduler.drafts.is_on:
            self.scheduler.drafts.learn(batch.scheduled, updated - started)
        not_forward = output.copy_seconds + output.launch_seconds + output.sample_seconds + upkeep
        drafting = self.scheduler.drafts.model_seconds if self.scheduler.drafts.is_on else 0.0
        timings = ev.Timings(
            scheduled - started - drafting,
            output.copy_seconds,
            output.forward_seconds or returned - scheduled - not_forward,
            output.sample_seconds,
            updated - returned + upkeep,
            output.launch_seconds,
            output.attention_seconds,
            drafting,
        )
        self.watch.check(batch.scheduled)
        report = self._report(entries, timings, output.rank_seconds)
        if self.groups.searches or self.groups.awaited:
            self.groups.carry_out()
        return report

    def _rescue(self, batch: SchedulerOutput, error: BaseException) -> ModelRunnerOutput:
        """The batch raised. Who is to blame ends here, and is no part of it any more; see `failed_step`."""
        self._upkeep.begin([])
        self.scheduler.break_run()
        note_moves(batch, self.limits.block_size)
        try:
            if not may_be_isolated(error, batch):
                raise error
            salvage = run_apart(self.runner, batch)
        except BaseException:
            take_back(batch, self.blocks, self.scheduler.queues, self.sequences.values())
            self.scheduler.drafts.give_back()
            raise
        for seq, reason in salvage.failed:
            self._fail(seq, reason)
        batch.scheduled = salvage.scheduled
        self._plan_upkeep(batch)
        return salvage.output

    def flush(self) -> ev.StepReport | None:
        """The report of verbs alone, where no step follows; None if nothing happened."""
        return self._report([], ev.Timings()) if self.blocks.events else None

    def _schedule(self) -> SchedulerOutput | None:
        """The next batch; None if it would be empty. Block moves planned by then wait for the one after."""
        scheduled = self.scheduler.schedule()
        if not scheduled:
            return None
        self._step += 1
        block_ops = self.blocks.block_ops
        run = self.scheduler.lockstep
        num_tokens = sum([item.num_tokens for item in scheduled]) if run is None else len(scheduled)
        batch = SchedulerOutput(self._step, scheduled, block_ops, num_tokens, run)
        if self.groups.searches:
            self.groups.tell_runner(batch, may_choose=not self.scheduler.drafts.is_on)
        if run is None:
            self._plan_upkeep(batch)
        return batch

    def _plan_upkeep(self, batch: SchedulerOutput) -> None:
        """Blocks of prompts that it fills are to become findable while it runs, or after it, and more like it."""
        chunks = [item for item in batch.scheduled if item.num_tokens > 1 and not item.draft]
        batch.meanwhile = self._upkeep if chunks or self.scheduler.drafts.is_late else None
        if batch.meanwhile is not None:
            self._upkeep.begin(chunks)

    def _update(self, scheduled: list[ScheduledSequence], output: ModelRunnerOutput) -> Batch:
        """Take in the sampled tokens, and do what follows from them."""
        if self.groups.searches and self.groups.take_in(scheduled, output, self.scheduler.lockstep):
            self.scheduler.break_run()
        block_size, lockstep = self.limits.block_size, self.scheduler.lockstep
        if lockstep is None or lockstep.searches:
            settle(scheduled, output)
            outcome = commit(scheduled, output.token_ids, block_size)
            if output.logprobs or output.prompt_logprobs or output.told_later is not None:
                keep_logprobs(scheduled, output)
        else:
            outcome = lockstep.commit(output.token_ids, block_size)
            if output.logprobs or output.told_later is not None:
                keep_logprobs_of_run(lockstep, output)
        self._prefill_tokens += outcome.num_prefill
        self._decode_tokens += outcome.num_decode
        if outcome.drafted:
            self._upkeep.wait_for_report(outcome.drafted)
        if outcome.filled or self._upkeep.filled:
            self._upkeep.cache_some(outcome.filled)
        if outcome.drafted:
            self.scheduler.drafts.give_back()
        for seq, reason in outcome.finished:
            self.scheduler.queues.remove(seq)
            self._park(seq, reason)
        return outcome.entries

    def _report(self, entries: Batch, timings: ev.Timings, rank_seconds: tuple[float, ...] = ()) -> ev.StepReport:
        events, self.blocks.events = self.blocks.events, []
        if self.scheduler.drafts.is_on:
            self._upkeep.report_made()
        return ev.StepReport(
            self._step,
            self._clock() - self._start_time,
            entries,
            events,
            self._pool_counts(),
            self._queue_lengths(),
            timings,
            self._counters(),
            rank_seconds,
        )

    def tell(self, event: ce.CacheEvent) -> None:
        """Have the next report say this; who was held back may run now."""
        self.blocks.events.append(event)
        self.scheduler.wake()

    # --- what can be asked --------------------------------------------------------------------------

    def stats(self) -> EngineStats:
        """The counters as they stand now."""
        return engine_stats(self._pool_counts(), self._queue_lengths(), self._counters())

    def check_integrity(self) -> None:
        """Hold the block manager's books against the sequences.

        Raises:
            IntegrityError: an invariant is broken; the message has the numbers.
        """
        check_integrity(self.blocks, self.sequences.values())

    # --- inside -------------------------------------------------------------------------------------

    def _get(self, seq_id: int) -> Sequence:
        self._upkeep.cache_all()  # whoever asks for a sequence finds all there is
        try:
            seq = self.sequences[seq_id]
        except KeyError:
            raise RequestError(f"There is no sequence {seq_id}.") from None
        self.groups.check_free(seq)
        return seq

    def _parked(self, seq_id: int) -> Sequence:
        seq = self._get(seq_id)
        if seq.status != "parked":
            raise RequestError(
                f"Sequence {seq_id} is still generating.", "Stop it first, or wait until it is done."
            )
        return seq

    def _new_sequence(self, seq_id: int | None) -> Sequence:
        if seq_id is None:
            seq_id = self._last_id + 1
        if seq_id in self.sequences:
            raise RequestError(f"There is a sequence {seq_id} already.")
        self._last_id = max(self._last_id, seq_id)
        seq = self.sequences[seq_id] = Sequence(seq_id)
        return seq

    def _uncompute_last_token(self, seq: Sequence) -> int:
        """The last token's logits are needed, so it goes through the model (again)."""
        recomputed = max(0, seq.num_computed - (len(seq) - 1))
        if recomputed and seq.num_computed % self.limits.block_size == 0:  # else it ends inside a block already
            seq.cut_by = "again"
        seq.num_computed -= recomputed
        return recomputed

    def _park(self, seq: Sequence, reason: ce.FinishReason) -> None:
        seq.finish_reason, seq.held = reason, None
        self._upkeep.cache_of(seq)
        self.blocks.truncate(seq)
        self.scheduler.queues.park(seq)
        self.tell(ce.SequenceParked(seq.seq_id, reason))

    def _fail(self, seq: Sequence, error: BaseException) -> None:
        """Its part of a step raises: the request is over."""
        self.failures[seq.seq_id] = error
        forget_unfilled(self.blocks, seq)
        self.scheduler.queues.remove(seq)
        self._park(seq, "error")

    def _pool_counts(self) -> ev.PoolCounts:
        pool, host = self.blocks.pool, self.blocks.host.pool
        return ev.PoolCounts(
            pool.num_blocks,
            len(pool.free_blocks),
            len(pool.cached_blocks) + pool.num_idle_pinned,
            pool.num_in_use,
            pool.num_shared,
            pool.num_references,
            host.num_blocks,
            host.num_in_use,
            len(pool.withheld),
            len(pool.pinned),
        )

    def _queue_lengths(self) -> ev.QueueLengths:
        queues = self.scheduler.queues
        return ev.QueueLengths(len(queues.waiting), len(queues.running), len(queues.swapped), len(queues.parked))

    def _counters(self) -> ev.Counters:
        blocks, scheduler = self.blocks, self.scheduler
        return ev.Counters(
            self._step,
            scheduler.prefix_queries,
            scheduler.prefix_hits,
            scheduler.num_preemptions,
            scheduler.swapper.num_swaps_out,
            scheduler.swapper.num_swaps_in,
            blocks.num_copies,
            blocks.num_evictions,
            self._prefill_tokens,
            self._decode_tokens,
            scheduler.kept_tokens,
            scheduler.drafts.num_drafts,
            scheduler.drafts.num_drafted,
            scheduler.drafts.num_accepted,
        )
