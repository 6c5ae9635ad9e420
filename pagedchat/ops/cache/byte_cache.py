"""A paged cache with one byte an element: whole numbers (int8) or floats of 8 bits (fp8: e4m3, Micikevicius et al.
2022, arXiv 2209.05433), with a scale for each token and KV head, of keys and of values.

A page, the keys or the values of a block in one layer, is its elements in the order of any other cache and behind
them the scales, bfloat16, in the order in which the elements have tokens and heads. So whoever moves whole pages
moves the scales too, and whoever has a tensor of the elements, with pages as its strides, finds the scales.

    | elements: [num_kv_heads, head_size / 16, block_size, 16], or any order | scales: [num_kv_heads, block_size] |

An element times its scale is the number. The scale is the least bfloat16 with which no element of the head passes
the largest that its type has. Knows neither kernels nor sequences.
"""

import torch

from pagedchat.ops.cache.byte_kinds import CACHE_KIND_OF, LARGEST_OF, LEAST_SCALE, CacheKind

DTYPES: dict[CacheKind, torch.dtype] = {"int8": torch.int8, "fp8": torch.float8_e4m3fn}
CACHE_KINDS = {DTYPES[kind]: number for kind, number in CACHE_KIND_OF.items()}
"""The `CACHE_KIND` constant of the kernels."""
LARGEST: dict[torch.dtype, float] = {DTYPES[kind]: largest for kind, largest in LARGEST_OF.items()}
SCALE = torch.bfloat16
_ALIGNED = 16
"""Bytes of which a page and its elements are multiples, so that pages can be copied by whole rows."""


def is_byte_cache(cache: torch.Tensor) -> bool:
    """Whether its elements have scales."""
    return cache.dtype in LARGEST


def elements_bytes(block_size: int, num_kv_heads: int, head_size: int) -> int:
    """Where the scales of a page begin."""
    return _whole_rows(block_size * num_kv_heads * head_size)


def page_bytes(block_size: int, num_kv_heads: int, head_size: int) -> int:
    """Of the keys or the values of a block in one layer, scales included."""
    scales = block_size * num_kv_heads * SCALE.itemsize
    return elements_bytes(block_size, num_kv_heads, head_size) + _whole_rows(scales)


def elements_of(pages: torch.Tensor, kind: CacheKind, *sizes: int) -> torch.Tensor:
    """The elements of pages.

    Args:
        pages: `[num_blocks, page_bytes]`, uint8, contiguous.
        kind: what they are.
        sizes: of a page's elements, in any order.

    Returns:
        `[num_blocks, *sizes]`, a view.
    """
    strides = [torch.Size(sizes[i + 1 :]).numel() for i in range(len(sizes))]
    return pages.view(DTYPES[kind]).as_strided((len(pages), *sizes), (pages.shape[1], *strides))


def scales_of(cache: torch.Tensor, *sizes: int) -> torch.Tensor:
    """The scales behind the elements of a cache, a view.

    Args:
        cache: `[num_blocks, ...]`, from `elements_of`.
        sizes: tokens and heads, in the order in which they lie.

    Returns:
        `[num_blocks, *sizes]`, bfloat16.
    """
    rows = cache.view(torch.uint8)
    start = rows.storage_offset() + _whole_rows(cache.shape[1:].numel())
    size = (len(cache), torch.Size(sizes).numel() * SCALE.itemsize)
    return rows.as_strided(size, (cache.stride(0), 1), start).view(SCALE).view(len(cache), *sizes)


def quantised(rows: torch.Tensor, dtype: torch.dtype) -> tuple[torch.Tensor, torch.Tensor]:
    """Bring heads into bytes.

    Args:
        rows: `[..., head_size]`, any float type.
        dtype: of `LARGEST`.

    Returns:
        Elements like `rows`, of that type, and scales `[...]`, bfloat16.
    """
    rows = rows.float()
    largest = rows.abs().amax(dim=-1)
    # By a tensor: a GPU multiplies by one divided by a number instead, which is not the same.
    scales = _rounded_up((largest / torch.full_like(largest, LARGEST[dtype])).clamp_min(LEAST_SCALE))
    numbers = rows * (1.0 / scales.float())[..., None]
    if dtype == torch.int8:
        numbers = numbers.round()
    return numbers.to(dtype), scales


def dequantised(elements: torch.Tensor, scales: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The numbers that elements stand for.

    Args:
        elements: `[..., head_size]`.
        scales: `[...]`.
        dtype: of the result; each number is rounded once.
    """
    return (elements.float() * scales.float()[..., None]).to(dtype)


def _rounded_up(numbers: torch.Tensor) -> torch.Tensor:
    """Positive float32 to the next bfloat16 that is not less."""
    bits = numbers.contiguous().view(torch.int32) + 0xFFFF
    return (bits >> 16).to(torch.int16).view(SCALE)


def _whole_rows(count: int) -> int:
    return -(-count // _ALIGNED) * _ALIGNED
