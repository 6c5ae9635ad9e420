"""Heads in bytes: how far they are off, what lies where, and that whole pages have all of it."""

import pytest
import torch

from pagedchat.ops.cache.byte_cache import (
    DTYPES,
    LARGEST,
    dequantised,
    elements_of,
    page_bytes,
    quantised,
    scales_of,
)
from pagedchat.ops.cache.byte_kinds import CacheKind
from pagedchat.ops.cache.copy_blocks import copy_blocks, has_whole_pages

KINDS = ["int8", "fp8"]
ODD = [(1, 1, 2), (3, 5, 7), (16, 2, 64), (8, 3, 80)]
"""Block size, KV heads, head size."""


def heads(*size: int, seed: int = 0) -> torch.Tensor:
    """Of many sizes, from a millionth to a million."""
    generator = torch.Generator().manual_seed(seed)
    rows = torch.randn(size, generator=generator)
    return rows * 10.0 ** torch.randint(-6, 7, (*size[:-1], 1), generator=generator)


@pytest.mark.parametrize("kind", KINDS)
def test_numbers_are_off_by_no_more_than_their_type_allows(kind: CacheKind) -> None:
    rows = heads(500, 80)
    elements, scales = quantised(rows, DTYPES[kind])
    off = (dequantised(elements, scales, torch.float64) - rows.double()).abs()
    largest = rows.double().abs().amax(dim=1, keepdim=True)
    # A scale is rounded up by 2^-7 at most. Half a step of whole numbers; half of the last of 4 bits of floats.
    step = largest * (1 + 2.0**-7) / LARGEST[DTYPES[kind]]
    bound = step / 2 if kind == "int8" else torch.maximum(rows.double().abs() / 16, step * 2.0**-10)
    assert (off <= bound * (1 + 1e-5)).all()
    assert off.mean() > 0  # they are not kept as they are


@pytest.mark.parametrize("kind", KINDS)
def test_no_element_passes_the_largest_of_its_type(kind: CacheKind) -> None:
    elements, scales = quantised(heads(5000, 16, seed=1), DTYPES[kind])
    assert elements.float().abs().max() == LARGEST[DTYPES[kind]]
    assert scales.float().isfinite().all()


@pytest.mark.parametrize("kind", KINDS)
def test_zeros_stay_zeros(kind: CacheKind) -> None:
    elements, scales = quantised(torch.zeros(3, 16), DTYPES[kind])
    assert not dequantised(elements, scales, torch.float32).any()


@pytest.mark.parametrize("kind", KINDS)
def test_brought_into_bytes_again_they_are_the_same_numbers(kind: CacheKind) -> None:
    elements, scales = quantised(heads(200, 64, seed=2), DTYPES[kind])
    once = dequantised(elements, scales, torch.float32)
    again = dequantised(*quantised(once, DTYPES[kind]), torch.float32)
    torch.testing.assert_close(again, once, rtol=0, atol=float(once.abs().max()) * 2.0**-7)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("block_size", "num_kv_heads", "head_size"), ODD)
def test_a_copied_page_has_elements_and_scales(
    kind: CacheKind, block_size: int, num_kv_heads: int, head_size: int
) -> None:
    size = page_bytes(block_size, num_kv_heads, head_size)
    pages = torch.full((2, 2, 5, size), 7, dtype=torch.uint8)
    assert has_whole_pages(pages)
    sizes = (block_size, num_kv_heads, head_size)
    cache = elements_of(pages[1, 0], kind, *sizes)
    scales = scales_of(cache, block_size, num_kv_heads)
    rows = heads(*sizes)
    elements, found = quantised(rows, DTYPES[kind])
    cache.view(torch.uint8)[3] = elements.view(torch.uint8)
    scales[3] = found
    copy_blocks(pages, torch.tensor([3]), torch.tensor([0]))
    copied = dequantised(cache[0], scales[0], torch.float32)
    assert torch.equal(copied, dequantised(elements, found, torch.float32))
    untouched = [1, 2, 4]
    assert (pages[:, :, untouched] == 7).all()
    assert (pages[0] == 7).all()
    assert (pages[1, 1] == 7).all()


def test_pages_are_about_half_of_those_of_16_bits() -> None:
    assert page_bytes(16, 8, 128) * 2 < 1.02 * (16 * 8 * 128 * 2)
    assert page_bytes(16, 2, 64) * 2 < 1.04 * (16 * 2 * 64 * 2)
