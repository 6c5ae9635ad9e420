"""Scratch memory of the decode kernels: partial states."""

from functools import cache

import torch


def partial_states(query: torch.Tensor, max_parts: int) -> tuple[torch.Tensor, torch.Tensor]:
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


@cache
def _nothing(device: torch.device) -> torch.Tensor:
    return torch.empty(0, dtype=torch.float32, device=device)
