"""Scratch memory of the decode kernels: partial states."""

from functools import cache

import torch

from pagedchat.ops.common.arrivals import handover_words

Parts = tuple[torch.Tensor, torch.Tensor]
"""Outputs and states."""

MOST_HANDED = 16
"""Thread blocks of a sequence that hand their parts over as kernels/attention/decode_handover.cuh has it."""


def partial_states(query: torch.Tensor, max_parts: int) -> Parts:
    """Where `max_parts` thread blocks leave their share of each row.

    Args:
        query: `[num_seqs, num_heads, head_size]`.
        max_parts: of a row; with one there is nothing to leave.

    Returns:
        Outputs, `[num_seqs, num_heads, max_parts, head_size]`, and states (top, total),
        `[num_seqs, num_heads, max_parts, 2]`, float32.
    """
    if max_parts == 1:
        return _nothing(query.device), _nothing(query.device)
    num_seqs, num_heads, head_size = query.shape
    rows = (num_seqs, num_heads, max_parts)
    outputs = torch.empty((*rows, head_size), dtype=torch.float32, device=query.device)
    return outputs, torch.empty((*rows, 2), dtype=torch.float32, device=query.device)


def handover_places(query: torch.Tensor, num_splits: int) -> Parts:
    """Where thread blocks leave parts that say by themselves that they are there.

    Args:
        query: `[num_seqs, num_heads, head_size]`.
        num_splits: parts of a row.

    Returns:
        Outputs and states, a state for each four dimensions, flat, int32; nothing is there yet.
    """
    num_outputs = query.numel() * num_splits
    num_states = num_outputs // 2
    words = handover_words(query.device, num_outputs + num_states)
    return words[:num_outputs], words[num_outputs : num_outputs + num_states]


@cache
def _nothing(device: torch.device) -> torch.Tensor:
    return torch.empty(0, dtype=torch.float32, device=device)
