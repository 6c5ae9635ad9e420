"""Block tables as rows of one int32 tensor in host memory, written only where a table has changed.

From one step to the next most block tables stay as they are: a decode takes a new block once in `block_size`
tokens. Comparing a list with the one seen last is several times as fast as turning it into numbers again. Rows are
copied by numpy, since torch shares out what is large among threads that sleep.
"""

import numpy as np
import torch

from pagedchat.runtime.step.upload import int32


class BlockTableRows:
    """A row for every sequence met lately; a step's padded block tables are picked from them."""

    def __init__(self) -> None:
        self._tables = torch.zeros((0, 0), dtype=torch.int32)  # [num_rows, width]
        self._written: list[list[int]] = []
        """For each row the table that it holds. Rows are compared with it, so a stale one does no harm."""
        self._row_of: dict[int, int] = {}
        self._free: list[int] = []

    def gather(self, seq_ids: list[int], block_tables: list[list[int]]) -> torch.Tensor:
        """The block tables of a step, one row each: `[num_seqs, max_blocks]`, int32; past a table's end anything.

        Args:
            seq_ids: which sequences; none twice.
            block_tables: their block ids.
        """
        width = max(map(len, block_tables), default=0)
        self._make_room(seq_ids, width)
        rows = [self._row_of[seq_id] for seq_id in seq_ids]
        changed = [i for i, table in enumerate(block_tables) if self._written[rows[i]] != table]
        if changed:
            self._write([rows[i] for i in changed], [block_tables[i] for i in changed], width)
        return torch.from_numpy(np.take(self._tables.numpy()[:, :width], rows, axis=0))

    def _write(self, rows: list[int], block_tables: list[list[int]], width: int) -> None:
        """All at once: a tensor is slow to write to in small pieces."""
        padding, flat = [0] * width, list[int]()
        for row, table in zip(rows, block_tables, strict=True):
            flat += table
            flat += padding[len(table) :]
            self._written[row] = table.copy()
        if width:
            self._tables.numpy()[rows, :width] = int32(flat).numpy().reshape(len(rows), width)

    def _make_room(self, seq_ids: list[int], width: int) -> None:
        new = [seq_id for seq_id in seq_ids if seq_id not in self._row_of]
        if len(new) > len(self._free):
            for gone in self._row_of.keys() - set(seq_ids):
                self._free.append(self._row_of.pop(gone))
        num_rows, old_width = self._tables.shape
        missing = len(new) - len(self._free)
        if missing > 0 or width > old_width:
            self._grow(num_rows + max(missing, 0), max(width, old_width))
        for seq_id in new:
            self._row_of[seq_id] = self._free.pop()

    def _grow(self, num_rows: int, width: int) -> None:
        """At least to this size; whatever grows doubles at least, so that it seldom does."""
        old_rows, old_width = self._tables.shape
        num_rows = max(num_rows, 2 * old_rows) if num_rows > old_rows else old_rows
        width = max(width, 2 * old_width) if width > old_width else old_width
        tables = torch.zeros((num_rows, width), dtype=torch.int32)
        tables[:old_rows, :old_width] = self._tables
        self._tables = tables
        self._written += [[] for _ in range(num_rows - old_rows)]
        self._free += range(old_rows, num_rows)
