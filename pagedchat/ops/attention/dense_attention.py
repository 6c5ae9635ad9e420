"""Attention over keys and values that lie in plain tensors; the last step of the paged ops that gather first."""

import torch
from torch.nn import functional


def soft_cap(scores: torch.Tensor, cap: float | None) -> torch.Tensor:
    """`cap * tanh(scores / cap)` keeps scores within bounds without a hard edge (Gemma 2, arXiv 2408.00118).

    Any shape and type; the scores themselves without a cap.
    """
    return scores if cap is None else torch.tanh(scores / cap) * cap


def dense_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    scale: float,
    mask: torch.Tensor | None = None,
    causal: bool = False,
    cap: float | None = None,
) -> torch.Tensor:
    """`softmax(soft_cap(query @ key^T * scale) + mask) @ value`, heads in groups.

    Args:
        query: `[batch, num_heads, num_queries, head_dim]`.
        key, value: `[batch, num_kv_heads, num_keys, head_dim]`; `num_kv_heads` divides `num_heads`.
        mask: added to the scores, `-inf` where a query must not look; broadcasts to
            `[batch, num_heads, num_queries, num_keys]`.
        causal: query i sees keys 0 to i; without a mask and a cap only.
        cap: soft cap of the scores (Gemma 2).

    Returns:
        `[batch, num_heads, num_queries, head_dim]`.
    """
    if cap is None:
        grouped = query.shape[1] != key.shape[1]
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=grouped
        )
    return _capped(query, key, value, scale, mask, cap)


def _capped(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, scale: float, mask: torch.Tensor | None, cap: float
) -> torch.Tensor:
    group = query.shape[1] // key.shape[1]
    key, value = (tensor.repeat_interleave(group, dim=1) for tensor in (key, value))
    scores = soft_cap(torch.matmul(query, key.transpose(2, 3)).float() * scale, cap)
    if mask is not None:
        scores = scores + mask
    return torch.matmul(torch.softmax(scores, dim=-1).to(value.dtype), value)
