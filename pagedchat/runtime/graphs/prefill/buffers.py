"""The memory that captured prefills read their chunks from, and how the host fills it: one copy before a step.

::

    on the device   | sampling rows | starts | seq_lens | token_ids | positions | rows | block tables, row by row |
                                    |<------ num_seqs ----->|<------- num_tokens ------->|

All buckets use the same memory, each with its own borders. Nothing is kept from one step to the next, so a copy
brings everything, block tables up to the last live one.
"""

import ctypes
from array import array
from collections.abc import Iterable
from dataclasses import dataclass

import torch

from pagedchat.engine.output import ScheduledSequence
from pagedchat.ops.sampling.sample_rows import ROW_WORDS
from pagedchat.runtime.graphs.prefill.buckets import PrefillBucket

_NUM_STAGES = 2
_PIECE = 4
"""Numbers in 16 bytes: what every part starts at a multiple of."""


@dataclass(frozen=True, slots=True)
class PrefillRows:
    """A bucket's views of the device memory; int32 and contiguous."""

    cu_seqlens_q: torch.Tensor
    """`[num_seqs + 1]`: where each chunk begins among the tokens; padding begins and ends with the last."""
    seq_lens: torch.Tensor
    """`[num_seqs]`: the chunks' tokens included; 0 in padding."""
    token_ids: torch.Tensor
    """`[num_tokens]`; 0 in padding."""
    positions: torch.Tensor
    """`[num_tokens]`; -1 in padding."""
    seq_rows: torch.Tensor
    """`[num_tokens]`: whose token it is; 0 in padding."""
    block_tables: torch.Tensor
    """`[num_seqs, max_blocks_per_seq]`: anything past the end of a table and in padding."""
    sampling: torch.Tensor
    """`[num_seqs, ROW_WORDS]`: how each sequence draws its next token; of other steps anything."""


