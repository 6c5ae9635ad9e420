"""SchedulerOutput -> the flat lists and tensors of a forward pass. Knows the engine's data, no model."""

from dataclasses import dataclass
from itertools import accumulate

import torch

from pagedchat.engine.output import ScheduledSequence
from pagedchat.runtime.attention.backend import AttentionBatch
from pagedchat.runtime.attention.prefix_groups import PrefixGroup, SharingRule, plan_sharing
from pagedchat.runtime.step.upload import int64, upload


@dataclass(frozen=True, slots=True)
class BatchInputs:
    """A step's batch, flattened, sequences with a single token first."""

    token_ids: torch.Tensor
    """`[1, num_tokens]`, int64, on the device."""
    positions: torch.Tensor
    """`[1, num_tokens]`, int64, on the device."""
    last_rows: torch.Tensor
    """`[num_sampled]`, int64, on the device: rows whose logits are wanted, in the order of `sampled`."""
    sampled: list[int]
    """Indices in the `SchedulerOutput` of the sequences that sample."""
    attention: AttentionBatch


def flatten(
    scheduled: list[ScheduledSequence], block_size: int, device: torch.device, sharing: SharingRule | None = None
) -> BatchInputs:
    """Lay the scheduled tokens of all sequences one after the other.

    Args:
        scheduled: each sequence's part in the step.
        block_size: token slots in a block.
        device: where the tensors go; the copy is queued on its current stream.
        sharing: when decodes that begin with the same blocks are put side by side; None never does it.
    """
    decodes, prefix_groups = _in_groups(
        [i for i, part in enumerate(scheduled) if part.num_tokens == 1], scheduled, block_size, sharing
    )
    order = decodes + [i for i, part in enumerate(scheduled) if part.num_tokens > 1]
    parts = [scheduled[i] for i in order]
    query_lens = [part.num_tokens for part in parts]
    flat = _flat_decodes(parts[: len(decodes)], block_size)
    for part in parts[len(decodes) :]:
        _append_chunk(flat, part, block_size)
    last_rows = [end - 1 for end, part in zip(accumulate(query_lens), parts, strict=True) if part.samples]
    *rows, last_row_index = upload([int64(values) for values in (*flat, last_rows)], device)
    return BatchInputs(
        token_ids=rows[0][None],
        positions=rows[1][None],
        last_rows=last_row_index,
        sampled=[i for i in order if scheduled[i].samples],
        attention=AttentionBatch(
            seq_ids=[part.sequence.seq_id for part in parts],
            num_decodes=len(decodes),
            query_lens=query_lens,
            seq_lens=[part.start + part.num_tokens for part in parts],
            block_tables=[part.sequence.block_table for part in parts],
            slot_mapping=rows[2],
            prefix_groups=prefix_groups,
        ),
    )


def _in_groups(
    decodes: list[int], scheduled: list[ScheduledSequence], block_size: int, sharing: SharingRule | None
) -> tuple[list[int], list[PrefixGroup]]:
    """The decodes in an order in which those that share a prefix are side by side."""
    if sharing is None or len(decodes) < 2:
        return decodes, []
    tables = [scheduled[i].sequence.block_table for i in decodes]
    seq_lens = [scheduled[i].start + 1 for i in decodes]
    plan = plan_sharing(tables, seq_lens, block_size, sharing)
    return ([decodes[row] for row in plan.order], plan.groups) if plan else (decodes, [])


def _flat_decodes(parts: list[ScheduledSequence], block_size: int) -> tuple[list[int], list[int], list[int]]:
    """Token ids, positions and slots of single tokens. This is the loop of every step: it stays lean."""
    positions = [part.start for part in parts]
    token_ids = [part.sequence.token_ids[part.start] for part in parts]
    blocks = [part.sequence.block_table[part.start // block_size] for part in parts]
    slots = [
        block_id * block_size + position % block_size for block_id, position in zip(blocks, positions, strict=True)
    ]
    return token_ids, positions, slots


def _append_chunk(flat: tuple[list[int], list[int], list[int]], part: ScheduledSequence, block_size: int) -> None:
    token_ids, positions, slots = flat
    start, end = part.start, part.start + part.num_tokens
    token_ids += part.sequence.token_ids[start:end]
    positions += range(start, end)
    first = start // block_size
    chunk: list[int] = []
    for block_id in part.sequence.block_table[first : -(-end // block_size)]:
        chunk += range(block_id * block_size, (block_id + 1) * block_size)
    slots += chunk[start - first * block_size : end - first * block_size]
