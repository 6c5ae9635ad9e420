"""What all layers of a step tell the kernels about the batch, built once and sent to the device in one copy."""

from dataclasses import dataclass
from itertools import accumulate, chain, repeat

import torch

from pagedchat.ops.attention.decode_plan import own_len
from pagedchat.runtime.attention.backend import AttentionBatch
from pagedchat.runtime.attention.prefix_groups import PrefixGroup
from pagedchat.runtime.attention.table_rows import BlockTableRows
from pagedchat.runtime.step.upload import int32, upload


@dataclass(frozen=True, slots=True)
class SharedPrefixes:
    """Which decodes read a beginning together; the groups cover all decodes in order."""

    lens: torch.Tensor
    """`[num_decodes]`, int32: shared tokens; 0 for a sequence that shares nothing."""
    group_starts: torch.Tensor
    """`[num_groups + 1]`, int32: rows."""
    max_len: int
    """Shared tokens of a group, at most."""
    max_own_len: int
    """The largest `own_len` of a sequence."""
    max_group_size: int


@dataclass(frozen=True, slots=True)
class DecodeTables:
    """Sequences with one query token each."""

    block_tables: torch.Tensor
    """`[num_decodes, max_blocks]`, int32."""
    seq_lens: torch.Tensor
    """`[num_decodes]`, int32."""
    max_seq_len: int
    num_tokens: int
    """Sum of the lengths."""
    shared: SharedPrefixes | None


@dataclass(frozen=True, slots=True)
class PrefillTables:
    """Sequences with a chunk of query tokens."""

    block_tables: torch.Tensor
    """`[num_prefills, max_blocks]`, int32."""
    seq_lens: torch.Tensor
    """`[num_prefills]`, int32."""
    cu_seqlens_q: torch.Tensor
    """`[num_prefills + 1]`, int32: rows of the chunks, counted from the first of them."""
    max_query_len: int


@dataclass(frozen=True, slots=True)
class StepTables:
    """A step's decodes, which take the first rows, and its prefills; None where there are none."""

    num_decodes: int
    decodes: DecodeTables | None
    prefills: PrefillTables | None


def build_step_tables(
    batch: AttentionBatch, rows: BlockTableRows, block_size: int, device: torch.device, num_decodes: int
) -> StepTables:
    """Lay out a batch for the kernels.

    Args:
        batch: what the step computes.
        rows: the block tables met lately.
        block_size: token slots in a block.
        device: where the kernels run; the copy is queued on its current stream.
        num_decodes: sequences, the first ones, that are laid out as decodes; `batch.num_decodes` or none.
    """
    split = num_decodes
    decode_lens, query_lens = batch.seq_lens[:split], batch.query_lens[split:]
    pieces = [
        rows.gather(batch.seq_ids, batch.block_tables),
        int32(batch.seq_lens),
        int32(accumulate(query_lens, initial=0)),
        *_group_pieces(batch.prefix_groups, block_size),
    ]
    block_tables, seq_lens, cu_seqlens_q, *shared_pieces = upload(pieces, device)
    decodes = prefills = None
    if decode_lens:
        shared = _shared(batch.prefix_groups, shared_pieces, decode_lens, block_size) if shared_pieces else None
        decodes = DecodeTables(block_tables[:split], seq_lens[:split], max(decode_lens), sum(decode_lens), shared)
    if query_lens:
        prefills = PrefillTables(block_tables[split:], seq_lens[split:], cu_seqlens_q, max(query_lens))
    return StepTables(split, decodes, prefills)


def _group_pieces(groups: list[PrefixGroup], block_size: int) -> list[torch.Tensor]:
    if not groups:
        return []
    lens = chain.from_iterable(repeat(group.num_blocks * block_size, group.num_rows) for group in groups)
    return [int32(lens), int32(accumulate((group.num_rows for group in groups), initial=0))]


def _shared(
    groups: list[PrefixGroup], pieces: list[torch.Tensor], decode_lens: list[int], block_size: int
) -> SharedPrefixes:
    shared_lens = chain.from_iterable(repeat(group.num_blocks * block_size, group.num_rows) for group in groups)
    return SharedPrefixes(
        lens=pieces[0],
        group_starts=pieces[1],
        max_len=max(group.num_blocks for group in groups) * block_size,
        max_own_len=max(map(own_len, decode_lens, shared_lens)),
        max_group_size=max(group.num_rows for group in groups),
    )
