"""Batches as rank 0 tells them to the others, and as these put them together again.

What was told before is not told again: of a sequence only the tokens and blocks that are new, and of a batch that
is the one before once more (`engine.output.DecodeRun`) one token for each. Both sides keep the same record, so one
teller serves all ranks, and each of them hears all that it says.
"""

from dataclasses import dataclass, field

from pagedchat.distributed.messages import NewBatch, NextOfRun, Part
from pagedchat.engine.output import DecodeRun, ScheduledSequence, SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence

MOST_KNOWN = 4096
"""Sequences that are kept in mind; those that have not been in a batch for longest are forgotten first."""


@dataclass(slots=True)
class _Told:
    """What the others know of a sequence."""

    token_ids: list[int] = field(default_factory=list)
    block_ids: list[int] = field(default_factory=list)
    sampling_params: SamplingParams | None = None


class Teller:
    """Puts batches into words, on rank 0."""

    def __init__(self) -> None:
        self._told: dict[int, _Told] = {}
        self._batch: list[tuple[int, _Told]] = []
        """Of the batch told last, in its order."""

    def tell(self, batch: SchedulerOutput, number: int) -> NewBatch | NextOfRun:
        """What the others are to run; to be told to them in this order, and all of it.

        Args:
            batch: that rank 0 runs.
            number: of the batch.
        """
        if batch.run is not None and self._is_next(batch):
            return self._next_of_run(batch, batch.run, number)
        return self._new(batch, number)

    def _is_next(self, batch: SchedulerOutput) -> bool:
        """Whether it is the batch told last, one token further, which it is unless that has failed."""
        now = [(part.sequence.seq_id, len(part.sequence.token_ids)) for part in batch.scheduled]
        return now == [(seq_id, len(told.token_ids) + 1) for seq_id, told in self._batch]

    def _new(self, batch: SchedulerOutput, number: int) -> NewBatch:
        parts = [self._part(part) for part in batch.scheduled]
        self._batch = [(part.seq_id, self._told[part.seq_id]) for part in parts]
        too_many = max(0, len(self._told) - max(MOST_KNOWN, len(parts)))
        forgotten = list(self._told)[:too_many]
        for seq_id in forgotten:
            del self._told[seq_id]
        return NewBatch(number, parts, list(batch.block_ops), batch.searches, forgotten)

    def _part(self, part: ScheduledSequence) -> Part:
        seq = part.sequence
        told = self._told.pop(seq.seq_id, None) or _Told()
        self._told[seq.seq_id] = told  # the last one in the order
        kept_tokens = num_common(told.token_ids, seq.token_ids)
        kept_blocks = num_common(told.block_ids, seq.block_table)
        new_tokens, new_blocks = seq.token_ids[kept_tokens:], seq.block_table[kept_blocks:]
        told.token_ids[kept_tokens:] = new_tokens
        told.block_ids[kept_blocks:] = new_blocks
        params = None if told.sampling_params is seq.sampling_params else seq.sampling_params
        told.sampling_params = seq.sampling_params
        return Part(
            seq.seq_id, part.start, part.num_tokens, part.samples, part.is_row,
            kept_tokens, new_tokens, kept_blocks, new_blocks,
            seq.num_prompt_tokens, seq.seed, seq.writable_len, seq.stop_length, params,
        )  # fmt: skip

    def _next_of_run(self, batch: SchedulerOutput, run: DecodeRun, number: int) -> NextOfRun:
        sequences = [part.sequence for part in batch.scheduled]
        token_ids = [seq.token_ids[-1] for seq in sequences]
        for (_, told), token_id in zip(self._batch, token_ids, strict=True):
            told.token_ids.append(token_id)
        grown: dict[int, list[int]] = {}
        for i in run.grown:
            _, told = self._batch[i]
            grown[i] = sequences[i].block_table[len(told.block_ids) :]
            told.block_ids += grown[i]
        writable_lens = [seq.writable_len for seq in sequences]
        return NextOfRun(number, token_ids, grown, run.room, writable_lens, list(batch.block_ops))


class Listener:
    """Puts batches together again, on the other ranks."""

    def __init__(self) -> None:
        self._known: dict[int, Sequence] = {}
        self._batch: list[ScheduledSequence] = []
        self._run: DecodeRun | None = None

    def hear(self, message: NewBatch | NextOfRun) -> SchedulerOutput:
        """The batch that rank 0 runs, of sequences of this rank's own.

        They have what a runner asks of sequences, and no place in any queue. No form of a reply is known of them:
        tokens under such rules are chosen by rank 0.
        """
        return self._new(message) if isinstance(message, NewBatch) else self._next_of_run(message)

    def _new(self, message: NewBatch) -> SchedulerOutput:
        self._batch, self._run = [self._part(part) for part in message.parts], None
        for seq_id in message.forgotten:
            del self._known[seq_id]
        num_tokens = sum(part.num_tokens for part in message.parts)
        batch = SchedulerOutput(message.number, self._batch, message.block_ops, num_tokens)
        batch.searches = message.searches
        return batch

    def _part(self, part: Part) -> ScheduledSequence:
        before = self._known.get(part.seq_id)
        # Rows of a draft are one sequence at several lengths, in one batch.
        seq = Sequence(part.seq_id) if before is None or part.is_row else before
        self._known[part.seq_id] = seq
        if before is not None and seq is not before:
            seq.token_ids, seq.block_table = before.token_ids.copy(), before.block_table.copy()
            seq.sampling_params = before.sampling_params
        seq.token_ids[part.kept_tokens :] = part.token_ids
        seq.block_table[part.kept_blocks :] = part.block_ids
        if part.sampling_params is not None:
            seq.sampling_params = part.sampling_params
        seq.num_prompt_tokens, seq.seed = part.num_prompt_tokens, part.seed
        seq.writable_len, seq.stop_length = part.writable_len, part.stop_length
        return ScheduledSequence(seq, part.start, part.num_tokens, part.samples, (), part.is_row)

    def _next_of_run(self, message: NextOfRun) -> SchedulerOutput:
        run = self._run = self._run or DecodeRun()
        run.room, run.grown = message.room, list(message.grown)
        told = zip(self._batch, message.token_ids, message.writable_lens, strict=True)
        for part, token_id, writable_len in told:
            part.sequence.token_ids.append(token_id)
            part.sequence.writable_len = writable_len
        for i, block_ids in message.grown.items():
            self._batch[i].sequence.block_table += block_ids
        self._batch = [ScheduledSequence(part.sequence, part.start + 1, 1, True) for part in self._batch]
        return SchedulerOutput(message.number, self._batch, message.block_ops, len(self._batch), run)


def num_common(before: list[int], now: list[int]) -> int:
    """How many elements two lists have in common at their beginnings. Mostly it is all of one of them."""
    low, high = 0, min(len(before), len(now))
    if before[:high] == now[:high]:
        return high
    while low < high:
        middle = (low + high + 1) // 2
        if before[low:middle] == now[low:middle]:
            low = middle
        else:
            high = middle - 1
    return low
