"""What the decode ops ask of their arguments."""

import torch

from pagedchat.ops.attention.options import AttentionOptions
from pagedchat.ops.common.checks import check_dtype, check_same_type, check_shape

_MAX_ACCEPTED = 1024
_accepted: set[object] = set()


def check_decode(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    options: AttentionOptions,
    output: torch.Tensor | None,
    lse: torch.Tensor | None,
) -> None:
    """Refuse what does not go together; see `decode_split` for the shapes.

    Raises:
        ValueError: names the argument, what was expected and what came.
    """
    tensors = (query, key_cache, value_cache, block_tables, seq_lens, options.alibi_slopes, output, lse)
    facts = tuple((t.shape, t.dtype, t.device) if t is not None else None for t in tensors)
    if facts in _accepted:  # a decode step asks this of every layer, and every step again for some tokens
        return
    _check(query, key_cache, value_cache, block_tables, seq_lens, options, output, lse)
    if len(_accepted) >= _MAX_ACCEPTED:
        _accepted.clear()
    _accepted.add(facts)


def _check(
    query: torch.Tensor,
    key_cache: torch.Tensor,
    value_cache: torch.Tensor,
    block_tables: torch.Tensor,
    seq_lens: torch.Tensor,
    options: AttentionOptions,
    output: torch.Tensor | None,
    lse: torch.Tensor | None,
) -> None:
    num_blocks, num_kv_heads, chunks, block_size, row = key_cache.shape
    check_shape("query", query, seq_lens.shape[0], None, chunks * row)
    check_shape("value_cache", value_cache, num_blocks, num_kv_heads, chunks * row, block_size)
    check_shape("block_tables", block_tables, seq_lens.shape[0], None)
    check_dtype("block_tables", block_tables, torch.int32)
    check_dtype("seq_lens", seq_lens, torch.int32)
    check_same_type("query", query, key_cache)
    if query.shape[1] % num_kv_heads:
        raise ValueError(f"query has {query.shape[1]} heads, expected a multiple of {num_kv_heads} KV heads")
    if output is not None:
        check_shape("output", output, *query.shape)
        check_same_type("output", output, query)
    if lse is not None:
        check_shape("lse", lse, *query.shape[:2])
        check_dtype("lse", lse, torch.float32)
    if options.alibi_slopes is not None:
        check_shape("alibi_slopes", options.alibi_slopes, query.shape[1])
        check_dtype("alibi_slopes", options.alibi_slopes, torch.float32)
