"""The memory that captured steps read their batch from, and how the host fills it: one copy before a step.

::

    | sampling rows | step . . . | group starts | shared_lens | token_ids | positions | seq_lens | block tables |

All buckets use the same memory, each with its own borders. Between two steps of one bucket the device keeps the
numbers up to date by itself; the host copies what it changes. Copies start from pinned memory, from
several pieces of it in turn, since a copy may still be under way when the next one is written.

What stays on the host is copied by numpy: from 32,768 numbers on torch wakes a thread for every core. For
65,536 of them that took 5 ms beside other work, and numpy takes 8 us.
"""

import ctypes
from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
import torch

from pagedchat.jit.async_copy import copy_to_device
from pagedchat.ops.common.launch import current_stream
from pagedchat.ops.sampling.decode_state import DecodeState
from pagedchat.ops.sampling.sample_rows import ROW_WORDS, SampleRow, pack_rows
from pagedchat.runtime.graphs.decode.buckets import MAX_GROUPS, Bucket
from pagedchat.runtime.step.token_counts import count_one
from pagedchat.runtime.step.upload import int32, int64, upload

HISTORY_LEN = 4
"""Steps whose tokens are kept: more than are ever under way."""
_NUM_STAGES = 3
_STEP_WORDS = 4
"""The step's number and padding, so that what follows starts at 16 bytes."""
_GROUP_WORDS = MAX_GROUPS + 4
"""Where groups of rows begin and the last one ends, and padding."""
_NUM_COLUMNS = 4
"""Numbers of a row before its block table."""
_PADDING = pack_rows([SampleRow(temperature=0, stays=True)])
"""How a row is sampled that nobody has: nothing is drawn, nothing counted."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The live rows of a step."""

    token_ids: list[int]
    positions: list[int]
    block_tables: torch.Tensor
    """`[num_seqs, any number]`, int32, on the CPU."""
    sampling: torch.Tensor | None = None
    """`[num_seqs, ROW_WORDS]`, int32, on the CPU: of steps that draw their tokens."""
    shared_lens: list[int] = field(default_factory=list)
    """Tokens that each row shares with the others of its group; empty if nobody does."""
    group_starts: list[int] = field(default_factory=list)
    """First row of each group, and the row after the last one."""


class SharedState(NamedTuple):
    """Which rows of a bucket read a beginning together, on the device; see `ops.attention.decode_shared`."""

    lens: torch.Tensor
    """`[num_seqs]`, int32."""
    group_starts: torch.Tensor
    """`[num_groups + 1]`, int32."""


@dataclass(frozen=True, slots=True)
class DraftRows:
    """The live rows of a step that verifies drafts: those of a sequence lie together."""

    token_ids: list[int]
    positions: list[int]
    block_tables: list[list[int]]
    """Of each sequence."""
    row_counts: list[int]
    """Of each sequence."""
    sampling: torch.Tensor | None = None
    """`[num_sequences, ROW_WORDS]`, int32, on the CPU: of steps that draw their tokens."""


class _DraftCopy(NamedTuple):
    """The way of a bucket's rows to the device, through one of the pieces of pinned memory; views."""

    zeros: np.ndarray[Any, np.dtype[np.int32]]
    """The step's number, groups without members, and what rows share."""
    columns: np.ndarray[Any, np.dtype[np.int32]]
    """`[3, num_seqs]`: tokens, positions, lengths."""
    tables: np.ndarray[Any, np.dtype[np.int32]]
    """`[num_seqs, max_blocks_per_seq]`."""
    sampling: np.ndarray[Any, np.dtype[np.int32]]
    """`[num_seqs, ROW_WORDS]`; before all others."""
    stage: torch.Tensor
    """All of the piece."""
    start: int
    """First word behind the sampling rows,"""
    end: int
    """and the one behind the last."""


class _TableCopy(NamedTuple):
    """The way of a bucket's block tables to the device, through one of the pieces of pinned memory; views."""

    tables: np.ndarray[Any, np.dtype[np.int32]]
    staged: np.ndarray[Any, np.dtype[np.int32]]
    stage: torch.Tensor
    """The same memory as `staged`."""
    there: torch.Tensor


def no_rows() -> Batch:
    """A batch of nothing but padding."""
    return Batch([], [], torch.empty((0, 0), dtype=torch.int32), torch.empty((0, ROW_WORDS), dtype=torch.int32))


