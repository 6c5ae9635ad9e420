"""Prefill: a chunk of queries per sequence against the cached tokens before it and the chunk itself, causally.

A varlen batch: the chunks follow one another, and each sequence has its own length, context and block table. Keys
and values, those of the chunk included, are read from the cache layout of PagedAttention (Kwon et al. 2023, arXiv
2309.06180) where they lie. Chunks of one token are decode; `decode_split` is made for a batch of those.

Three kernels, the first that can do it: `wgmma` (Hopper, chunks that fill its tiles), `mma` (tensor cores since
Turing; the only one over a cache of bytes, and the quicker one for few tokens behind a long context, whose keys it
shares out over the GPU), CUDA cores (any type). Without a GPU, plain torch.
"""

from typing import Protocol

import torch

from pagedchat.ops.attention import prefill_mma, prefill_simt, prefill_wgmma
from pagedchat.ops.attention.call import AttentionCall, check_call
from pagedchat.ops.attention.reference import attend_texts
from pagedchat.ops.common.launch import can_overlap, on_cuda, with_whole_rows

MIN_WGMMA_ROWS = 128
"""Query rows (heads of a group times tokens of the longest chunk) from which on `wgmma` is the faster one."""


class Launch(Protocol):
    """What the launchers of all prefill kernels are; arguments as in `paged_prefill`."""

    def __call__(
        self, call: AttentionCall, cu_seqlens_q: torch.Tensor, max_query_len: int, *, overlap: bool = False
    ) -> None:
        """Launch on torch's current stream; queries and output are checked and readable by 16 bytes."""


def paged_prefill(
    call: AttentionCall,
    cu_seqlens_q: torch.Tensor,
    *,
    max_query_len: int,
    overlap: bool = False,
    batch_invariant: bool = False,
) -> torch.Tensor:
    """Attend with the chunks of several sequences; the last of a sequence's queries is its last token.

    Args:
        call: the chunks' queries after one another.
        cu_seqlens_q: `[num_seqs + 1]`, int32; rows `cu_seqlens_q[s]` to `cu_seqlens_q[s + 1] - 1` of the query
            belong to sequence s. Rows past the last are left alone.
        max_query_len: no chunk has more tokens.
        overlap: the launch may begin before the kernel before it has ended, which makes the query or the newest
            keys and values; lengths and block tables are read before that.
        batch_invariant: a token's result follows from its sequence alone, bit for bit, however that is cut into
            chunks and whatever comes beside it. On a GPU that takes tensor cores.

    Returns:
        `call.output`: `[num_tokens, num_heads, head_size]`; zeros where a query sees no key.

    Raises:
        ValueError: shapes or types that do not go together; with `batch_invariant`, no tensor cores for them.
    """
    check_call(call, cu_seqlens_q)
    if not on_cuda(call.query, call.key_cache):
        attend_texts(call, cu_seqlens_q.diff().tolist())
    elif len(call.query) and len(call.seq_lens):
        _launch(call, cu_seqlens_q, max_query_len, overlap, batch_invariant)
    return call.output


def _launch(
    call: AttentionCall, cu_seqlens_q: torch.Tensor, max_query_len: int, overlap: bool, batch_invariant: bool
) -> None:
    readable, writable = call.readable(), with_whole_rows(call.output)
    if writable is not call.output:
        readable = readable.between(readable.query, writable)
    overlap = overlap and can_overlap(call.query.device)
    if batch_invariant:
        if not prefill_mma.supported(readable):
            raise ValueError("no kernel attends to these tokens regardless of their batch")
        prefill_mma.launch(readable, cu_seqlens_q, max_query_len, overlap=overlap, batch_invariant=True)
    else:
        launch = _choose(readable, max_query_len)
        launch(readable, cu_seqlens_q, max_query_len, overlap=overlap)
    if writable is not call.output:
        call.output.copy_(writable)


def _over_bytes(call: AttentionCall) -> Launch:
    if not prefill_mma.supported(call):
        raise ValueError(f"no kernel reads a cache of {call.key_cache.dtype} for {call.query.dtype} and such heads")
    return prefill_mma.launch


def _choose(call: AttentionCall, max_query_len: int) -> Launch:
    if call.cache_kind:
        return _over_bytes(call)
    num_rows = max_query_len * call.query.shape[1] // call.key_cache.shape[1]
    by_mma = prefill_mma.supported(call)
    if num_rows >= MIN_WGMMA_ROWS and prefill_wgmma.supported(call):
        return (
            prefill_mma.launch if by_mma and prefill_mma.splits_pay(call, max_query_len) else prefill_wgmma.launch
        )
    if by_mma:
        return prefill_mma.launch
    return prefill_simt.launch
