"""A step with prompts in it as a few calls into compiled code: what `CpuStep` does for decodes, for any number of
tokens of any number of sequences. Rows go through the layers some hundred at a time; of the last layer all have
keys and values, and only those whose logits are wanted have the rest. A row's numbers follow from its own sequence;
attention has another kernel than that of decodes, and on some processors so have many rows with weights in
bfloat16, whence another last bit.

Knows the model's modules and the cache by token; knows no scheduler.
"""

from bisect import bisect_left, bisect_right
from itertools import accumulate

import torch

from pagedchat.jit.cpu.pool import Job
from pagedchat.models.decoder import Decoder
from pagedchat.ops.cpu.kernels import CpuKernels
from pagedchat.ops.cpu.prompt_attention import QUERIES
from pagedchat.runtime.attention.backend import AttentionBatch
from pagedchat.runtime.cpu.layer_parts import LayerParts
from pagedchat.runtime.cpu.step import Caches, CpuStep, address_of, cache_name

ROWS_AT_ONCE = 256
"""That go through the layers together: weights are read once for them, and what is between layers stays small.
Twice as many take the same time, and 17 MB more for Qwen2.5-0.5B."""

_ROWS_OF_MEMORY = 64
"""Memory is for a multiple of so many rows."""
_PROGRAMS_KEPT = 8


