"""Drafts by a small model of the same vocabulary, which reads the same blocks.

The draft model has keys and values of its own for every block of the pool, under the same block ids. So a fork, a
rewind and a prefix hit are shared by both models at once, and no table or queue knows that there are two. What the
draft model has of a block is known by one number::

    block 7   | t0  t1  t2  t3  t4  ..  ..  .. |      computed by the model
    filled 3  | t0  t1  t2 |                          computed by the draft model too

A slot below that number stands for the same tokens to both; whatever the model writes or moves lowers it. The draft
model moves nothing: what was copied or was in host memory, and what was computed while nobody wanted drafts, it
computes itself, a chunk at a time, before it drafts for somebody who needs it (`catch_up`).

Each pass then makes one more token of every draft, drawn by the parameters and the random number with which the
model will draw it, from chances that are hopefully like the model's: so both are likely to draw the same (Daliri
et al. 2024), and what the model draws does not depend on the draft.

Knows batches and a runner; not whether a draft pays, nor what becomes of it.
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from pagedchat.engine.output import BlockOp, ModelRunner, ScheduledSequence, SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence
from pagedchat.engine.speculation.reading import CHUNK_TOKENS
from pagedchat.errors import first_line, is_of_one_request

log = logging.getLogger(__name__)

MOST_AS_ROWS = 4
"""Tokens that the draft model lacks of a sequence up to which they are rows of its first pass; more are a chunk."""
_NOTHING_DRAWN = SamplingParams(temperature=0)


@dataclass(slots=True, eq=False)
class DraftRunner:
    """What the engine is given of a draft model."""

    runner: ModelRunner
    """Over a cache with as many blocks as the model's, of the same size."""
    model_len: int
    """Tokens of a sequence that it can read."""
    share: float = 0.25
    """About what a step of its takes of one of the model's."""


@dataclass(slots=True)
class _Draft:
    """One sequence's in this step: its tokens with those drafted, as the runner sees them."""

    sequence: Sequence
    most: int
    seen: Sequence
    tokens: list[int] = field(default_factory=list)


