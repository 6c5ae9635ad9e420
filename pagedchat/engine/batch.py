"""What became of a batch: sampled tokens committed to their sequences, ends found, full blocks noticed.

`commit` does it for any batch. Most batches are those before them once more, every sequence one token further: for
these `Lockstep` does the same with less. Who is in such a batch changes with the queues only, so it is put together
once, and from then on a step does for every sequence what must be done, and nothing else: with hundreds of chats
this is what a GPU may have to wait for.

Changes sequences only; queues and blocks are the engine's to change, by what it is told here.
"""

from itertools import repeat
from typing import NamedTuple

from pagedchat.cache_events import FinishReason
from pagedchat.engine.output import DecodeRun, ScheduledSequence
from pagedchat.engine.sequence import Sequence, ToldLater
from pagedchat.step_batch import Batch, BatchEntry, DecodeBatch


class StepOutcome(NamedTuple):
    """What a step did to its sequences."""

    entries: Batch
    num_prefill: int
    num_decode: int
    """Tokens of prompts, and of replies."""
    filled: list[Sequence]
    """Those whose decode filled a block; of chunks of prompts `cache_upkeep` takes care."""
    finished: list[tuple[Sequence, FinishReason]]
    drafted: list[tuple[Sequence, int]]
    """Those with a draft, which may have filled any number of blocks, and how many tokens each had before."""


def commit(scheduled: list[ScheduledSequence], token_ids: list[list[int]], block_size: int) -> StepOutcome:
    """Take in the sampled tokens. The loop runs for every sequence of a step: it stays lean.

    Args:
        scheduled: the batch that was run; of a part with a draft what holds of it (`speculation.settle`).
        token_ids: what was sampled for each part.
        block_size: token slots in a block.
    """
    filled, drafted = [], []
    finished: list[tuple[Sequence, FinishReason]] = []
    num_prefill = num_decode = 0
    for item, tokens in zip(scheduled, token_ids, strict=True):
        seq, start, count = item.sequence, item.start, item.num_tokens
        computed = seq.num_computed = start + count
        if item.draft:
            drafted.append((seq, start + 1))
        elif count == 1 and not computed % block_size:
            filled.append(seq)
        if item.draft or (count == 1 and start >= seq.num_prompt_tokens):
            num_decode += count
        else:
            num_prefill += count
        if len(seq.token_ids) + len(tokens) < seq.stop_length and seq.stop_token_ids.isdisjoint(tokens):
            seq.token_ids += tokens
            continue
        for token in tokens:
            seq.token_ids.append(token)
            if token in seq.stop_token_ids or len(seq.token_ids) >= seq.stop_length:
                finished.append((seq, _reason(seq, token)))
                break
    return StepOutcome(_entries(scheduled, token_ids), num_prefill, num_decode, filled, finished, drafted)


def _entries(scheduled: list[ScheduledSequence], token_ids: list[list[int]]) -> Batch:
    """What is told of the batch."""
    seq_ids = [item.sequence.seq_id for item in scheduled]
    drafted = [len(item.draft) for item in scheduled]
    is_decode = [
        (item.num_tokens == 1 and item.start >= item.sequence.num_prompt_tokens) or item.draft for item in scheduled
    ]
    if all(is_decode) and not any(drafted) and set(map(len, token_ids)) <= {1}:
        return DecodeBatch(seq_ids, [token for (token,) in token_ids])
    counts = [(item.num_tokens, bool(decode)) for item, decode in zip(scheduled, is_decode, strict=True)]
    num_prefill = [0 if decode else count for count, decode in counts]
    num_decode = [count if decode else 0 for count, decode in counts]
    return list(map(BatchEntry, seq_ids, num_prefill, num_decode, token_ids, drafted))


class Lockstep(DecodeRun):
    """Sequences that do nothing but decode together; good for as long as the queues stay as they are.

    Args:
        sequences: in the order of their batches.
    """

    def __init__(self, sequences: list[Sequence]) -> None:
        super().__init__()
        self.sequences = sequences
        self.told: list[ToldLater] = []
        """What the last of its steps tell of tokens, where that is read later."""
        self._seq_ids = [seq.seq_id for seq in sequences]
        self._stop_token_ids = frozenset[int]().union(*{seq.stop_token_ids for seq in sequences})
        self._num_tokens_left = min([seq.stop_length - len(seq.token_ids) for seq in sequences])
        """That the first of them to reach its length may still get."""

    def batch(self) -> list[ScheduledSequence]:
        """The next token of each."""
        starts = [seq.num_computed for seq in self.sequences]
        return list(map(ScheduledSequence, self.sequences, starts, repeat(1), repeat(True)))

    def commit(self, token_ids: list[list[int]], block_size: int) -> StepOutcome:
        """What `commit` does for any batch, for that of `batch`.

        Args:
            token_ids: one token for each sequence.
            block_size: token slots in a block.
        """
        tokens = [token for (token,) in token_ids]
        filled = []
        for seq, token in zip(self.sequences, tokens, strict=True):
            seq.token_ids.append(token)
            computed = seq.num_computed = seq.num_computed + 1
            if not computed % block_size:
                filled.append(seq)
        return StepOutcome(DecodeBatch(self._seq_ids, tokens), 0, len(tokens), filled, self._finished(tokens), [])

    def _finished(self, tokens: list[int]) -> list[tuple[Sequence, FinishReason]]:
        """Who ends with these tokens; one look at all of them tells that nobody does."""
        self._num_tokens_left -= 1
        if self._num_tokens_left > 0 and self._stop_token_ids.isdisjoint(tokens):
            return []
        return [
            (seq, _reason(seq, token))
            for seq, token in zip(self.sequences, tokens, strict=True)
            if token in seq.stop_token_ids or len(seq.token_ids) >= seq.stop_length
        ]


def in_lockstep(batch: list[ScheduledSequence], running: list[Sequence]) -> bool:
    """Whether a batch, which was run, was one decode of each running sequence, and each has one more to do."""
    return (
        len(batch) > 0
        and [part.sequence for part in batch] == running
        and all(p.num_tokens == 1 and p.samples and len(p.sequence.token_ids) == p.start + 2 for p in batch)
        and not any(p.draft for p in batch)
    )


def _reason(seq: Sequence, last_token: int) -> FinishReason:
    return "stop" if last_token in seq.stop_token_ids else "length"
