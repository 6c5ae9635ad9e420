"""SchedulerOutput -> the flat lists and tensors of a forward pass. Knows the engine's data, no model."""

from dataclasses import dataclass

import torch

from pagedchat.engine.output import ScheduledSequence
from pagedchat.runtime.attention.backend import AttentionBatch


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


def flatten(scheduled: list[ScheduledSequence], block_size: int, device: torch.device) -> BatchInputs:
    """Lay the scheduled tokens of all sequences one after the other."""
    order = sorted(range(len(scheduled)), key=lambda i: scheduled[i].num_tokens > 1)
    token_ids: list[int] = []
    positions: list[int] = []
    slots: list[int] = []
    last_rows: list[int] = []
    sampled: list[int] = []
    for i in order:
        part = scheduled[i]
        end = part.start + part.num_tokens
        token_ids += part.sequence.token_ids[part.start : end]
        positions += range(part.start, end)
        slots += _slots(part.sequence.block_table, part.start, end, block_size)
        if part.samples:
            last_rows.append(len(token_ids) - 1)
            sampled.append(i)
    rows = torch.tensor([token_ids, positions, slots], dtype=torch.int64).to(device)  # [3, num_tokens]
    return BatchInputs(
        token_ids=rows[0:1],
        positions=rows[1:2],
        last_rows=torch.tensor(last_rows, dtype=torch.int64, device=device),
        sampled=sampled,
        attention=_attention_batch([scheduled[i] for i in order], rows[2]),
    )


def _attention_batch(parts: list[ScheduledSequence], slot_mapping: torch.Tensor) -> AttentionBatch:
    return AttentionBatch(
        num_decodes=sum(part.num_tokens == 1 for part in parts),
        query_lens=[part.num_tokens for part in parts],
        seq_lens=[part.start + part.num_tokens for part in parts],
        block_tables=[part.sequence.block_table for part in parts],
        slot_mapping=slot_mapping,
    )


def _slots(block_table: list[int], start: int, end: int, block_size: int) -> list[int]:
    return [block_table[i // block_size] * block_size + i % block_size for i in range(start, end)]
