"""The memory that captured steps read their batch from, and how the host fills it: one copy before a step.

::

    on the device   | step . . . | token_ids | positions | seq_lens | block tables, row after row |
                    |<----- numbers, num_seqs each ----->|

All buckets use the same memory, each with its own borders. Between two steps of one bucket the device keeps the
numbers up to date by itself; the host copies them when it changes something. Copies start from pinned memory, from
several pieces of it in turn, since a copy may still be under way when the next one is written.
"""

from array import array
from dataclasses import dataclass

import torch

from pagedchat.ops.decode_state import DecodeState
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


def no_rows() -> Batch:
    """A batch of nothing but padding."""
    return Batch([], [], torch.empty((0, 0), dtype=torch.int32))


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
        size = _HEADER + largest.num_seqs * (3 + largest.num_blocks(block_size))
        self._device = torch.zeros(size, dtype=torch.int32, device=device)
        self._stages = [self._host(size) for _ in range(_NUM_STAGES)]
        self._history = self._host(HISTORY_LEN * largest.num_seqs)
        self._arrivals = torch.zeros(1, dtype=torch.int32, device=device)
        self._turn = 0

    def _host(self, size: int) -> torch.Tensor:
        return torch.zeros(size, dtype=torch.int32, pin_memory=self._on_gpu)

    def state(self, bucket: Bucket) -> DecodeState:
        """Views for a bucket's steps."""
        rows, width = bucket.num_seqs, bucket.num_blocks(self._block_size)
        numbers = self._device[_HEADER : _HEADER + 3 * rows].view(3, rows)
        start = _HEADER + 3 * rows
        return DecodeState(
            token_ids=numbers[0],
            positions=numbers[1],
            seq_lens=numbers[2],
            block_tables=self._device[start : start + rows * width].view(rows, width),
            step=self._device[:1],
            history=self._history[: HISTORY_LEN * rows].view(HISTORY_LEN, rows),
            arrivals=self._arrivals,
        )

    def upload(self, bucket: Bucket, batch: Batch, step: int) -> None:
        """Queue a copy of a whole batch; rows past its end become padding.

        Args:
            bucket: whose borders.
            batch: no more rows than the bucket has, no longer sequences.
            step: number of the next step, which says where its tokens go in the history.
        """
        stage = self._next_stage()
        fill(stage, bucket, batch, step)
        start = _HEADER + 3 * bucket.num_seqs
        end = start + self._fill_tables(stage, start, bucket, batch.block_tables)
        self._device[:end].copy_(stage[:end], non_blocking=True)

    def upload_tables(self, bucket: Bucket, block_tables: torch.Tensor) -> None:
        """Queue a copy of the block tables alone, `[num_seqs, any number]`, int32."""
        stage = self._next_stage()
        start = _HEADER + 3 * bucket.num_seqs
        end = start + self._fill_tables(stage, start, bucket, block_tables)
        self._device[start:end].copy_(stage[start:end], non_blocking=True)

    def tokens(self, bucket: Bucket, step: int, num_seqs: int) -> list[int]:
        """What step `step` chose, once it is done."""
        start = step % HISTORY_LEN * bucket.num_seqs
        tokens: list[int] = self._history[start : start + num_seqs].tolist()
        return tokens

    def _next_stage(self) -> torch.Tensor:
        self._turn = (self._turn + 1) % _NUM_STAGES
        return self._stages[self._turn]

    def _fill_tables(self, stage: torch.Tensor, start: int, bucket: Bucket, tables: torch.Tensor) -> int:
        """Returns how many elements there are."""
        width = bucket.num_blocks(self._block_size)
        rows, known = len(tables), min(width, tables.shape[1])
        stage[start : start + rows * width].view(rows, width)[:, :known] = tables[:, :known]
        return rows * width


def fill(stage: torch.Tensor, bucket: Bucket, batch: Batch, step: int) -> None:
    """Write the step and the numbers of a batch to the beginning of `stage`, int32."""
    padding = bucket.num_seqs - len(batch.token_ids)
    zeros = [0] * padding
    numbers = array("i", (step, 0, 0, 0, *batch.token_ids, *zeros))
    numbers.extend(batch.positions)
    numbers.extend([-1] * padding)
    numbers.extend([position + 1 for position in batch.positions])
    numbers.extend(zeros)
    stage[: len(numbers)] = int32(numbers)
