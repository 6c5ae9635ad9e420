"""What the device is told of a batch: everything when the batch is new to it, later only what it cannot know."""

from collections.abc import Iterable

import torch

from pagedchat.engine.sequence import Sequence
from pagedchat.ops.sampling.sample_rows import SampleRow, pack_rows
from pagedchat.runtime.attention.table_rows import BlockTableRows
from pagedchat.runtime.graphs.decode.ahead import RunningStep
from pagedchat.runtime.graphs.decode.state_buffers import Batch, StateBuffers
from pagedchat.runtime.step.sampler import any_ruled, counted, op_rows
from pagedchat.runtime.step.sampling_row import rows_of
from pagedchat.runtime.step.token_counts import write_counts
from pagedchat.runtime.step.upload import int64, upload


class Uploads:
    """Fills the memory of captured steps.

    Args:
        buffers: that memory.
    """

    def __init__(self, buffers: StateBuffers) -> None:
        self._buffers = buffers
        self._rows = BlockTableRows()

    def whole(self, running: RunningStep) -> None:
        """A batch, from its first step on."""
        # That of the rows, which is another where beginnings are shared.
        order: Iterable[int] = range(len(running.rows))
        if not running.in_order:
            order = sorted(order, key=running.rows.__getitem__)
        sequences = [running.sequences[i] for i in order]
        starts = [running.starts[i] for i in order]
        ids, tables = [sequence.seq_id for sequence in sequences], [running.tables[i] for i in order]
        shared = running.shared
        drawn = rows_of(sequences) if running.choice != "greedy" or any_ruled(sequences) else []
        # Under rules tokens are drawn behind the graph, which is to draw and to count none itself.
        in_graph = [SampleRow(stays=True)] * len(drawn) if any_ruled(sequences) else op_rows(drawn)
        batch = Batch(
            token_ids=[_token_at(sequence, start) for sequence, start in zip(sequences, starts, strict=True)],
            positions=starts,
            block_tables=self._rows.gather(ids, tables),
            sampling=pack_rows(in_graph) if drawn else None,
            shared_lens=[] if shared is None else shared.lens,
            group_starts=[] if shared is None else shared.group_starts,
        )
        self._buffers.upload(running.bucket, batch, running.number)
        write_counts(self._buffers.counts, counted(drawn))

    def first_tokens(self, running: RunningStep, which: range, chosen: torch.Tensor) -> None:
        """Tokens of a batch that was uploaded without.

        Args:
            running: its step.
            which: of its sequences.
            chosen: `[len(which)]`, int32, in memory that the device can read.
        """
        rows = [running.rows[i] for i in which]
        self._buffers.take_tokens(running.bucket, rows, chosen)
        penalised = [row for row, i in zip(rows, which, strict=True) if running.params[i].penalises]
        if penalised:
            self._buffers.count_taken(running.bucket, penalised)

    def tokens_of(self, before: RunningStep, rows: list[int], running: RunningStep) -> None:
        """The same, of tokens that a step of another bucket is about to choose.

        Args:
            before: that step.
            rows: of it, one for each of the first sequences of `running`.
            running: the step of the batch.
        """
        chosen = self._buffers.chosen(before.bucket, before.number)
        if rows == list(range(len(rows))):
            chosen = chosen[: len(rows)]
        else:
            device = self._buffers.counts.device
            [places] = upload([int64(rows)], device)
            chosen = chosen.to(device, non_blocking=True).index_select(0, places)
        self.first_tokens(running, range(len(rows)), chosen)

    @torch.inference_mode()
    def tables(self, running: RunningStep, following: RunningStep) -> None:
        """Block tables that have grown between two steps, of which the device knows the first."""
        self._extend_tables(running, following)
        self._buffers.upload_tables(following.bucket)

    @torch.inference_mode()
    def blocks(self, running: RunningStep, following: RunningStep) -> None:
        """The same where the device itself has changed what it knew of these rows: new blocks alone."""
        rows, known, tables = running.rows, running.tables, following.tables
        grown = [(rows[i], len(known[i]), tables[i]) for i in running.grown]
        self._buffers.upload_blocks(following.bucket, grown)

    @torch.inference_mode()
    def places(self, running: RunningStep, following: RunningStep) -> None:
        """The same, and where the sequences are: some of those before have ended."""
        self._extend_tables(running, following)
        self._buffers.upload_places(following.bucket, following.positions)

    def _extend_tables(self, running: RunningStep, following: RunningStep) -> None:
        rows, known, tables = running.rows, running.tables, following.tables
        self._buffers.extend_tables(running.bucket, [(rows[i], len(known[i]), tables[i]) for i in running.grown])


def _token_at(sequence: Sequence, position: int) -> int:
    """0 for one that nobody knows yet: the device puts it there."""
    return sequence.token_ids[position] if position < len(sequence.token_ids) else 0