class StateBuffers:
    """Device memory, pinned memory and the borders in them.

    Args:
        largest: bucket; none may need more.
        block_size: token slots in a block.
        device: where the steps run; on a CPU nothing is pinned.
        vocab_size: tokens that are counted for penalties.
    """

    def __init__(self, largest: Bucket, block_size: int, device: torch.device, vocab_size: int) -> None:
        self._block_size = block_size
        self._on_gpu = device.type == "cuda"
        size = _Borders(largest, block_size).end
        self._device = torch.zeros(size, dtype=torch.int32, device=device)
        self._stages = [self._host(size) for _ in range(_NUM_STAGES)]
        self._history = self._host(HISTORY_LEN * largest.num_seqs)
        self._history_words = _words(self._history)
        self._number = 0
        self._arrivals = torch.zeros(1, dtype=torch.int32, device=device)
        self.counts = torch.zeros(largest.num_seqs, vocab_size, dtype=torch.int16, device=device)
        """See `ops.sampling.sample`: of each row with penalties; steps that draw keep them up to date."""
        self._tables = torch.zeros(size, dtype=torch.int32)
        """Block tables as the device has them, or will with the next copy."""
        self._table_copies: dict[Bucket, list[_TableCopy]] = {}
        self._draft_copies: dict[Bucket, list[_DraftCopy]] = {}
        self._table_words = _words(self._tables)
        self._turn = 0

    def _host(self, size: int) -> torch.Tensor:
        return torch.zeros(size, dtype=torch.int32, pin_memory=self._on_gpu)

    def _borders(self, bucket: Bucket) -> "_Borders":
        return _Borders(bucket, self._block_size)

    def state(self, bucket: Bucket) -> DecodeState:
        """Views for a bucket's steps."""
        at, rows, numbers = self._borders(bucket), bucket.num_seqs, self._columns(bucket)
        return DecodeState(
            token_ids=numbers[1],
            positions=numbers[2],
            seq_lens=numbers[3],
            block_tables=self._device[at.tables : at.end].view(rows, at.width),
            step=self._device[at.step : at.step + 1],
            history=self._history[: HISTORY_LEN * rows].view(HISTORY_LEN, rows),
            arrivals=self._arrivals,
        )

    def shared(self, bucket: Bucket) -> SharedState:
        """Views for the steps of a bucket with groups."""
        start = self._borders(bucket).groups
        return SharedState(self._columns(bucket)[0], self._device[start : start + bucket.num_groups + 1])

    def _columns(self, bucket: Bucket) -> torch.Tensor:
        at = self._borders(bucket)
        return self._device[at.columns : at.tables].view(_NUM_COLUMNS, bucket.num_seqs)

    def sampling(self, bucket: Bucket) -> torch.Tensor:
        """How each row draws, `[num_seqs, ROW_WORDS]`, on the device; of padding anything."""
        return self._device[: bucket.num_seqs * ROW_WORDS].view(bucket.num_seqs, ROW_WORDS)

    def upload(self, bucket: Bucket, batch: Batch, step: int) -> None:
        """Queue a copy of a whole batch; rows past its end become padding.

        Args:
            bucket: whose borders.
            batch: no more rows than the bucket has, no longer sequences.
            step: number of the next step, which says where its tokens go in the history.
        """
        at, (rows, width) = self._borders(bucket), batch.block_tables.shape
        known = min(width, at.width)
        tables = self._tables[: at.end - at.tables].view(bucket.num_seqs, at.width).numpy()
        tables[:rows, :known] = batch.block_tables.numpy()[:, :known]
        starts = batch.group_starts or [0]
        groups = starts + starts[-1:] * (_GROUP_WORDS - len(starts))  # those that are not there have no members
        lens, token_ids = (_padded(column, bucket) for column in (batch.shared_lens, batch.token_ids))
        numbers = [step, 0, 0, 0, *groups, *lens, *token_ids, *_padded_places(batch.positions, bucket)]
        self._copy(bucket, at.step, numbers, batch.sampling)

    def upload_drafts(self, bucket: Bucket, rows: DraftRows) -> None:
        """Queue a copy of a batch that no step follows without another upload; rows past its end become padding.

        Its tokens will be those of step 0.

        Args:
            bucket: whose borders.
            rows: no more than the bucket has, of no longer sequences.
        """
        if bucket not in self._draft_copies:
            self._draft_copies[bucket] = [self._draft_copy(bucket, stage) for stage in self._stages]
        copy = self._draft_copies[bucket][self._next_stage()]
        num_rows = len(rows.token_ids)
        token_ids, positions, lens = copy.columns
        copy.zeros.fill(0)
        token_ids[:num_rows], token_ids[num_rows:] = array("i", rows.token_ids), 0
        positions[:num_rows], positions[num_rows:] = array("i", rows.positions), -1
        np.add(positions, 1, out=lens)
        tables = _padded_tables(rows.block_tables, copy.tables.shape[1])
        copy.tables[:num_rows, : tables.shape[1]] = tables.repeat(rows.row_counts, axis=0)
        if rows.sampling is not None:
            copy.sampling[:num_rows] = rows.sampling.numpy().repeat(rows.row_counts, axis=0)
            copy.sampling[num_rows:] = _PADDING.numpy()
        self._send(copy.stage, copy.start if rows.sampling is None else 0, copy.end)

    def _send(self, stage: torch.Tensor, start: int, end: int) -> None:
        """Queue a copy of these words of a piece of pinned memory to their places on the device."""
        if self._on_gpu:
            there, source = self._device.data_ptr() + 4 * start, stage.data_ptr() + 4 * start
            copy_to_device(there, source, 4 * (end - start), current_stream(self._device.device))
        else:
            self._device[start:end] = stage[start:end]

    def _draft_copy(self, bucket: Bucket, stage: torch.Tensor) -> _DraftCopy:
        at, rows, words = self._borders(bucket), bucket.num_seqs, stage.numpy()
        return _DraftCopy(
            zeros=words[at.step : at.columns + rows],
            columns=words[at.columns + rows : at.tables].reshape(_NUM_COLUMNS - 1, rows),
            tables=words[at.tables : at.end].reshape(rows, at.width),
            sampling=words[: rows * ROW_WORDS].reshape(rows, ROW_WORDS),
            stage=stage,
            start=at.step,
            end=at.end,
        )

    def take_tokens(self, bucket: Bucket, rows: list[int], tokens: torch.Tensor) -> None:
        """Queue a copy of tokens into rows that were uploaded without.

        Args:
            bucket: that of the last `upload`.
            rows: where each token goes.
            tokens: `[len(rows)]`, int32, in memory that the device can read: there when the copy's turn comes.
        """
        column = self._columns(bucket)[1]
        if rows == list(range(len(rows))):
            column[: len(rows)].copy_(tokens, non_blocking=True)
            return
        [places] = upload([int64(rows)], self._device.device)
        column.index_copy_(0, places, tokens.to(self._device.device, non_blocking=True))

    def count_taken(self, bucket: Bucket, rows: list[int]) -> None:
        """Queue counting the tokens of some rows, which `take_tokens` has brought.

        Args:
            bucket: that of the last `upload`.
            rows: those with penalties.
        """
        count_one(self.counts, rows, self._columns(bucket)[1])

    def extend_tables(self, bucket: Bucket, grown: Iterable[tuple[int, int, list[int]]]) -> None:
        """More blocks for some rows, with the next `upload_tables` or `upload_places`.

        Args:
            bucket: that of the last `upload`.
            grown: row, blocks of it that are there already, and its whole block table.
        """
        width, words = bucket.num_blocks(self._block_size), self._table_words
        for row, num_known, block_table in grown:
            at = row * width + num_known
            for block_id in block_table[num_known:width]:
                words[at] = block_id
                at += 1

    def upload_tables(self, bucket: Bucket) -> None:
        """Queue a copy of the block tables alone: what the device knows of a step that follows another one.

        Args:
            bucket: that of the last `upload`.
        """
        if bucket not in self._table_copies:
            self._table_copies[bucket] = [self._table_copy(bucket, stage) for stage in self._stages]
        copy = self._table_copies[bucket][self._next_stage()]
        np.copyto(copy.staged, copy.tables)
        copy.there.copy_(copy.stage, non_blocking=True)

    def upload_blocks(self, bucket: Bucket, grown: Iterable[tuple[int, int, list[int]]]) -> None:
        """Queue copies of more blocks for some rows, one each, and of nothing else of their block tables.

        Args:
            bucket, grown: as for `extend_tables`.
        """
        at, width = self._borders(bucket).tables, bucket.num_blocks(self._block_size)
        stage = self._stages[self._next_stage()]
        words = stage.numpy()
        for row, num_known, block_table in grown:
            new, start = block_table[num_known:width], at + row * width + num_known
            if new:
                words[start : start + len(new)] = new
                self._send(stage, start, start + len(new))

    def _next_stage(self) -> int:
        """Which piece of pinned memory nobody reads any more."""
        self._turn = (self._turn + 1) % _NUM_STAGES
        return self._turn

    def _table_copy(self, bucket: Bucket, stage: torch.Tensor) -> _TableCopy:
        at = self._borders(bucket)
        tables, there = self._tables[: at.end - at.tables], stage[at.tables : at.end]
        return _TableCopy(tables.numpy(), there.numpy(), there, self._device[at.tables : at.end])

    def upload_places(self, bucket: Bucket, positions: list[int]) -> None:
        """Queue a copy of everything but the tokens, which the device knows before the host does.

        Args:
            bucket: that of the last `upload`.
            positions: of the first rows; -1 in padding, as in the rows after them.
        """
        start = self._borders(bucket).columns + 2 * bucket.num_seqs
        self._copy(bucket, start, _padded_places(positions, bucket))

    def _copy(self, bucket: Bucket, start: int, numbers: list[int], sampling: torch.Tensor | None = None) -> None:
        """Copy `numbers`, which end where the block tables begin, and those, and what is before them if given."""
        stage = self._stages[self._next_stage()]
        middle, end = start + len(numbers), self._borders(bucket).end
        stage[start:middle] = int32(numbers)
        np.copyto(stage.numpy()[middle:end], self._tables.numpy()[: end - middle])
        if sampling is not None:
            rows = stage[: bucket.num_seqs * ROW_WORDS].view(bucket.num_seqs, ROW_WORDS)
            rows[: len(sampling)] = sampling
            rows[len(sampling) :] = _PADDING
            start = 0
        self._device[start:end].copy_(stage[start:end], non_blocking=True)

    def tokens(self, bucket: Bucket, step: int) -> list[int]:
        """What step `step` chose for each row, once it is done."""
        start = step % HISTORY_LEN * bucket.num_seqs
        tokens: list[int] = self._history_words[start : start + bucket.num_seqs]
        return tokens

    def chosen(self, bucket: Bucket, step: int) -> torch.Tensor:
        """`[num_seqs]`, int32, in memory that host and device read: the same, when the step is done."""
        start = step % HISTORY_LEN * bucket.num_seqs
        return self._history[start : start + bucket.num_seqs]

    def next_number(self) -> int:
        """Of a step that is about to be begun: it says where that leaves its tokens."""
        self._number += 1
        return self._number

    @staticmethod
    def share_history(bucket: Bucket, step: int, other: Bucket, other_step: int) -> bool:
        """Whether a step of one bucket leaves its tokens where one of another bucket does."""
        rows, other_rows = bucket.num_seqs, other.num_seqs
        start, other_start = step % HISTORY_LEN * rows, other_step % HISTORY_LEN * other_rows
        return start < other_start + other_rows and other_start < start + rows


