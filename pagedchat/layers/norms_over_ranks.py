"""Norms over all heads of a token, where each of several ranks has some of the heads: sums over their elements and
over the squares of these are sums over ranks, in one message for queries and keys. Knows no attention.
"""

import torch
from torch.nn import functional

from pagedchat.layers.norms import Norm
from pagedchat.ops.ranks.company import Ranks


def normed_with_others(
    q_norm: Norm, query: torch.Tensor, k_norm: Norm, key: torch.Tensor, ranks: Ranks
) -> tuple[torch.Tensor, torch.Tensor]:
    """Queries and keys, normed. All ranks have as many heads; those that several have count for each of them.

    Args:
        q_norm, k_norm: of a kind; their weights are of the heads that are here.
        query: `[num_tokens, num_heads, head_dim]`.
        key: `[num_tokens, num_kv_heads, head_dim]`.
        ranks: who has the others.

    Returns:
        The same shapes and types.
    """
    queries, keys = query.flatten(1), key.flatten(1)
    sums = torch.cat((_sums(q_norm, queries), _sums(k_norm, keys)), dim=1)
    of_all = ranks.sum(sums)  # [num_tokens, 4], float32: as much as a kernel sends in one piece
    normed_queries = _by_moments(q_norm, queries, of_all[:, :2] / (ranks.size * queries.shape[1]))
    normed_keys = _by_moments(k_norm, keys, of_all[:, 2:] / (ranks.size * keys.shape[1]))
    return normed_queries.view(query.shape), normed_keys.view(key.shape)


def _sums(norm: Norm, rows: torch.Tensor) -> torch.Tensor:
    """`[num_tokens, width]` -> `[num_tokens, 2]`, float32: of elements, and of their squares."""
    finer = rows.float()
    both = torch.stack((finer, finer.square()), dim=1)
    return _sum_in_halves(both) if norm.arithmetic.batch_invariant else both.sum(dim=2)


def _sum_in_halves(rows: torch.Tensor) -> torch.Tensor:
    """`[..., width]` -> `[...]`, by sums of two elements: torch goes by the number of rows."""
    while (width := rows.shape[-1]) > 1:
        half = (width + 1) // 2
        rows = rows[..., :half] + functional.pad(rows[..., half:], (0, 2 * half - width))
    return rows[..., 0]


def _by_moments(norm: Norm, rows: torch.Tensor, moments: torch.Tensor) -> torch.Tensor:
    """The norm of rows `[num_tokens, width]`, by means of elements and of their squares, `[num_tokens, 2]`."""
    config, weight, finer = norm.config, norm.weight, rows.float()
    mean, mean_square = torch.split(moments, 1, dim=1)
    scaled: torch.Tensor
    if config.kind == "layer":
        scaled = (finer - mean) * torch.rsqrt(mean_square - mean.square() + config.eps)
        if weight is not None:
            scaled = scaled * (weight + config.offset).float()
        return (scaled if norm.bias is None else scaled + norm.bias.float()).to(rows.dtype)
    scaled = finer * torch.rsqrt(mean_square + config.eps)
    if weight is None:
        return scaled.to(rows.dtype)
    if config.exact or config.offset:
        return (scaled * (weight.float() + config.offset)).to(rows.dtype)
    return weight * scaled.to(rows.dtype)
