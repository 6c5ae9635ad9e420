"""SchedulerOutput -> the flat lists and tensors of a forward pass. Knows the engine's data, no model."""

from dataclasses import dataclass, field
from itertools import accumulate
from typing import NamedTuple

import torch

from pagedchat.engine.output import ScheduledSequence
from pagedchat.engine.tokens.logprobs import num_told
from pagedchat.runtime.attention.backend import AttentionBatch
from pagedchat.runtime.attention.prefix_groups import PrefixGroup, SharingRule, plan_sharing
from pagedchat.runtime.step.upload import int64, upload


class ToldRows(NamedTuple):
    """Some tokens of a prompt."""

    part: int
    """Which one in the `SchedulerOutput` is their sequence's."""
    first: int
    """Of their rows, among those whose logits are wanted."""
    length: int
    """How many there are."""


@dataclass(frozen=True, slots=True)
class BatchInputs:
    """A step's batch, flattened, sequences with a single token first."""

    token_ids: torch.Tensor
    """`[1, num_tokens]`, int64, on the device."""
    positions: torch.Tensor
    """`[1, num_tokens]`, int64, on the device."""
    last_rows: torch.Tensor
    """`[num_wanted]`, int64, on the device: rows whose logits are wanted, in rising order: those that are
    sampled, in the order of `sampled`, and between them those of `told`."""
    sampled: list[int]
    """Indices in the `SchedulerOutput` of the sequences that sample."""
    attention: AttentionBatch
    told: list[ToldRows] = field(default_factory=list)
    """Prompt tokens of which it is to be told how likely they were."""

    def sampled_of(self, logits: torch.Tensor) -> torch.Tensor:
        """Of the logits of all wanted rows, those of the rows that are sampled."""
        if not self.told:
            return logits
        told = {place for rows in self.told for place in range(rows.first, rows.first + rows.length)}
        places = [place for place in range(len(logits)) if place not in told]
        return logits[upload([int64(places)], logits.device)[0]]


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
    told: list[ToldRows] = []
    if any(part.sequence.sampling_params.prompt_logprobs is not None for part in parts):
        last_rows, told = _with_told(parts, order)
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
        told=told,
    )


def _with_told(parts: list[ScheduledSequence], order: list[int]) -> tuple[list[int], list[ToldRows]]:
    """Rows whose logits are wanted where prompt tokens are told of, and which of them those are."""
    rows: list[int] = []
    told: list[ToldRows] = []
    start = 0
    for index, part in zip(order, parts, strict=True):
        count = num_told(part)
        if count:
            told.append(ToldRows(index, len(rows), count))
            rows += range(start, start + count)
        start += part.num_tokens
        if part.samples:
            rows.append(start - 1)
    return rows, told


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
