"""Attention over keys and values that lie in plain tensors; the last step of the paged ops that gather first."""

import torch
from torch.nn import functional

MAX_SCORES = 1 << 25
"""Scores of all heads that are worked out at a time, where torch's own attention cannot do it."""


def soft_cap(scores: torch.Tensor, cap: float | None) -> torch.Tensor:
    """`cap * tanh(scores / cap)` keeps scores within bounds without a hard edge (Gemma 2, arXiv 2408.00118).

    Any shape and type; the scores themselves without a cap.
    """
    return scores if cap is None else torch.tanh(scores / cap) * cap


def bias_of(
    alibi_slopes: torch.Tensor | None, num_queries: int, num_keys: int
) -> tuple[torch.Tensor, torch.Tensor] | None:
    """`bias` of `dense_attention` for a text whose last tokens are the queries: slopes and distances.

    Args:
        alibi_slopes: `[num_heads]`, float32; None: there is no bias.
        num_queries, num_keys: tokens of the text that ask, and that are looked at.
    """
    if alibi_slopes is None:
        return None
    keys = torch.arange(num_keys, device=alibi_slopes.device)
    queries = torch.arange(num_keys - num_queries, num_keys, device=alibi_slopes.device)
    return alibi_slopes.view(1, -1, 1, 1), (keys - queries[:, None]).float()[None, None]


def dense_attention(
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    *,
    scale: float,
    mask: torch.Tensor | None = None,
    causal: bool = False,
    cap: float | None = None,
    bias: tuple[torch.Tensor, torch.Tensor] | None = None,
    sinks: torch.Tensor | None = None,
) -> torch.Tensor:
    """`softmax(soft_cap(query @ key^T * scale) + bias + mask) @ value`, heads in groups.

    Args:
        query: `[batch, num_heads, num_queries, head_dim]`.
        key, value: `[batch, num_kv_heads, num_keys, head_dim]`; `num_kv_heads` divides `num_heads`.
        mask: added to the scores, `-inf` where a query must not look; broadcasts to
            `[batch, num_heads, num_queries, num_keys]`.
        causal: query i sees keys 0 to i; without a mask and what follows only.
        cap: soft cap of the scores (Gemma 2).
        bias: two float32 factors of what is added to the scores, of four dimensions that broadcast to the same:
            slopes and distances (ALiBi).
        sinks: float32, of four dimensions, broadcasts to `[batch, num_heads, num_queries, 1]`: a score without a
            key and a value.

    Returns:
        `[batch, num_heads, num_queries, head_dim]`.
    """
    if cap is None and bias is None and sinks is None:
        grouped = query.shape[1] != key.shape[1]
        return functional.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=causal, scale=scale, enable_gqa=grouped
        )
    group = query.shape[1] // key.shape[1]
    key, value = (tensor.repeat_interleave(group, dim=1) for tensor in (key, value))
    if mask is not None:
        mask = mask.view((1,) * (4 - mask.dim()) + mask.shape)
    attended = []
    step = max(1, MAX_SCORES // (query.shape[0] * query.shape[1] * key.shape[2]))
    for first in range(0, query.shape[2], step):
        rows = slice(first, first + step)
        scores = soft_cap(_in_float(torch.matmul(query[:, :, rows], key.transpose(2, 3))) * scale, cap)
        if bias is not None:
            scores = scores + _of_rows(bias[0].to(scores.dtype), rows) * _of_rows(bias[1], rows)
        if mask is not None:
            scores = scores + _of_rows(mask, rows)
        weights = softmax_beside(scores, None if sinks is None else _of_rows(sinks, rows))
        attended.append(torch.matmul(weights.to(value.dtype), value))
    return attended[0] if len(attended) == 1 else torch.cat(attended, dim=2)


def softmax_beside(scores: torch.Tensor, sinks: torch.Tensor | None) -> torch.Tensor:
    """Softmax over the last dimension and a sink, which takes its share and is left out.

    Args:
        scores: any shape and type.
        sinks: of as many dimensions, broadcasts to a last one of 1; None: there is none.
    """
    if sinks is None:
        return torch.softmax(scores, dim=-1)
    column = sinks.to(scores.dtype).expand(*scores.shape[:-1], 1)
    return torch.softmax(torch.cat((scores, column), dim=-1), dim=-1)[..., :-1]


def _in_float(scores: torch.Tensor) -> torch.Tensor:
    """In float32, or as they are if they are wider."""
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


def _of_rows(tensor: torch.Tensor, rows: slice) -> torch.Tensor:
    """Of some of the queries, the third dimension of four."""
    return tensor if tensor.shape[2] == 1 else tensor[:, :, rows]
