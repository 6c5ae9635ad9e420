"""Who took part in a step, as reports tell it: an entry for each sequence, or two columns where all of them decode.

Plain frozen structs (msgspec), a part of `events.StepReport`; they know neither the engine nor the other events.
"""

from collections.abc import Iterator
from itertools import repeat
from typing import overload

import msgspec


class BatchEntry(msgspec.Struct, frozen=True, array_like=True, tag=True, gc=False):
    """One sequence's part in a step."""

    seq_id: int
    num_prefill: int
    """Prompt (or recomputed) tokens whose KV this step computed."""
    num_decode: int
    """Generated tokens whose KV this step computed: 1 for a decode, and drafted ones that were accepted; else 0."""
    token_ids: list[int]
    """What was sampled and holds; empty while a prompt is still being prefilled."""
    num_drafted: int = 0
    """Tokens that were guessed and verified in this step; `num_decode - 1` of them were accepted."""

    @property
    def num_accepted(self) -> int:
        """Of the drafted tokens, those that the model would have chosen itself."""
        return self.num_decode - 1 if self.num_drafted else 0


class DecodeBatch(msgspec.Struct, frozen=True, gc=False):
    """A batch of nothing but decodes of one token each, as most are: two columns, in the order of the batch.

    To be read as the list of entries that it stands for; whoever follows every step reads the columns. The lists
    are never changed, and batches of the same sequences that follow one another share the first.
    """

    seq_ids: list[int]
    token_ids: list[int]
    """What was sampled for each."""

    def __len__(self) -> int:
        return len(self.token_ids)

    def __iter__(self) -> Iterator[BatchEntry]:
        return map(BatchEntry, self.seq_ids, repeat(0), repeat(1), [[token_id] for token_id in self.token_ids])

    @overload
    def __getitem__(self, index: int) -> BatchEntry: ...

    @overload
    def __getitem__(self, index: slice) -> list[BatchEntry]: ...

    def __getitem__(self, index: int | slice) -> BatchEntry | list[BatchEntry]:
        if isinstance(index, slice):
            return list(DecodeBatch(self.seq_ids[index], self.token_ids[index]))
        return BatchEntry(self.seq_ids[index], 0, 1, [self.token_ids[index]])

    def __eq__(self, other: object) -> bool:
        if isinstance(other, DecodeBatch):
            return self.seq_ids == other.seq_ids and self.token_ids == other.token_ids
        return list(self) == other if isinstance(other, list) else NotImplemented

    __hash__ = None  # type: ignore[assignment]  # as that of the list for which it stands


Batch = list[BatchEntry] | DecodeBatch
"""Who took part in a step."""
