"""The step after the present one, begun before anybody asked for it.

A captured step leaves on the device what the next one starts from, so the next one can run while the host takes in
the tokens of this one. Whether it was the right one shows when the engine's next batch is there: the same
sequences, each longer by the token chosen; in an `engine.output.DecodeRun` the engine answers for that, and nothing
is compared. If it was not, its tokens are thrown away. What it has written to the cache does no harm: a slot past
the end of each sequence, in a block that this sequence alone may write to, before anything that comes later on the
stream.

All of this runs once a step for every sequence, on a host that must not be slower than the device. So what is known
of the sequences lies in columns, which are compared and built as wholes.
"""

from dataclasses import dataclass, field, replace
from operator import eq, ge, sub
from typing import Any

import numpy as np
import torch

from pagedchat.engine.output import RunningSearch, ScheduledSequence
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence
from pagedchat.ops.sampling.row_rules import AppliedRules, PackedRules
from pagedchat.ops.sampling.sample import NextDraw
from pagedchat.ops.sampling.top_logprobs import LookUp
from pagedchat.runtime.graphs.capture import Replayable
from pagedchat.runtime.graphs.decode.buckets import Bucket
from pagedchat.runtime.graphs.decode.done import Done
from pagedchat.runtime.graphs.decode.formed import FormedRows
from pagedchat.runtime.graphs.decode.sharing import SharedRows
from pagedchat.runtime.step.sampler import Choice


@dataclass(frozen=True, slots=True)
class Asked:
    """What is told of the tokens of steps that follow one another."""

    counts: torch.Tensor
    """`[num_seqs]`, int32, on the device: what is asked of each row."""
    of_each: int | None
    """What is asked of every sequence alike; None: not all of them ask for as much."""
    look_ups: dict[int, LookUp] = field(default_factory=dict)
    """The launches that find it, by the place in the history that they write to."""


@dataclass(frozen=True, slots=True)
class RuledDraw:
    """Launches of a step that are the same in those that follow it."""

    logits: torch.Tensor
    """That they read."""
    applied: AppliedRules | None
    draw: NextDraw


@dataclass(frozen=True, slots=True)
class Ruled:
    """What the launches behind a step take that choose its tokens under rules; see `ruled`."""

    rules: PackedRules | None
    """On the device, of every row; None: no token is ruled out or in by name."""
    sampling: torch.Tensor
    """`[num_seqs, ROW_WORDS]`, int32, on the device: how each row draws."""
    forms: FormedRows | None
    """The rows whose replies have a form; None: there are none."""
    has_long_bad_words: bool
    """Whether `rules` change with the tokens."""
    draws: dict[int, RuledDraw] = field(default_factory=dict)
    """The launches that choose, by the number of the masks that they read; below 0: none."""

    @property
    def follows_tokens(self) -> bool:
        """Whether tokens of the step after cannot be chosen before the host knows those of this one."""
        return self.forms is not None or self.has_long_bad_words


@dataclass(slots=True)
class RunningBeams:
    """The searches of steps that follow one another."""

    searches: list[RunningSearch]
    ranked: "np.ndarray[Any, Any]"
    """`[history_len, num_searches, MAX_LIKELY]`, `RANKED`, in pinned memory: what the last steps chose from."""

    @property
    def num_beams(self) -> int:
        """Rows that are beams."""
        return sum(search.width for search in self.searches)


