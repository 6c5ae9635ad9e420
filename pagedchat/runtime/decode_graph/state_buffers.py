"""The memory that captured steps read their batch from, and how the host fills it: one copy before a step.

::

    on the device   | sampling rows | step . . . | token_ids | positions | seq_lens | block tables, row by row |

All buckets use the same memory, each with its own borders. Between two steps of one bucket the device keeps the
numbers up to date by itself; the host copies what it changes. Copies start from pinned memory, from
several pieces of it in turn, since a copy may still be under way when the next one is written.
"""

import ctypes
from dataclasses import dataclass
from typing import Any

import torch

from pagedchat.ops.decode_state import DecodeState
from pagedchat.ops.sample_rows import ROW_WORDS
from pagedchat.runtime.decode_graph.buckets import Bucket
from pagedchat.runtime.upload import int32

HISTORY_LEN = 4
"""Steps whose tokens are kept: more than are ever under way."""
_NUM_STAGES = 3
_HEADER = 4
"""The step and padding, so that what follows starts at 16 bytes."""


@dataclass(frozen=True, slots=True)
class Batch:
    """The live rows of a step."""

    token_ids: list[int]
    positions: list[int]
    block_tables: torch.Tensor
    """`[num_seqs, any number]`, int32, on the CPU."""
    sampling: torch.Tensor | None = None
    """`[num_seqs, ROW_WORDS]`, int32, on the CPU: of steps that draw their tokens."""


def no_rows() -> Batch:
    """A batch of nothing but padding."""
    return Batch([], [], torch.empty((0, 0), dtype=torch.int32), torch.empty((0, ROW_WORDS), dtype=torch.int32))


class StateBuffers:
    """Device memory, pinned memory and the borders in them.

    Args:
        largest: bucket; none may need more.
        block_size: token slots in a block.
        device: where the steps run; on a CPU nothing is pinned.
    """

    def __init__(self, largest: Bucket, block_size: int, device: torch.device) -> None:
        self._block_size = block_size
        self._on_gpu = device.type == "cuda"
        size = _header(largest) + _HEADER + largest.num_seqs * (3 + largest.num_blocks(block_size))
        self._device = torch.zeros(size, dtype=torch.int32, device=device)
        self._stages = [self._host(size) for _ in range(_NUM_STAGES)]
        self._history = self._host(HISTORY_LEN * largest.num_seqs)
        self._history_words = _words(self._history)
        self._arrivals = torch.zeros(1, dtype=torch.int32, device=device)
        self._tables = torch.zeros(size, dtype=torch.int32)
        """Block tables as the device has them, or will with the next copy."""
        self._table_words = _words(self._tables)
        self._turn = 0

    def _host(self, size: int) -> torch.Tensor:
        return torch.zeros(size, dtype=torch.int32, pin_memory=self._on_gpu)

    def state(self, bucket: Bucket) -> DecodeState:
        """Views for a bucket's steps."""
        rows, width = bucket.num_seqs, bucket.num_blocks(self._block_size)
        header = _header(bucket)
        start = header + _HEADER + 3 * rows
        numbers = self._device[header + _HEADER : start].view(3, rows)
        return DecodeState(
            token_ids=numbers[0],
            positions=numbers[1],
            seq_lens=numbers[2],
            block_tables=self._device[start : start + rows * width].view(rows, width),
            step=self._device[header : header + 1],
            history=self._history[: HISTORY_LEN * rows].view(HISTORY_LEN, rows),
            arrivals=self._arrivals,
        )

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
        rows, width = batch.block_tables.shape
        known = min(width, bucket.num_blocks(self._block_size))
        self._rows_of_tables(bucket)[:rows, :known] = batch.block_tables[:, :known]
        padding = [0] * (bucket.num_seqs - len(batch.token_ids))
        places = padded_places(bucket, batch.positions)
        numbers = [step, 0, 0, 0, *batch.token_ids, *padding, *places]
        self._copy(bucket, _header(bucket), numbers, batch.sampling)

    def set_table(self, bucket: Bucket, row: int, block_table: list[int]) -> None:
        """Another block table for a row, with the next `upload_places`."""
        width = bucket.num_blocks(self._block_size)
        start, known = row * width, block_table[:width]
        self._table_words[start : start + len(known)] = known

    def upload_places(self, bucket: Bucket, positions: list[int]) -> None:
        """Queue a copy of everything but the tokens, which the device knows before the host does.

        Args:
            bucket: that of the last `upload`.
            positions: of the first rows; -1 in padding, as in the rows after them.
        """
        self._copy(bucket, _header(bucket) + _HEADER + bucket.num_seqs, padded_places(bucket, positions))

    def _rows_of_tables(self, bucket: Bucket) -> torch.Tensor:
        rows, width = bucket.num_seqs, bucket.num_blocks(self._block_size)
        return self._tables[: rows * width].view(rows, width)

    def _copy(self, bucket: Bucket, start: int, numbers: list[int], sampling: torch.Tensor | None = None) -> None:
        """Copy `numbers`, which end where the block tables begin, and those, and what is before them if given."""
        self._turn = (self._turn + 1) % _NUM_STAGES
        stage = self._stages[self._turn]
        middle = start + len(numbers)
        end = middle + bucket.num_seqs * bucket.num_blocks(self._block_size)
        stage[start:middle] = int32(numbers)
        stage[middle:end] = self._tables[: end - middle]
        if sampling is not None:
            stage[: _header(bucket)] = 0
            stage[: sampling.numel()] = sampling.flatten()
            start = 0
        self._device[start:end].copy_(stage[start:end], non_blocking=True)

    def tokens(self, bucket: Bucket, step: int, num_seqs: int) -> list[int]:
        """What step `step` chose, once it is done."""
        start = step % HISTORY_LEN * bucket.num_seqs
        tokens: list[int] = self._history_words[start : start + num_seqs]
        return tokens


def _words(tensor: torch.Tensor) -> Any:
    """The memory of an int32 tensor on the host; a few numbers go in and out of it quicker than of the tensor."""
    return (ctypes.c_int32 * tensor.numel()).from_address(tensor.data_ptr())


def _header(bucket: Bucket) -> int:
    """Where the step's number is; after the sampling rows, at 16 bytes."""
    return -(-bucket.num_seqs * ROW_WORDS // _HEADER) * _HEADER


def padded_places(bucket: Bucket, positions: list[int]) -> list[int]:
    """Positions of all rows and their lengths."""
    places = positions + [-1] * (bucket.num_seqs - len(positions))
    return places + [position + 1 for position in places]
