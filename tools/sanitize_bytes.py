"""The kernels over a cache of one byte an element for `sanitize_kernels`, which says how they are checked."""

# mypy: disable-error-code="arg-type,call-arg"

import torch

from pagedchat.ops.attention.call import AttentionCall, AttentionOptions
from pagedchat.ops.attention.decode_split import decode_split
from pagedchat.ops.attention.prefill import paged_prefill
from pagedchat.ops.cache.byte_cache import elements_of, page_bytes
from pagedchat.ops.cache.byte_kinds import CacheKind
from pagedchat.ops.cache.heads_to_cache import heads_to_cache
from pagedchat.ops.cache.layout import tokens_of
from pagedchat.ops.cache.reshape_and_cache import reshape_and_cache
from pagedchat.ops.common.norm import HeadNorms, Norm
from tools.sanitize_case import BLOCK_SIZE, NUM_KV_HEADS, Tensors, index, on_both, random_tensor

LENS, NUM_HEADS = [133, 700, 150], 4
_KINDS: tuple[CacheKind, ...] = ("int8", "fp8")


def byte_cases() -> list[bool]:
    """What writes such a cache and what reads it, of both kinds."""
    return [same for kind in _KINDS for size in (64, 128) for same in _cases(kind, size)]


def _caches(pages: torch.Tensor, kind: CacheKind, head_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    keys = elements_of(pages[0], kind, NUM_KV_HEADS, head_size // 16, BLOCK_SIZE, 16)
    return keys, elements_of(pages[1], kind, NUM_KV_HEADS, head_size, BLOCK_SIZE)


def _cases(kind: CacheKind, head_size: int) -> list[bool]:
    width = -(-max(LENS) // BLOCK_SIZE)
    tables = torch.randperm(len(LENS) * width).int().view(len(LENS), width)
    pages = torch.zeros(2, tables.numel(), page_bytes(BLOCK_SIZE, NUM_KV_HEADS, head_size), dtype=torch.uint8)
    rows = [random_tensor(tables.numel() * BLOCK_SIZE, NUM_KV_HEADS, head_size) for _ in range(2)]
    slots, lens = torch.arange(len(rows[0])), index(*LENS)
    starts, options = index(0, 40, 41, 50), AttentionOptions(scale=head_size**-0.5)
    queries = random_tensor(50, NUM_HEADS, head_size)

    def write(t: Tensors) -> Tensors:
        caches = _caches(t[2], kind, head_size)
        reshape_and_cache(t[0], t[1], *caches, t[3])
        return list(tokens_of(*caches, torch.arange(tables.numel(), device=t[0].device), torch.float32))

    def place(t: Tensors) -> Tensors:
        caches = _caches(t[1], kind, head_size)
        norms = HeadNorms(*(Norm("rms", weight, None, 1e-6) for weight in t[5:7]))
        turned = heads_to_cache(t[0], *caches, t[2], t[3], norms=norms, rotations=t[4])
        kept = tokens_of(*caches, torch.arange(tables.numel(), device=t[0].device), torch.float32)
        # A rounding more or less is a step of bytes more or less: how large heads are has to agree.
        return [turned, *(part.norm(dim=-1) / 10 for part in kept)]

    def attend(t: Tensors) -> Tensors:
        caches = _caches(t[2], kind, head_size)
        reshape_and_cache(t[0], t[1], *caches, t[3])
        decoded = AttentionCall.to_new(t[4][: len(LENS)], *caches, t[5], t[6], options)
        read = AttentionCall.to_new(t[4], *caches, t[5], t[6], options)
        return [
            decode_split(decoded, max_seq_len=max(LENS)), paged_prefill(read, t[7], max_query_len=40)
        ]  # fmt: skip

    heads = random_tensor(len(LENS), NUM_HEADS + 2 * NUM_KV_HEADS, head_size)
    weights = [1 + random_tensor(head_size) / 10 for _ in range(2)]
    placed = [heads, pages, tables, index(3, 17, 40), torch.randn(64, head_size // 2, 2), *weights]
    written = [*rows, pages, slots]
    return [
        on_both(f"rows_to_bytes {kind} {head_size}", written, write),
        on_both(f"heads_to_bytes {kind} {head_size}", placed, place),
        on_both(f"attention over {kind} {head_size}", [*written, queries, tables, lens, starts], attend),
    ]
