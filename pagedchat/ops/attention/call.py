"""What is asked of attention over the paged cache: its tensors, and what is done to the scores."""

from dataclasses import dataclass

import torch

from pagedchat.jit.variant import Constant
from pagedchat.ops.cache.byte_cache import CACHE_KINDS, is_byte_cache
from pagedchat.ops.common.checks import check_dtype, check_of_heads, check_same_type, check_shape
from pagedchat.ops.common.launch import element_name, with_whole_rows

NO_WINDOW = 2**31 - 1
"""As kernels are told that a query sees everything before it."""
_MAX_ACCEPTED = 1024
_accepted: set[object] = set()


@dataclass(frozen=True, slots=True, kw_only=True)
class AttentionOptions:
    """`softmax(mask(soft_cap(scale * q.k) + slope * (key_position - query_position)))`, over one more score, that
    of the sink, where there is one."""

    scale: float
    """Factor of the dot products."""
    sliding_window: int | None = None
    """A query sees this many tokens, itself included; None sees all."""
    cap: float | None = None
    """Soft cap of the scores (Gemma 2, arXiv 2408.00118)."""
    alibi_slopes: torch.Tensor | None = None
    """`[num_heads]`, float32, on the query's device (ALiBi, Press et al. 2022, arXiv 2108.12409)."""
    sinks: torch.Tensor | None = None
    """`[num_heads]`, float32, on the query's device: a score of each head that belongs to no key, enters the
    softmax as it is, and gives no value (Xiao et al. 2023, arXiv 2309.17453; learned in gpt-oss, 2508.10925)."""

    @property
    def window(self) -> int:
        """Tokens that a query sees, `NO_WINDOW` if all."""
        return self.sliding_window or NO_WINDOW

    @property
    def has_sinks(self) -> int:
        """`SINKS` of the kernels that finish rows."""
        return int(self.sinks is not None)


@dataclass(frozen=True, slots=True)
class AttentionCall:
    """Queries, the cache that they look into, and where the result goes; what every attention op takes.

    Decode ops take one query token of each sequence, `paged_prefill` chunks of them after one another.
    """

    query: torch.Tensor
    """`[num_tokens, num_heads, head_size]`, any token and head stride."""
    key_cache: torch.Tensor
    """`[num_blocks, num_kv_heads, head_size / x, block_size, x]`; `x` elements are 16 bytes. Of the query's type,
    or of bytes with scales (`ops.cache.byte_cache`)."""
    value_cache: torch.Tensor
    """`[num_blocks, num_kv_heads, head_size, block_size]`."""
    block_tables: torch.Tensor
    """`[num_seqs, max_blocks_per_seq]`, int32; read up to each sequence's last block."""
    seq_lens: torch.Tensor
    """`[num_seqs]`, int32, the query tokens included; 0 gives zeros."""
    options: AttentionOptions
    output: torch.Tensor
    """Like `query`, written."""
    lse: torch.Tensor | None = None
    """`[num_tokens, num_heads]`, float32, gets the natural log-sum-exp of the scores, the sink's among them, if
    given."""

    @classmethod
    def to_new(
        cls,
        query: torch.Tensor,
        key_cache: torch.Tensor,
        value_cache: torch.Tensor,
        block_tables: torch.Tensor,
        seq_lens: torch.Tensor,
        options: AttentionOptions,
    ) -> "AttentionCall":
        """With a new tensor for the result."""
        output = torch.empty(query.shape, dtype=query.dtype, device=query.device)
        return cls(query, key_cache, value_cache, block_tables, seq_lens, options, output)

    @property
    def constants(self) -> dict[str, Constant]:
        """Of every attention kernel, for the compiler; those that finish rows have `SINKS` besides."""
        query, cache, options = self.query.shape, self.key_cache.shape, self.options
        return {
            "ELEMENT": element_name(self.query.dtype),
            "HEAD_SIZE": query[2],
            "BLOCK_SIZE": cache[3],
            "GROUP_SIZE": query[1] // cache[1],
            "SOFT_CAP": int(options.cap is not None),
            "ALIBI": int(options.alibi_slopes is not None),
        }

    @property
    def cache_kind(self) -> int:
        """`CACHE_KIND` of the kernels that read a cache of bytes too."""
        return CACHE_KINDS.get(self.key_cache.dtype, 0)

    def readable(self) -> "AttentionCall":
        """The same with queries that kernels can read, 16 bytes at a time."""
        query = with_whole_rows(self.query)
        return self if query is self.query else self.between(query, self.output)

    def between(self, query: torch.Tensor, output: torch.Tensor) -> "AttentionCall":
        """The same with other queries and another place for the result."""
        caches = (self.key_cache, self.value_cache)
        return AttentionCall(query, *caches, self.block_tables, self.seq_lens, self.options, output, self.lse)