class PrefillBuffers:
    """Device memory, pinned memory and the borders in them.

    Args:
        largest: bucket; none may need more.
        block_size: token slots in a block.
        device: where the steps run; on a CPU nothing is pinned.
    """

    def __init__(self, largest: PrefillBucket, block_size: int, device: torch.device) -> None:
        self._block_size = block_size
        size = _Borders(largest, block_size).end
        on_gpu = device.type == "cuda"
        self._device = torch.zeros(size, dtype=torch.int32, device=device)
        self._stages = [torch.zeros(size, dtype=torch.int32, pin_memory=on_gpu) for _ in range(_NUM_STAGES)]
        self._words = [_words(stage) for stage in self._stages]
        self._counting = memoryview(array("I", range(largest.context_len)))
        self._minus_ones = memoryview(array("I", [0xFFFFFFFF]) * largest.num_tokens)
        self._zeros = memoryview(array("I", [0]) * largest.num_tokens)
        self._turn = 0

    def rows(self, bucket: PrefillBucket) -> PrefillRows:
        """Views for a bucket's steps."""
        at = _Borders(bucket, self._block_size)
        num_tokens, num_seqs = bucket.num_tokens, bucket.num_seqs

        def view(start: int, *shape: int) -> torch.Tensor:
            return self._device[start : start + torch.Size(shape).numel()].view(shape)

        return PrefillRows(
            cu_seqlens_q=view(at.starts, num_seqs + 1),
            seq_lens=view(at.seq_lens, num_seqs),
            token_ids=view(at.token_ids, num_tokens),
            positions=view(at.positions, num_tokens),
            seq_rows=view(at.seq_rows, num_tokens),
            block_tables=view(at.tables, num_seqs, at.width),
            sampling=view(0, num_seqs, ROW_WORDS),
        )

    def upload(
        self, bucket: PrefillBucket, parts: list[ScheduledSequence], sampling: torch.Tensor | None = None
    ) -> None:
        """Queue the copy of a step; the one before the last must be done.

        Args:
            bucket: whose borders.
            parts: the chunks, no more than it has room for; none at all makes everything padding.
            sampling: `[any number, ROW_WORDS]`, int32, on the CPU: how the first of them draw.
        """
        self._turn = (self._turn + 1) % _NUM_STAGES
        stage, at = self._stages[self._turn], _Borders(bucket, self._block_size)
        self._lay_out(self._words[self._turn], at, parts)
        start, end = at.starts, at.tables + len(parts) * at.width
        if sampling is not None:
            stage[: sampling.numel()] = sampling.flatten()
            start = 0
        self._device[start:end].copy_(stage[start:end], non_blocking=True)

    def _lay_out(self, words: "memoryview[int]", at: "_Borders", parts: list[ScheduledSequence]) -> None:
        token_ids, starts, row = list[int](), [0], 0
        for seq_row, part in enumerate(parts):
            token_ids += part.sequence.token_ids[part.start : part.start + part.num_tokens]
            self._write_chunk(words, at, seq_row, part, row)
            row += part.num_tokens
            starts.append(row)
        words[at.token_ids : at.token_ids + row] = _numbers(token_ids)
        num_seqs, missing = at.bucket.num_seqs, at.bucket.num_seqs - len(parts)
        lens = [part.start + part.num_tokens for part in parts]
        words[at.starts : at.starts + num_seqs + 1] = _numbers(starts + [row] * missing)
        words[at.seq_lens : at.seq_lens + num_seqs] = _numbers(lens + [0] * missing)
        self._pad_tokens(words, at, row)

    def _write_chunk(
        self, words: "memoryview[int]", at: "_Borders", seq_row: int, part: ScheduledSequence, row: int
    ) -> None:
        """Where the tokens of a chunk are, from `row` on. This runs for every prompt: it stays lean."""
        num_tokens, first = part.num_tokens, part.start
        end, past = first + num_tokens, row + num_tokens
        words[at.positions + row : at.positions + past] = self._counting[first:end]
        words[at.seq_rows + row : at.seq_rows + past] = array("I", [seq_row]) * num_tokens
        table = _numbers(part.sequence.block_table[: -(-end // self._block_size)])
        place = at.tables + seq_row * at.width
        words[place : place + len(table)] = table

    def _pad_tokens(self, words: "memoryview[int]", at: "_Borders", row: int) -> None:
        """Padding from `row` on, in place of what other steps left there."""
        num_tokens = at.bucket.num_tokens
        missing = num_tokens - row
        words[at.token_ids + row : at.token_ids + num_tokens] = self._zeros[:missing]
        words[at.positions + row : at.positions + num_tokens] = self._minus_ones[:missing]
        words[at.seq_rows + row : at.seq_rows + num_tokens] = self._zeros[:missing]


class _Borders:
    """Where the parts of a bucket begin."""

    def __init__(self, bucket: PrefillBucket, block_size: int) -> None:
        self.bucket = bucket
        self.width = bucket.num_blocks(block_size)
        num_tokens, num_seqs = _whole(bucket.num_tokens), bucket.num_seqs
        self.starts = _whole(num_seqs * ROW_WORDS)
        self.seq_lens = self.starts + _whole(num_seqs + 1)
        self.token_ids = self.seq_lens + _whole(num_seqs)
        self.positions = self.token_ids + num_tokens
        self.seq_rows = self.positions + num_tokens
        self.tables = self.seq_rows + num_tokens
        self.end = self.tables + num_seqs * self.width


def _whole(count: int) -> int:
    return -(-count // _PIECE) * _PIECE


def _numbers(values: Iterable[int]) -> "array[int]":
    """Of the unsigned kind, which Python makes three times as fast."""
    return array("I", values)


def _words(tensor: torch.Tensor) -> "memoryview[int]":
    """The memory of an int32 tensor on the host, as unsigned numbers.

    Lists go into it several times as fast as into the tensor.
    """
    raw = (ctypes.c_uint32 * tensor.numel()).from_address(tensor.data_ptr())
    return memoryview(raw).cast("B").cast("I")
