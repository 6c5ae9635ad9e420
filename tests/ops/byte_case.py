"""Caches of one byte an element for tests of ops: all ones in every bit, which is NaN times NaN, but for the slots
that are written.
"""

from dataclasses import replace

import torch

from pagedchat.ops.cache.byte_cache import DTYPES, dequantised, elements_of, page_bytes, quantised
from pagedchat.ops.cache.byte_kinds import CacheKind
from pagedchat.ops.cache.layout import tokens_of
from pagedchat.ops.cache.reshape_and_cache import reshape_and_cache
from tests.ops.cuda_layout_case import LayoutCase

KINDS: list[CacheKind] = ["int8", "fp8"]


def empty_pages(
    num_blocks: int, num_kv_heads: int, head_size: int, block_size: int, kind: CacheKind, device: str = "cpu"
) -> tuple[torch.Tensor, torch.Tensor]:
    """Key cache and value cache."""
    size = (2, num_blocks, page_bytes(block_size, num_kv_heads, head_size))
    pages = torch.full(size, 255, dtype=torch.uint8, device=device)
    keys = elements_of(pages[0], kind, num_kv_heads, head_size // 16, block_size, 16)
    return keys, elements_of(pages[1], kind, num_kv_heads, head_size, block_size)


def as_bytes(rows: torch.Tensor, kind: CacheKind) -> torch.Tensor:
    """What a cache gives back of `[..., head_size]`, float32."""
    return dequantised(*quantised(rows, DTYPES[kind]), torch.float32)


def whole_cache(caches: tuple[torch.Tensor, torch.Tensor]) -> tuple[torch.Tensor, torch.Tensor]:
    """`[num_blocks, block_size, num_kv_heads, head_size]`, float32, NaN where nothing was written."""
    return tokens_of(*caches, torch.arange(len(caches[0]), device=caches[0].device), torch.float32)


def in_bytes(case: LayoutCase, kind: CacheKind) -> LayoutCase:
    """The same texts over a cache of bytes, and as that gives them back."""
    block_size, device = case.value_cache.shape[3], case.query.device
    num_blocks, num_kv_heads, head_size = case.value_cache.shape[:3]
    caches = empty_pages(num_blocks, num_kv_heads, head_size, block_size, kind)
    for table, key, value in zip(case.block_tables.cpu(), case.keys, case.values, strict=True):
        positions = torch.arange(len(key))
        slots = table[positions // block_size].long() * block_size + positions % block_size
        reshape_and_cache(key.cpu(), value.cpu(), *caches, slots)
    keys, values = ([as_bytes(each, kind) for each in rows] for rows in (case.keys, case.values))
    return replace(
        case, key_cache=_moved(caches[0], device), value_cache=_moved(caches[1], device), keys=keys, values=values
    )


def _moved(cache: torch.Tensor, device: torch.device) -> torch.Tensor:
    """With its scales."""
    pages = cache.view(torch.uint8).as_strided((len(cache), cache.stride(0)), (cache.stride(0), 1)).to(device)
    elements = pages[:, : cache.shape[1:].numel()].view(cache.dtype)
    return elements.view(len(cache), *cache.shape[1:])
