"""Decode attention over copies of the contexts, padded in groups of similar length. Runs on any device."""

from dataclasses import dataclass
from functools import cached_property

import torch
from torch.nn import functional

from pagedchat.ops.attention.dense_attention import dense_attention

MAX_GATHERED_TOKENS = 1 << 16
"""Padded tokens collected at a time."""


@dataclass(frozen=True)
class GatherGroup:
    """Sequences of similar length, padded to the longest."""

    members: torch.Tensor
    """`[num_members]`, int64: which sequences."""
    slots: torch.Tensor
    """`[num_members, max_context_len]`, int64; padding repeats a slot of the sequence."""
    mask: torch.Tensor | None
    """`[num_members, 1, 1, max_context_len]`, `-inf` on padding; None where nothing is padded."""
    context_lens: list[int]
    """Keys each member looks at."""

    @cached_property
    def distances(self) -> torch.Tensor:
        """`[num_members, 1, 1, max_context_len]`, float32: how far each token is ahead of the last."""
        lens = torch.tensor(self.context_lens, dtype=torch.float32, device=self.slots.device)[:, None, None, None]
        return torch.arange(self.slots.shape[1], dtype=torch.float32, device=self.slots.device) - (lens - 1)


def plan_groups(contexts: list[torch.Tensor], dtype: torch.dtype, device: torch.device) -> list[GatherGroup]:
    """Longest first, into groups that waste at most half on padding.

    Args:
        contexts: the slots that each sequence looks at, `[context_len]` each, int64, on the CPU.
        dtype, device: of the query and the cache.
    """
    by_length = sorted(range(len(contexts)), key=lambda i: len(contexts[i]), reverse=True)
    groups: list[list[int]] = []
    for i in by_length:
        longest = len(contexts[groups[-1][0]]) if groups else 0
        fits = groups and longest * (len(groups[-1]) + 1) <= MAX_GATHERED_TOKENS
        if fits and longest <= 2 * len(contexts[i]):
            groups[-1].append(i)
        else:
            groups.append([i])
    return [_plan_group(members, contexts, dtype, device) for members in groups]


def _plan_group(
    members: list[int], contexts: list[torch.Tensor], dtype: torch.dtype, device: torch.device
) -> GatherGroup:
    lens = torch.tensor([len(contexts[i]) for i in members])
    longest = int(lens[0])
    slots = torch.stack([functional.pad(contexts[i], (0, longest - len(contexts[i])), value=0) for i in members])
    padding = torch.arange(longest) >= lens[:, None]  # [num_members, longest]
    slots = torch.where(padding, slots[:, :1], slots)
    mask = torch.zeros(slots.shape, dtype=dtype).masked_fill_(padding, float("-inf"))[:, None, None, :]
    has_padding = int(lens[-1]) < longest
    return GatherGroup(
        members=torch.tensor(members, device=device),
        slots=slots.to(device),
        mask=mask.to(device) if has_padding else None,
        context_lens=lens.tolist(),
    )


def gather_attention(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    groups: list[GatherGroup],
    scale: float,
    cap: float | None,
    alibi_slopes: torch.Tensor | None,
    sinks: torch.Tensor | None,
) -> torch.Tensor:
    """Attention over copies of the contexts, group by group; arguments as in `torch_decode`."""
    num_kv_heads, head_dim = key_cache.shape[2:]
    slopes, sinks = (
        None if of_heads is None else of_heads.view(1, num_kv_heads, -1, 1) for of_heads in (alibi_slopes, sinks)
    )
    keys, values = (cache.view(-1, num_kv_heads, head_dim) for cache in (key_cache, value_cache))
    output = torch.empty(query.shape, dtype=query.dtype, device=query.device)
    for group in groups:
        # The query heads of one KV head stand where the queries of a longer text would: nothing is repeated.
        packed = query[group.members].view(len(group.members), num_kv_heads, -1, head_dim)
        key, value = (rows[group.slots].transpose(1, 2) for rows in (keys, values))
        bias = None if slopes is None else (slopes, group.distances)
        attended = dense_attention(
            packed, key, value, scale=scale, mask=group.mask, cap=cap, bias=bias, sinks=sinks
        )
        output[group.members] = attended.reshape(len(group.members), -1, head_dim)
    return output