@dataclass(slots=True, kw_only=True)
class RunningStep:
    """A step that was queued. Its columns have one entry for each sequence, in the order of a batch."""

    bucket: Bucket
    step: Replayable
    """What computes it; the same for all that follow it."""
    number: int
    """Of the step: where its tokens are in the history."""
    done: Done | None = None
    choice: Choice
    """How tokens are chosen."""
    asked_rows: int
    """Of the smallest bucket for the batch that it was made for; that of the step may have more."""
    rows: list[int]
    """Where the sequences are on the device; the other rows are padding."""
    sequences: list[Sequence]
    params: list[SamplingParams]
    seeds: list[int]
    starts: list[int]
    """Positions of the tokens."""
    tables: list[list[int]]
    """Block tables as the device has them, or the beginnings of those."""
    shared: SharedRows | None = None
    """Which beginnings the rows shared when the device was told of them."""
    own_starts: list[int] = field(default_factory=list)
    """First tokens that sequences read alone; empty where no beginnings are shared."""
    token_ids: list[int] = field(default_factory=list)
    """Of a step begun ahead: what it computes, once that is known."""
    taken: list[int] | None = None
    """Of a step begun ahead in another bucket than the one before: which of that one's sequences it has, before any
    others; None: all, and no others."""
    asked: Asked | None = None
    """What is told of each row's token, see `told`; None: nothing of any."""
    ruled: Ruled | None = None
    """How tokens are chosen under rules of their sequences' own; None: there are none."""
    waits: bool = False
    """Whether its logits are queued and choosing its tokens is not: rules want to know the tokens before."""
    grown: list[int] = field(default_factory=list)
    """Which sequences have more blocks than `tables` says, as `for_batch` found out."""
    beams: RunningBeams | None = None
    """Searches whose beams it has, and of which the device chooses who goes on, see `beams`."""
    beams_moved: bool = False
    """Whether what it has chosen of them was carried out."""

    @property
    def in_order(self) -> bool:
        """Whether the sequences are the first rows."""
        return self.rows == list(range(len(self.rows)))

    @property
    def by_row(self) -> list[Sequence | None] | list[Sequence]:
        """The sequences of the rows on the device, up to the last one; None in rows that are padding."""
        if self.in_order:
            return self.sequences
        by_row: list[Sequence | None] = [None] * (max(self.rows) + 1)
        for row, sequence in zip(self.rows, self.sequences, strict=True):
            by_row[row] = sequence
        return by_row

    @property
    def positions(self) -> list[int]:
        """Of the rows up to the last sequence; -1 in padding."""
        if self.in_order:
            return self.starts
        positions = [-1] * (max(self.rows) + 1)
        for row, start in zip(self.rows, self.starts, strict=True):
            positions[row] = start
        return positions

    @property
    def is_plain(self) -> bool:
        """Whether nothing of its tokens is ruled, told or searched."""
        return self.ruled is None and self.asked is None and self.beams is None

    def going_on(self, has_room: bool) -> list[int] | None:
        """Which sequences will want another token after this step's, as far as can be told; None where one of them
        may not write it by now.

        Args:
            has_room: whether all of them are known to have the blocks for it.
        """
        going = [i for i, seq in enumerate(self.sequences) if self.starts[i] + 2 < seq.stop_length]
        if not has_room and any(self.starts[i] + 1 >= self.sequences[i].writable_len for i in going):
            return None
        return going

    def next(self) -> "RunningStep":
        """The step after this one for the same sequences, not numbered yet. Its tables are as they are now."""
        tables = self.tables.copy()
        for i in self.grown:
            tables[i] = self.sequences[i].block_table.copy()
        return RunningStep(  # in every step; `replace` takes four times as long
            bucket=self.bucket,
            step=self.step,
            number=0,
            choice=self.choice,
            asked_rows=self.asked_rows,
            rows=self.rows,
            sequences=self.sequences,
            params=self.params,
            seeds=self.seeds,
            starts=[start + 1 for start in self.starts],
            tables=tables,
            shared=self.shared,
            own_starts=self.own_starts,
            asked=self.asked,
            ruled=self.ruled,
            beams=self.beams,
        )

    def for_batch(self, parts: list[ScheduledSequence]) -> "RunningStep | None":
        """The same step for a batch of its sequences, or of some of them.

        Returns:
            None if it does not compute exactly what the batch asks for.
        """
        sequences = [part.sequence for part in parts]
        step = self if sequences == self.sequences else self._only(sequences)
        return step if step is not None and step._computes(parts) else None

    def _computes(self, parts: list[ScheduledSequence]) -> bool:
        """Whether it is these tokens, chosen like this, in these blocks. That the sequences are these is known."""
        if [part.start for part in parts] != self.starts or False in [part.samples for part in parts]:
            return False
        if [sequence.token_ids[-1] for sequence in self.sequences] != self.token_ids:
            return False
        if [sequence.sampling_params for sequence in self.sequences] != self.params:
            return False
        if self.choice != "greedy" and [sequence.seed for sequence in self.sequences] != self.seeds:
            return False
        tables = [sequence.block_table for sequence in self.sequences]
        self.grown = [i for i, same in enumerate(map(eq, tables, self.tables)) if not same]
        return all(begins_with(tables[i], self.tables[i]) for i in self.grown)

    def _only(self, sequences: list[Sequence]) -> "RunningStep | None":
        """With fewer columns; None if one of the sequences has none."""
        place_of = {id(sequence): i for i, sequence in enumerate(self.sequences)}
        places = [place_of.get(id(sequence), -1) for sequence in sequences]
        if -1 in places:
            return None

        def of_these(column: list[Any]) -> list[Any]:
            return [column[i] for i in places] if column else column

        return replace(
            self,
            rows=of_these(self.rows),
            sequences=sequences,
            params=of_these(self.params),
            seeds=of_these(self.seeds),
            starts=of_these(self.starts),
            tables=of_these(self.tables),
            own_starts=of_these(self.own_starts),
            token_ids=of_these(self.token_ids),
        )

    def may_begin(self, has_room: bool = False) -> bool:
        """Whether every sequence may write its token by now, in a step of this bucket: of a step not asked for yet.

        Those that end with the step before are no hindrance: nobody asks for what is computed for them. But there
        must be one that does not.

        Args:
            has_room: whether all of them are known to have the blocks for it.
        """
        starts, sequences = self.starts, self.sequences
        if max(starts) >= self.bucket.context_len:
            return False
        if not has_room and any(map(ge, starts, [seq.writable_len for seq in sequences])):
            return False
        if self.own_starts and max(map(sub, starts, self.own_starts)) >= self.bucket.own_len:
            return False
        return any(start + 1 < seq.stop_length for start, seq in zip(starts, sequences, strict=True))


def begins_with(table: list[int], beginning: list[int]) -> bool:
    """Whether a block table starts with these blocks."""
    return table[: len(beginning)] == beginning
