"""The step after the present one, begun before anybody asked for it.

A captured step leaves on the device what the next one starts from, so the next one can run while the host takes in
the tokens of this one. Whether it was the right one shows when the engine's next batch is there: the same
sequences, each longer by the token chosen. If not, its tokens are thrown away. What it has written to the cache
does no harm: a slot past the end of each sequence, in a block that this sequence alone may write to, before
anything that comes later on the stream.
"""

from dataclasses import dataclass, field
from typing import Any

import torch

from pagedchat.engine.output import ScheduledSequence
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence
from pagedchat.runtime.decode_graph.buckets import Bucket
from pagedchat.runtime.decode_graph.choice import Choice


@dataclass(slots=True)
class RunningStep:
    """A step that was queued."""

    bucket: Bucket
    number: int
    """Of the step: where its tokens are in the history."""
    done: torch.cuda.Event | None
    sequences: list[Sequence | None]
    """One a row; None where the row is padding, since its sequence has ended."""
    choice: Choice
    """How tokens are chosen."""
    params: list[SamplingParams]
    seeds: list[int]
    starts: list[int]
    """Position of each row's token; -1 in padding."""
    tables: list[list[int]]
    """Each row's block table as the device has it, or the beginning of that."""
    token_ids: list[int] = field(default_factory=list)
    """Of a step begun ahead: what its rows compute, once that is known."""
    _all_rows: list[int] = field(init=False)

    def __post_init__(self) -> None:
        self._all_rows = list(range(len(self.sequences)))

    def next(self, parts: list[ScheduledSequence], rows: list[int]) -> "RunningStep":
        """The step after this one, not numbered yet.

        Args:
            parts: what the engine asked of this step.
            rows: where they are; the other rows are padding from now on.
        """
        if len(rows) == len(self.sequences):
            starts = [start + 1 for start in self.starts]
            return self._later(self.sequences, starts)
        later = self._later([None] * len(self.sequences), [-1] * len(self.starts))
        for row, part in zip(rows, parts, strict=True):
            later.sequences[row] = part.sequence
            later.starts[row] = part.start + 1
        return later

    def _later(self, sequences: list[Sequence | None], starts: list[int]) -> "RunningStep":
        tables = self.tables.copy()
        return RunningStep(self.bucket, 0, None, sequences, self.choice, self.params, self.seeds, starts, tables)

    def take_new_tables(self) -> list[int]:
        """Rows whose block tables have grown; from now on `tables` has them."""
        grown = [
            row
            for row, (sequence, known) in enumerate(zip(self.sequences, self.tables, strict=True))
            if sequence is not None and len(sequence.block_table) != len(known)
        ]
        for row in grown:
            self.tables[row] = self.sequences[row].block_table.copy()  # type: ignore[union-attr]
        return grown

    def rows_of(self, parts: list[ScheduledSequence]) -> list[int] | None:
        """The rows that compute exactly what a batch asks for; None if some of it is not computed here.

        Comparing lists instead of their elements keeps this short: it runs before every step.
        """
        sequences = [part.sequence for part in parts]
        rows = self._places(sequences)
        if rows is None:
            return None
        everything = rows is self._all_rows
        asked: tuple[list[Any], ...] = (
            [part.start for part in parts],
            [len(sequence.token_ids) - 1 for sequence in sequences],
            [sequence.token_ids[-1] for sequence in sequences],
            [sequence.sampling_params for sequence in sequences],
            [sequence.seed for sequence in sequences],
        )
        computed: tuple[list[Any], ...] = (self.starts, self.starts, self.token_ids, self.params, self.seeds)
        for wanted, values in zip(asked, computed, strict=True):
            if wanted != (values if everything else [values[row] for row in rows]):
                return None
        tables = self.tables if everything else [self.tables[row] for row in rows]
        begin = map(begins_with, [sequence.block_table for sequence in sequences], tables)
        return rows if all(begin) else None

    def _places(self, sequences: list[Sequence]) -> list[int] | None:
        """The row of each sequence; None if one of them has none."""
        if sequences == self.sequences:
            return self._all_rows
        row_of = {id(sequence): row for row, sequence in enumerate(self.sequences) if sequence is not None}
        rows = [row_of.get(id(sequence), -1) for sequence in sequences]
        return None if -1 in rows else rows


def begins_with(table: list[int], beginning: list[int]) -> bool:
    """Whether a block table starts with these blocks."""
    return table == beginning or table[: len(beginning)] == beginning


def may_run_ahead(parts: list[ScheduledSequence], context_len: int) -> bool:
    """Whether every sequence may write the token of its next step by now.

    Those that end with the present step are no hindrance: nobody asks for what is computed for them.

    Args:
        parts: of the present step, one token each.
        context_len: of the bucket.
    """
    for part in parts:
        end = part.start + 2
        if end > part.sequence.writable_len or end > context_len:
            return False
    return True
