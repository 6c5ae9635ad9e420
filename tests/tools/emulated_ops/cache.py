"""The cache: what is written goes into its slots, everything else stays as it was.

Caches are NaN but for what is there to be read, and are compared whole.
"""

from dataclasses import replace
from functools import partial
from unittest.mock import patch

import torch

from pagedchat.ops.cache import heads_to_cache as heads_module
from pagedchat.ops.cache.byte_kinds import CacheKind
from pagedchat.ops.cache.copy_blocks import copy_blocks
from pagedchat.ops.cache.gather_cached_kv import gather_cached_kv
from pagedchat.ops.cache.heads_to_cache import heads_to_cache
from pagedchat.ops.cache.heads_to_slots import heads_to_slots
from pagedchat.ops.cache.layout import from_token_major, key_cache_shape, value_cache_shape
from pagedchat.ops.cache.move_beams import move_beams
from pagedchat.ops.cache.reshape_and_cache import FEW_TOKENS, reshape_and_cache
from pagedchat.ops.cache.swap_blocks import swap_blocks
from pagedchat.ops.common.norm import HeadNorms, Norm
from tests.ops.byte_case import empty_pages, whole_cache
from tests.ops.products.small_batch_case import make_norm, normal
from tests.ops.sampling.decode_state_case import make_state
from tests.tools.emulated_ops.op_case import (
    BFLOAT,
    DTYPES,
    HALF,
    NOTHING,
    OpCase,
    Results,
    in_types,
    numbers,
    rotations,
)

KV_HEADS, HEAD_SIZE, BLOCK_SIZE = 2, 80, 16
FAR_AWAY = 1 << 30
"""A block id that must not be followed."""


