"""Decode: one query token per sequence against all keys and values of that sequence, through its block table.

The op of PagedAttention (Kwon et al. 2023, arXiv 2309.06180). What follows from block tables and lengths alone is
the same for every layer, so it is worked out once per step (`plan_torch_decode`) and used by all of them.

Two versions. On a CPU, reading is what costs: `read_through` takes every key and value from where it lies, by its
row number, and copies nothing. Elsewhere `gather_attention` collects padded contexts of similar length and leaves
the rest to the attention of torch.
"""

from dataclasses import dataclass

import torch

from pagedchat.ops.attention.decode_gathered import GatherGroup, gather_attention, plan_groups
from pagedchat.ops.attention.decode_in_place import RowLayout, plan_rows, read_through
from pagedchat.ops.cache.layout import context_slots
from pagedchat.ops.common.checks import check_same_type, check_shape


@dataclass(frozen=True, slots=True)
class TorchDecodePlan:
    """What all layers of a step share; made by `plan_torch_decode`."""

    num_seqs: int
    num_heads: int
    layout: RowLayout | list[GatherGroup]


def plan_torch_decode(
    block_tables: list[list[int]],
    seq_lens: list[int],
    *,
    block_size: int,
    num_heads: int,
    num_kv_heads: int,
    dtype: torch.dtype,
    device: torch.device,
    sliding_window: int | None = None,
) -> TorchDecodePlan:
    """Work out which slots each sequence reads.

    Args:
        block_tables: for each sequence the ids of its blocks in order, covering at least its length.
        seq_lens: tokens of each sequence, the query token included; at least 1.
        block_size: token slots in a block.
        num_heads, num_kv_heads: query heads and KV heads; the latter divides the former.
        dtype, device: of the query and the cache.
        sliding_window: a query sees this many tokens, itself included; None sees all.
    """
    contexts = [
        context_slots(table, max(0, length - (sliding_window or length)), length, block_size)
        for table, length in zip(block_tables, seq_lens, strict=True)
    ]
    in_place = device.type == "cpu" and dtype in (torch.float32, torch.float64)
    layout = plan_rows(contexts, num_heads, num_kv_heads) if in_place else plan_groups(contexts, dtype, device)
    return TorchDecodePlan(len(contexts), num_heads, layout)


def torch_decode(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    plan: TorchDecodePlan,
    *,
    scale: float,
    cap: float | None = None,
    alibi_slopes: torch.Tensor | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """Attend with one query token per sequence.

    Args:
        query: `[num_seqs, num_heads, head_dim]`, any strides.
        key_cache, value_cache: `[num_blocks, block_size, num_kv_heads, head_dim]`, contiguous; hold the keys and
            values of the query tokens too.
        plan: from `plan_torch_decode`.
        scale: factor of the scores before the softmax.
        cap: soft cap of the scores.
        alibi_slopes, sinks: `[num_heads]`, float32, as in `call.AttentionOptions`.

    Returns:
        `[num_seqs, num_heads, head_dim]`, of the query's type.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    check_shape("query", query, plan.num_seqs, plan.num_heads, key_cache.shape[3])
    check_shape("value_cache", value_cache, *key_cache.shape)
    check_same_type("query", query, key_cache)
    if isinstance(plan.layout, RowLayout):
        return read_through(query, key_cache, value_cache, plan.layout, scale, cap, alibi_slopes, sinks)
    return gather_attention(query, key_cache, value_cache, plan.layout, scale, cap, alibi_slopes, sinks)
