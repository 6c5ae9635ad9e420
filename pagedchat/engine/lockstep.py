"""The running sequences while all they do is decode together, step after step.

Who is in such a batch changes with the queues only. So it is put together once, and from then on a step does for
every sequence what must be done, and nothing else: with hundreds of chats this is what a GPU may have to wait for.
"""

from itertools import repeat

from pagedchat.engine.output import Run, ScheduledSequence
from pagedchat.engine.sequence import Sequence
from pagedchat.engine.taking_in import Taken, ended
from pagedchat.events import BatchEntry, FinishReason


class Lockstep(Run):
    """Sequences that decode together; good for as long as the queues stay as they are.

    Args:
        sequences: in the order of their batches.
    """

    def __init__(self, sequences: list[Sequence]) -> None:
        super().__init__()
        self.sequences = sequences
        self._seq_ids = [seq.seq_id for seq in sequences]
        self._stop_token_ids = frozenset[int]().union(*{seq.stop_token_ids for seq in sequences})
        self._num_tokens_left = min([seq.stop_length - len(seq.token_ids) for seq in sequences])
        """That the first of them to reach its length may still get."""

    def batch(self) -> list[ScheduledSequence]:
        """The next token of each."""
        starts = [seq.num_computed for seq in self.sequences]
        return list(map(ScheduledSequence, self.sequences, starts, repeat(1), repeat(True)))

    def take_in(self, token_ids: list[list[int]], block_size: int) -> Taken:
        """What `taking_in.take_in` does for any batch, for that of `batch`.

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
        entries = list(map(BatchEntry, self._seq_ids, repeat(0), repeat(1), token_ids))
        return Taken(entries, 0, len(tokens), filled, self._finished(tokens))

    def _finished(self, tokens: list[int]) -> list[tuple[Sequence, FinishReason]]:
        """Who ends with these tokens; one look at all of them tells that nobody does."""
        self._num_tokens_left -= 1
        if self._num_tokens_left > 0 and self._stop_token_ids.isdisjoint(tokens):
            return []
        return ended(self.sequences, tokens)


def in_lockstep(batch: list[ScheduledSequence], running: list[Sequence]) -> bool:
    """Whether a batch, which was run, was one decode of each running sequence, and each has one more to do."""
    return (
        len(batch) > 0
        and [part.sequence for part in batch] == running
        and all(p.num_tokens == 1 and p.samples and len(p.sequence.token_ids) == p.start + 2 for p in batch)
    )
