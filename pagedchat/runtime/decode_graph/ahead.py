"""The step after the present one, begun before anybody asked for it.

A captured step leaves on the device what the next one starts from, so the next one can run while the host takes in
the tokens of this one. Whether it was the right one shows when the engine's next batch is there: the same
sequences, each longer by the token chosen. If not, its tokens are thrown away. What it has written to the cache does
no harm: a slot past the end of each sequence, in a block that this sequence alone may write to, before anything that
comes later on the stream.
"""

from dataclasses import dataclass, field

import torch

from pagedchat.engine.output import ScheduledSequence
from pagedchat.engine.sequence import Sequence
from pagedchat.runtime.decode_graph.buckets import Bucket


@dataclass(slots=True)
class RunningStep:
    """A step that was queued; its rows are `sequences` in order."""

    bucket: Bucket
    number: int
    """Of the step: where its tokens are in the history."""
    done: torch.cuda.Event | None
    sequences: list[Sequence]
    starts: list[int]
    """Position of each row's token."""
    tables: list[list[int]]
    """Each row's block table as the device has it, or the beginning of that."""
    token_ids: list[int] = field(default_factory=list)
    """Of a step begun ahead: what its rows compute, once that is known."""

    def rows_of(self, parts: list[ScheduledSequence]) -> list[int] | None:
        """The rows that compute exactly what a batch asks for; None if some of it is not computed here."""
        if len(parts) == len(self.sequences):
            rows = list(range(len(parts)))
        else:
            row_of = {id(sequence): row for row, sequence in enumerate(self.sequences)}
            rows = [row_of.get(id(part.sequence), -1) for part in parts]
        return rows if all(map(self._computes, rows, parts)) else None

    def _computes(self, row: int, part: ScheduledSequence) -> bool:
        sequence, start = part.sequence, part.start
        return (
            row >= 0
            and self.sequences[row] is sequence
            and start == self.starts[row]
            and part.num_tokens == 1
            and sequence.token_ids[start] == self.token_ids[row]
            and len(sequence.token_ids) == start + 1
            and begins_with(sequence.block_table, self.tables[row])
        )


def begins_with(table: list[int], beginning: list[int]) -> bool:
    """Whether a block table starts with these blocks."""
    return table == beginning or table[: len(beginning)] == beginning


def may_run_ahead(parts: list[ScheduledSequence], context_len: int) -> bool:
    """Whether every sequence will surely have a next step, and may write its token by now.

    Args:
        parts: of the present step, one token each.
        context_len: of the bucket.
    """
    for part in parts:
        sequence, end = part.sequence, part.start + 2
        if end > sequence.writable_len or end > context_len or end >= sequence.stop_length:
            return False
    return True