def empty_caches(num_blocks: int, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values that nobody has written."""
    keys = torch.full(key_cache_shape(num_blocks, KV_HEADS, HEAD_SIZE, BLOCK_SIZE, dtype), NOTHING, dtype=dtype)
    values = torch.full(value_cache_shape(num_blocks, KV_HEADS, HEAD_SIZE, BLOCK_SIZE), NOTHING, dtype=dtype)
    return keys, values


def write(slots: list[int], dtype: torch.dtype) -> Results:
    """Keys and values as one product makes them, so with gaps between tokens."""
    heads = normal(len(slots), 3 * KV_HEADS, HEAD_SIZE, device="cpu", dtype=dtype)
    key, value = heads[:, KV_HEADS:].chunk(2, dim=1)
    key_cache, value_cache = empty_caches(max(slots) // BLOCK_SIZE + 2, dtype)
    reshape_and_cache(key, value, key_cache, value_cache, numbers(*slots, dtype=torch.int64))
    return {"keys": key_cache, "values": value_cache}


FEW_SLOTS = [13, -1, 0, 31, -1, 14]
LONG_CHUNK = [-1, *range(3, 90), -1, -1, *reversed(range(96, 112)), *range(115, FEW_TOKENS + 31), -1]
"""Runs that begin and end inside of blocks, one that goes backwards, padding between them."""


def copy(pairs: list[tuple[int, int]], page: tuple[int, ...], *, disjoint: bool, dtype: torch.dtype) -> Results:
    cache = normal(3, 2, 6, *page, device="cpu", dtype=dtype)
    src, dst = (numbers(*ids, dtype=torch.int64) for ids in zip(*pairs, strict=True))
    copy_blocks(cache, src, dst, disjoint=disjoint)
    return {"cache": cache}


def move(position: int, page: tuple[int, ...]) -> Results:
    """Two beams in the places of others, a chat, and padding."""
    state = make_state([position, position, position, 3, -1], "cpu")
    tables = numbers(0, 1, 0, 2, 0, 3, 4, FAR_AWAY, FAR_AWAY, FAR_AWAY).view(5, 2)
    cache = normal(3, 2, 6, *page, device="cpu", dtype=HALF)
    state = replace(state, block_tables=tables)
    move_beams(cache, state, numbers(1, 1, 1, -1, -1), numbers(7, 8, 9, 10, 11), 8)
    return {"cache": cache, "tables": tables, "token_ids": state.token_ids}


def swap(dtype: torch.dtype) -> Results:
    """Out, and in again elsewhere; the host has fewer blocks."""
    cache, host = (normal(3, 2, count, 8, 2, 20, device="cpu", dtype=dtype, seed=count) for count in (6, 4))
    swap_blocks(cache, host, numbers(5, 1, dtype=torch.int64), numbers(0, 3, dtype=torch.int64))
    swap_blocks(host, cache, numbers(3, 0, 2, dtype=torch.int64), numbers(2, 4, 0, dtype=torch.int64))
    return {"cache": cache, "host": host}


def gather(dtype: torch.dtype) -> Results:
    """Sequences of no token, of whole blocks and of parts of one; the last table is full."""
    tokens = torch.full((8, BLOCK_SIZE, 2 * KV_HEADS, HEAD_SIZE), NOTHING, dtype=dtype)
    tables = torch.full((5, 3), FAR_AWAY, dtype=torch.int32)
    seq_lens = (0, 5, 2 * BLOCK_SIZE, 0, 2 * BLOCK_SIZE + 13)
    for seq, blocks in ((1, [6]), (2, [0, 4]), (4, [7, 2, 1])):
        tables[seq, : len(blocks)] = numbers(*blocks)
        tokens[blocks] = normal(len(blocks), *tokens.shape[1:], device="cpu", dtype=dtype, seed=seq)
    tokens[1, 13:], tokens[6, 5:] = NOTHING, NOTHING
    caches = from_token_major(*tokens.chunk(2, dim=2))
    keys, values = gather_cached_kv(*caches, tables, numbers(0, *seq_lens).cumsum(0).int(), sum(seq_lens))
    return {"keys": keys, "values": values}


def place_heads(
    dtype: torch.dtype,
    *,
    rotary: bool,
    normed: int | None = None,
    turned: int = HEAD_SIZE,
    kind: str = "",
    together: bool = False,
) -> Results:
    """One token of each of four sequences, one of them padding: of its queries nothing is promised.

    Args:
        dtype: of the heads.
        rotary: queries and keys are turned.
        normed: heads of a token that a norm takes as one row: 1, or 0 for all of them.
        turned: elements of a head.
        kind: of norms, which have weights for each head.
        together: two tokens share a thread block, as many tokens do.
    """
    heads = normal(4, 3 + 2 * KV_HEADS, HEAD_SIZE, device="cpu", dtype=dtype)
    caches = empty_caches(7, dtype)
    tables = torch.tensor([[6, FAR_AWAY], [FAR_AWAY, FAR_AWAY], [1, 5], [3, 2]], dtype=torch.int32)
    turns = rotations(2 * BLOCK_SIZE, turned) if rotary else None
    positions = numbers(0, -1, 2 * BLOCK_SIZE - 1, 7)
    rows = [] if normed is None else [HEAD_SIZE * (normed or count) for count in (3, KV_HEADS)]
    norms = HeadNorms(*(rms_norm(width, dtype) for width in rows)) if rows else None
    if kind:
        norms = HeadNorms(*(norm_of_each(kind, count, dtype) for count in (3, KV_HEADS)))
    with patch.object(heads_module, "_MANY_TOKENS", 0 if together else 512):
        queries = heads_to_cache(heads, *caches, tables, positions, norms=norms, rotations=turns)
    return {"queries": queries[[0, 2, 3]], "keys": caches[0], "values": caches[1]}


def rms_norm(width: int, dtype: torch.dtype) -> Norm:
    return Norm("rms", 1 + normal(width, device="cpu", dtype=dtype, scale=0.3), None, 1e-6)


def norm_of_each(kind: str, count: int, dtype: torch.dtype) -> Norm:
    norm = make_norm(kind, count * HEAD_SIZE, "cpu", dtype)
    assert norm is not None
    bias = None if norm.bias is None else norm.bias.view(count, HEAD_SIZE)
    return replace(norm, weight=norm.weight.view(count, HEAD_SIZE), bias=bias)


def write_bytes(kind: CacheKind, slots: list[int], dtype: torch.dtype) -> Results:
    heads = normal(len(slots), 3 * KV_HEADS, HEAD_SIZE, device="cpu", dtype=dtype)
    key, value = heads[:, KV_HEADS:].chunk(2, dim=1)
    caches = empty_pages(max(slots) // BLOCK_SIZE + 2, KV_HEADS, HEAD_SIZE, BLOCK_SIZE, kind)
    reshape_and_cache(key, value, *caches, numbers(*slots, dtype=torch.int64))
    keys, values = whole_cache(caches)
    return {"keys": keys, "values": values}


def place_bytes(
    kind: CacheKind, dtype: torch.dtype, *, turned: int = HEAD_SIZE, norm: str = "", by_slot: bool = False
) -> Results:
    """As `place_heads`; of bytes, in which a rounding more or less is a whole step, only scales are compared."""
    heads = normal(4, 3 + 2 * KV_HEADS, HEAD_SIZE, device="cpu", dtype=dtype)
    caches = empty_pages(7, KV_HEADS, HEAD_SIZE, BLOCK_SIZE, kind)
    tables = torch.tensor([[6, FAR_AWAY], [FAR_AWAY, FAR_AWAY], [1, 5], [3, 2]], dtype=torch.int32)
    turns, positions = rotations(2 * BLOCK_SIZE, turned), numbers(0, -1, 2 * BLOCK_SIZE - 1, 7)
    norms = HeadNorms(*(norm_of_each(norm, count, dtype) for count in (3, KV_HEADS))) if norm else None
    if by_slot:
        slots = numbers(6 * BLOCK_SIZE, -1, 6 * BLOCK_SIZE - 1, 3 * BLOCK_SIZE + 7, dtype=torch.int64)
        queries = heads_to_slots(heads, *caches, slots, norms=norms, turns=turns[[0, 0, 31, 7]].contiguous())
    else:
        queries = heads_to_cache(heads, *caches, tables, positions, norms=norms, rotations=turns)
    largest = [side.abs().amax(dim=-1) for side in whole_cache(caches)]
    return {"queries": queries[[0, 2, 3]], "keys": largest[0], "values": largest[1]}


PAGE, CHAIN = (8, 2, 20), [(0, 5), (3, 0), (4, 3)]
CASES = [
    *in_types("reshape_and_cache", partial(write, FEW_SLOTS), *DTYPES, exact=True),
    *in_types("reshape_and_cache_runs", partial(write, LONG_CHUNK), *DTYPES, exact=True),
    OpCase("copy_blocks", "in order", partial(copy, CHAIN, PAGE, disjoint=False, dtype=HALF)),
    OpCase("copy_blocks", "side by side", partial(copy, [(0, 5), (1, 3), (4, 2)], PAGE, disjoint=True, dtype=HALF)),
    OpCase("copy_blocks", "large pages", partial(copy, [(2, 1)], (16, 4, 36), disjoint=True, dtype=HALF)),
    OpCase("move_beams", "in a block", partial(move, 13, (16, 4, 36))),
    OpCase("move_beams", "at the end of a block", partial(move, 8, PAGE)),
    *in_types("swap_blocks", swap, HALF, exact=True),
    *in_types("gather_cached_kv", gather, *DTYPES, exact=True),
    *in_types("rows_to_bytes", partial(write_bytes, "int8", FEW_SLOTS), HALF, BFLOAT, exact=True, about="int8"),
    *in_types("rows_to_bytes", partial(write_bytes, "fp8", LONG_CHUNK), HALF, BFLOAT, exact=True, about="fp8"),
    *in_types("heads_to_bytes", partial(place_bytes, "int8"), HALF, BFLOAT, about="turned"),
    *in_types("heads_to_bytes", partial(place_bytes, "fp8", by_slot=True), HALF, about="turned, by slot"),
    *in_types("heads_to_bytes", partial(place_bytes, "fp8", norm="rms", turned=32), HALF, BFLOAT, about="normed"),
    *in_types("heads_to_bytes", partial(place_bytes, "int8", norm="layer"), HALF, about="each normed its own way"),
    *in_types("heads_to_cache", partial(place_heads, rotary=False), torch.float32, exact=True),
    *in_types("heads_to_cache", partial(place_heads, rotary=True), *DTYPES, about="turned"),
    *in_types("heads_to_cache", partial(place_heads, rotary=True, normed=1), *DTYPES, about="normed and turned"),
    *in_types("heads_to_cache", partial(place_heads, rotary=True, normed=1, together=True), HALF, about="in twos"),
    *in_types("heads_to_cache", partial(place_heads, rotary=True, normed=0), HALF, about="normed together, turned"),
    *in_types("heads_to_cache", partial(place_heads, rotary=False, normed=1), BFLOAT, about="normed"),
    *in_types("heads_to_cache", partial(place_heads, rotary=True, turned=32), HALF, BFLOAT, about="a part turned"),
    *in_types("heads_to_cache", partial(place_heads, rotary=True, turned=20), *DTYPES, about="few elements turned"),
    *in_types(
        "heads_to_cache",
        partial(place_heads, rotary=True, turned=32, kind="layer"),
        *DTYPES,
        about="each normed its own way, a part turned",
    ),
    *in_types(
        "heads_to_cache", partial(place_heads, rotary=False, kind="offset rms"), HALF, about="normed by one more"
    ),
]
