"""Heads turned by their position (Su et al. 2021, arXiv 2104.09864): the torch side of the ops that do it."""

import torch


def rotate_heads(heads: torch.Tensor, turns: torch.Tensor) -> torch.Tensor:
    """Turn every head; element i and element i + head_size / 2 are a pair.

    Args:
        heads: `[num_tokens, num_heads, head_size]`.
        turns: `[num_tokens, head_size / 2, 2]`: cosine and sine of each token's angles, in the type to work in.

    Returns:
        Like `heads`.
    """
    first, second = heads.to(turns.dtype).chunk(2, dim=-1)
    cos, sin = turns[:, None].unbind(-1)
    return torch.cat((first * cos - second * sin, second * cos + first * sin), dim=-1).to(heads.dtype)