def check_call(call: AttentionCall, cu_seqlens_q: torch.Tensor | None = None) -> None:
    """Refuse what does not go together.

    Args:
        call: with one query token of each sequence; with chunks if there is `cu_seqlens_q`.
        cu_seqlens_q: `[num_seqs + 1]`, int32: where each chunk begins.

    Raises:
        ValueError: names the argument, what was expected and what came.
    """
    facts = _facts(call, cu_seqlens_q)
    if facts in _accepted:  # a step asks this of every layer, and every step again for some tokens
        return
    _check_inputs(call, cu_seqlens_q)
    _check_results(call)
    if len(_accepted) >= _MAX_ACCEPTED:
        _accepted.clear()
    _accepted.add(facts)


def _facts(call: AttentionCall, cu_seqlens_q: torch.Tensor | None) -> tuple[object, ...]:
    """All that is asked of the tensors; one flat tuple is the quickest to look up."""
    q, k, v, tables, lens, out = (
        call.query, call.key_cache, call.value_cache, call.block_tables, call.seq_lens, call.output,
    )  # fmt: skip
    lse, slopes, sinks = call.lse, call.options.alibi_slopes, call.options.sinks
    return (
        q.shape, k.shape, v.shape, tables.shape, lens.shape, out.shape,
        q.dtype, k.dtype, v.dtype, tables.dtype, lens.dtype, out.dtype,
        q.device, k.device, v.device, out.device,
        None if lse is None else (lse.shape, lse.dtype),
        None if slopes is None else (slopes.shape, slopes.stride(), slopes.dtype, slopes.device),
        None if sinks is None else (sinks.shape, sinks.stride(), sinks.dtype, sinks.device),
        None if cu_seqlens_q is None else (cu_seqlens_q.shape, cu_seqlens_q.dtype),
    )  # fmt: skip


def _check_inputs(call: AttentionCall, cu_seqlens_q: torch.Tensor | None) -> None:
    num_blocks, num_kv_heads, chunks, block_size, row = call.key_cache.shape
    num_seqs = call.seq_lens.shape[0]
    check_shape("query", call.query, num_seqs if cu_seqlens_q is None else None, None, chunks * row)
    check_shape("value_cache", call.value_cache, num_blocks, num_kv_heads, chunks * row, block_size)
    check_shape("block_tables", call.block_tables, num_seqs, None)
    check_dtype("block_tables", call.block_tables, torch.int32)
    check_dtype("seq_lens", call.seq_lens, torch.int32)
    if cu_seqlens_q is not None:
        check_shape("cu_seqlens_q", cu_seqlens_q, num_seqs + 1)
        check_dtype("cu_seqlens_q", cu_seqlens_q, torch.int32)
    if not is_byte_cache(call.key_cache):
        check_same_type("query", call.query, call.key_cache)
    check_same_type("value_cache", call.value_cache, call.key_cache)
    if call.query.shape[1] % num_kv_heads:
        raise ValueError(f"query has {call.query.shape[1]} heads, expected a multiple of {num_kv_heads} KV heads")


def _check_results(call: AttentionCall) -> None:
    query, options = call.query, call.options
    check_shape("output", call.output, *query.shape)
    check_same_type("output", call.output, query)
    if call.lse is not None:
        check_shape("lse", call.lse, *query.shape[:2])
        check_dtype("lse", call.lse, torch.float32)
    for name, of_heads in (("alibi_slopes", options.alibi_slopes), ("sinks", options.sinks)):
        if of_heads is not None:
            check_of_heads(name, of_heads, query)