class CpuPrompts(CpuStep):
    """Steps of one model over one cache; the arguments are those of `CpuStep`.

    Raises:
        LookupError: a product has no kernels for many rows.
    """

    def __init__(
        self, kernels: CpuKernels, model: Decoder, caches: list[Caches], block_size: int, logits: torch.Tensor
    ) -> None:
        super().__init__(kernels, model, caches, block_size, logits)
        if not kernels.has_prompts:
            raise LookupError("this processor has no kernels for attention of prompts")
        products = [each for layer in self._layers for each in layer.large_products]
        for product in products:
            if words := product.objection_to_many(kernels):
                raise LookupError(f"a weight is not for many rows, since {words}")
        self._most = self.most_rows if any(product.is_float32 for product in products) else None
        heads = model.config.heads
        self._rows_of_tile = QUERIES // (heads.num_heads // heads.num_kv_heads)
        self._tiles = torch.empty(self.most_rows, 4, dtype=torch.int64)
        self._num_tiles = 0

    def takes(self, num_rows: int) -> bool:
        """Whether a step of so many rows is faster than by a library; in float32 long ones are not."""
        return self._most is None or num_rows <= self._most

    def run_prompts(
        self, token_ids: torch.Tensor, positions: torch.Tensor, batch: AttentionBatch, last_rows: torch.Tensor
    ) -> torch.Tensor:
        """Logits of some rows, `[num_wanted, vocab_size]`, float32.

        Args:
            token_ids, positions: `[num_rows]`, int64.
            batch: the sequences.
            last_rows: `[num_wanted]`, int64: whose logits are wanted, in rising order.
        """
        num_rows = len(token_ids)
        self._make_room(min(num_rows, ROWS_AT_ONCE), batch)
        self._write_tables(batch.block_tables)
        kept = [torch.empty(len(last_rows), each.shape[1]) for each in (self._hidden, self._qkv)]
        for start in range(0, num_rows, ROWS_AT_ONCE):
            rows = range(start, min(start + ROWS_AT_ONCE, num_rows))
            self._run_layers(token_ids, positions, batch, rows)
            is_here = (last_rows >= rows.start) & (last_rows < rows.stop)
            for each, its_rows in zip(kept, (self._hidden, self._qkv), strict=True):
                each[is_here] = its_rows[last_rows[is_here] - rows.start]
        if not len(last_rows):
            return self._logits[:0]
        pieces = [torch.split(each, self.most_rows) for each in (*kept, last_rows)]
        return torch.cat([self._logits_of(batch, *some) for some in zip(*pieces, strict=True)])

    def _run_layers(
        self, token_ids: torch.Tensor, positions: torch.Tensor, batch: AttentionBatch, rows: range
    ) -> None:
        """Up to the last layer's keys and values."""
        some = slice(rows.start, rows.stop)
        self._write_rows(token_ids[some], positions[some], batch.slot_mapping[some])
        self._take_tiles(batch, list(rows))
        self._made((len(rows), self._num_tiles), lambda: self._jobs_until_last_cache(len(rows))).program.run()

    def _logits_of(
        self, batch: AttentionBatch, hidden: torch.Tensor, qkv: torch.Tensor, numbers: torch.Tensor
    ) -> torch.Tensor:
        """Of at most `most_rows`: what the last layer's cache leaves to do.

        Args:
            batch: the sequences.
            hidden, qkv: of the rows, in this layer.
            numbers: `[num_rows]`, int64: which rows of the step they are.
        """
        num_rows = len(numbers)
        self._hidden[:num_rows], self._qkv[:num_rows] = hidden, qkv
        self._take_tiles(batch, numbers.tolist())
        self._made((num_rows, self._num_tiles, 1), lambda: self._jobs_to_logits(num_rows)).program.run()
        return self._logits[:num_rows].clone()

    def _take_tiles(self, batch: AttentionBatch, rows: list[int]) -> None:
        tiles = _tiles(batch, rows, self._rows_of_tile)
        self._num_tiles = len(tiles)
        self._tiles[: len(tiles)] = torch.tensor(tiles, dtype=torch.int64).view(-1, 4)
        if len(self._programs) > _PROGRAMS_KEPT:
            self._programs.clear()

    def _jobs_until_last_cache(self, num_rows: int) -> list[tuple[str, Job]]:
        jobs: list[tuple[str, Job]] = []
        *others, last = zip(self._layers, self._caches, strict=True)
        for each in others:
            jobs += self._until_cache_jobs(*each, num_rows) + self._behind_cache_jobs(*each, num_rows)
        return jobs + self._until_cache_jobs(*last, num_rows)

    def _jobs_to_logits(self, num_rows: int) -> list[tuple[str, Job]]:
        last = self._layers[-1], self._caches[-1]
        return self._behind_cache_jobs(*last, num_rows) + self._head_jobs(num_rows)

    def _make_room(self, num_rows: int, batch: AttentionBatch) -> None:
        """For a step so large; addresses in programs change with it."""
        if num_rows > self._most_rows:
            self._take_memory(-(-num_rows // _ROWS_OF_MEMORY) * _ROWS_OF_MEMORY)
            self._tiles = torch.empty(self._most_rows, 4, dtype=torch.int64)
        num_tables, longest = len(batch.block_tables), max(map(len, batch.block_tables))
        if num_tables > self._tables.shape[0] or longest > self._tables.shape[1]:
            num_tables = max(num_tables, self._tables.shape[0])
            self._tables = torch.zeros(num_tables, max(2 * longest, self._tables.shape[1]), dtype=torch.int64)
            self._programs.clear()

    def _attend_jobs(self, layer: LayerParts, caches: Caches, num_rows: int) -> list[tuple[str, Job]]:
        """Tiles take the place of lengths."""
        address = self._kernels.address(f"prompt_attention_{cache_name(caches.key)}")
        shared = self._attention_arguments(layer, caches, self._attended, self._tiles)
        arguments = (*shared, address_of(layer.sinks))
        return [("attention", Job(address, self._num_tiles * self._model.config.heads.num_kv_heads, 1, arguments))]


def _tiles(batch: AttentionBatch, rows: list[int], height: int) -> list[tuple[int, int, int, int]]:
    """Some rows of a batch, in rising order, in runs of tokens of one sequence that follow each other: which of
    the rows is the first one, how many there are, which sequence, and the position of the first token."""
    tiles: list[tuple[int, int, int, int]] = []
    ends = list(accumulate(batch.query_lens))
    sequence = place = 0
    while place < len(rows):
        row = rows[place]
        sequence = bisect_right(ends, row, sequence)
        end = bisect_left(rows, ends[sequence], place)
        num_rows = 1
        while num_rows < min(height, end - place) and rows[place + num_rows] == row + num_rows:
            num_rows += 1
        tiles.append((place, num_rows, sequence, batch.seq_lens[sequence] - ends[sequence] + row))
        place += num_rows
    return tiles