class _Borders:
    """Where the parts of a bucket begin, in words of 32 bits."""

    def __init__(self, bucket: Bucket, block_size: int) -> None:
        self.width = bucket.num_blocks(block_size)
        """Of the block tables."""
        self.step = -(-bucket.num_seqs * ROW_WORDS // _STEP_WORDS) * _STEP_WORDS
        self.groups = self.step + _STEP_WORDS
        self.columns = self.groups + _GROUP_WORDS
        self.tables = self.columns + _NUM_COLUMNS * bucket.num_seqs
        self.end = self.tables + bucket.num_seqs * self.width


def _padded(column: list[int], bucket: Bucket) -> list[int]:
    """One number for every row; zeros in padding."""
    return column + [0] * (bucket.num_seqs - len(column))


def _padded_places(positions: list[int], bucket: Bucket) -> list[int]:
    """Positions of all rows and their lengths."""
    places = positions + [-1] * (bucket.num_seqs - len(positions))
    return places + [position + 1 for position in places]


def _padded_tables(block_tables: list[list[int]], most: int) -> "np.ndarray[Any, np.dtype[np.int32]]":
    """`[len(block_tables), width]`, at most `most` blocks of each; zeros behind a table's end."""
    width = min(max(map(len, block_tables)), most)
    padding, flat = [0] * width, list[int]()
    for table in block_tables:
        flat += table[:width]
        flat += padding[len(table) :]
    return np.frombuffer(array("i", flat), np.int32).reshape(len(block_tables), width)


def _words(tensor: torch.Tensor) -> Any:
    """The memory of an int32 tensor on the host; a few numbers go in and out of it quicker than of the tensor."""
    return (ctypes.c_int32 * tensor.numel()).from_address(tensor.data_ptr())