class DraftModel:
    """Makes drafts by a model.

    Args:
        draft: the model's runner.
        num_blocks: of the pool.
        block_size: token slots in a block.
        most_rows: single tokens in one batch that its runner is quick with.
        clock: seconds.
    """

    def __init__(
        self, draft: DraftRunner, num_blocks: int, block_size: int, most_rows: int, clock: Callable[[], float]
    ) -> None:
        self.model_len, self.share = draft.model_len, draft.share
        """See `DraftRunner`."""
        self.is_broken = False
        """Whether it raised: it drafts no more."""
        self.read_seconds = self.passes_seconds = 0.0
        """That the last `catch_up` and the last `propose` took."""
        self.num_passes = self.num_read = 0
        """Of this step, of the last `propose` once that has begun; and tokens of the last `catch_up`."""
        self._runner, self.clock = draft.runner, clock
        self._block_size, self._most_rows = block_size, most_rows
        self._filled = [0] * num_blocks
        """Block -> its leading slots that the draft model has computed with what stands in them."""

    # --- what it has --------------------------------------------------------------------------------

    def note(self, batch: Iterable[ScheduledSequence], block_ops: Iterable[BlockOp]) -> None:
        """The model is going to write and move this: what the draft model has in its place is of no use."""
        filled, size = self._filled, self._block_size
        for op in block_ops:
            if op.kind != "swap_out":
                filled[op.dst] = 0
        for part in batch:
            table, start = part.sequence.block_table, part.start
            first = start // size
            filled[table[first]] = min(filled[table[first]], start - first * size)
            self.forget(table[first + 1 :])

    def forget(self, block_ids: Iterable[int]) -> None:
        """What stood in these blocks nobody needs any more: they are to be written to."""
        for block_id in block_ids:
            self._filled[block_id] = 0

    def num_known(self, seq: Sequence) -> int:
        """Leading tokens of a sequence that need not be computed again: all but the last one at most."""
        size, most = self._block_size, len(seq.token_ids) - 1
        known = 0
        for block_id in seq.block_table:
            known += self._filled[block_id]
            if self._filled[block_id] < size or known >= most:
                break
        return min(known, most)

    def is_behind(self, seq: Sequence) -> bool:
        """Whether it has to catch up with a sequence before it can draft for it."""
        return self.num_to_read(seq) > 0

    def num_to_read(self, seq: Sequence) -> int:
        """Tokens of a sequence that it has to catch up with before it can draft for it."""
        missing = len(seq.token_ids) - self.num_known(seq)
        return missing - 1 if missing > MOST_AS_ROWS else 0

    def _fill(self, seq: Sequence, start: int, end: int) -> None:
        size = self._block_size
        for index in range(start // size, -(-end // size)):
            block_id = seq.block_table[index]
            self._filled[block_id] = max(self._filled[block_id], min(size, end - index * size))

    # --- catching up --------------------------------------------------------------------------------

    def catch_up(self, sequences: list[Sequence], most: int) -> None:
        """Compute what it lacks of some sequences, one after the other, without their last tokens; so many tokens
        together at most."""
        began, left, writes = self.clock(), min(most, CHUNK_TOKENS), set[int]()
        parts = []
        for seq in sequences:
            start = self.num_known(seq)
            end = min(len(seq.token_ids) - 1, start + left)
            if start < end and self._takes(seq, start, end, writes):
                seen = _as_seen(seq, _NOTHING_DRAWN)
                parts.append(ScheduledSequence(seen, start, end - start, False))
                left -= end - start
        self.num_read = sum([part.num_tokens for part in parts])
        if parts and self._run(parts) is not None:
            for part in parts:
                self._fill(part.sequence, part.start, part.start + part.num_tokens)
        self.read_seconds = self.clock() - began

    def _takes(self, seq: Sequence, start: int, end: int, writes: set[int]) -> bool:
        """Whether nobody else in the batch writes to the blocks that it writes to, and others share with it: a step
        later it finds there what the other has written."""
        size = self._block_size
        blocks = seq.block_table[start // size : -(-end // size)]
        if not writes.isdisjoint(blocks):
            return False
        writes.update(blocks)
        return True

    # --- drafting -----------------------------------------------------------------------------------

    def propose(self, wanted: list[tuple[Sequence, int]]) -> list[list[int]]:
        """Draft for sequences that decode.

        Args:
            wanted: each with how many tokens, for all but the last of which it has slots to write to.

        Returns:
            For each a draft as long as was wanted; or an empty one, where it has to catch up first, or it raised.
        """
        began = self.clock()
        self.num_passes = 0
        drafts = [_Draft(seq, most, _as_seen(seq, seq.sampling_params)) for seq, most in wanted]
        going = self._first_pass([each for each in drafts if each.most])
        while going and not self.is_broken:
            going = self._one_more([each for each in going if len(each.tokens) < each.most])
        self.passes_seconds = self.clock() - began
        return [[] if self.is_broken else each.tokens for each in drafts]

    def _first_pass(self, drafts: list[_Draft]) -> list[_Draft]:
        """What it lacks of the sequences, as rows; the last one's token begins the draft."""
        rows, going, writes = list[ScheduledSequence](), list[_Draft](), set[int]()
        for each in drafts:
            seq, end = each.sequence, len(each.sequence.token_ids)
            start = self.num_known(seq)
            if end - start > min(MOST_AS_ROWS, self._most_rows - len(rows)):
                continue
            if self._takes(seq, start, end, writes):
                rows += [_early_row(each.seen, position) for position in range(start, end - 1)]
                rows.append(_row(each.seen, is_row=end - start > 1))
                going.append(each)
        self._add_sampled(going, rows)
        return going

    def _one_more(self, drafts: list[_Draft]) -> list[_Draft]:
        self._add_sampled(drafts, [_row(each.seen) for each in drafts])
        return drafts

    def _add_sampled(self, drafts: list[_Draft], rows: list[ScheduledSequence]) -> None:
        """Run a pass, and give each draft its token."""
        sampled = self._run(rows) if rows else None
        if sampled is None:
            return
        by_sequence = {id(row.sequence): token for row, (token,) in zip(rows, sampled, strict=True)}
        for each in drafts:
            end, token = len(each.seen.token_ids), by_sequence[id(each.seen)]
            self._fill(each.sequence, max(0, end - MOST_AS_ROWS), end)
            each.tokens.append(token)
            each.seen.token_ids.append(token)

    def _run(self, parts: list[ScheduledSequence]) -> list[list[int]] | None:
        """What was sampled; None where it raised, now or before: there are no more drafts."""
        if self.is_broken:
            return None
        self.num_passes += 1
        try:
            num_tokens = sum([part.num_tokens for part in parts])
            batch = SchedulerOutput(0, parts, [], num_tokens)
            batch.searches = True  # nobody need begin what follows: it may be another step
            return self._runner.execute(batch).token_ids
        except Exception as error:
            if not is_of_one_request(error):
                raise
            log.warning("The draft model drafts no more, and replies go on without: %s.", first_line(error))
            self.is_broken = True
            return None


def _row(seen: Sequence, *, is_row: bool = False) -> ScheduledSequence:
    """Its last token."""
    return ScheduledSequence(seen, len(seen.token_ids) - 1, 1, True, is_row=is_row)


def _early_row(seen: Sequence, position: int) -> ScheduledSequence:
    """A token before, as the last one of a sequence of its own."""
    early = _as_seen(seen, _NOTHING_DRAWN)
    early.token_ids = seen.token_ids[: position + 1]
    return _row(early, is_row=True)


def _as_seen(seq: Sequence, params: SamplingParams) -> Sequence:
    """The sequence as the draft model's runner sees it: with tokens that it may add drafted ones to."""
    seen = Sequence(seq.seq_id)
    seen.token_ids, seen.block_table, seen.num_computed = seq.token_ids.copy(), seq.block_table, seq.num_computed
    seen.sampling_params, seen.seed, seen.num_prompt_tokens = params, seq.seed, seq.num_prompt_tokens
    seen.stop_token_ids, seen.stop_length, seen.status = seq.stop_token_ids, seq.stop_length, seq.status
    return seen
