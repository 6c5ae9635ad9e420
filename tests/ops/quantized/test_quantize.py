"""Floats in few bits: how far off, and what is refused."""

import pytest
import torch

from pagedchat.ops.quantized.quantize import pack, quantize
from pagedchat.ops.quantized.weight import QuantizedWeight

SHAPES = [(1, 32, 32), (3, 64, 32), (7, 96, 48), (300, 1920, 128), (5, 40, 40)]
"""Rows, width, group; one of them is more than is worked on at a time."""


def off(weight: torch.Tensor, few: QuantizedWeight) -> float:
    return float((few.dequantized() - weight).norm() / weight.norm())


@pytest.mark.parametrize(("rows", "width", "group"), SHAPES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float16])
def test_8_bits_are_off_by_half_a_step(rows: int, width: int, group: int, dtype: torch.dtype) -> None:
    weight = (torch.randn(rows, width, generator=torch.Generator().manual_seed(rows)) * 0.02).to(dtype)
    few = quantize(weight, 8, group)
    steps = few.scales.float().repeat_interleave(group, dim=1)
    # The largest element may be a little more than 127 steps of a scale that was rounded down.
    assert ((few.dequantized() - weight.float()).abs() <= 0.5 * steps * (1 + 2**-3)).all()
    assert few.integers().abs().max() == 127


@pytest.mark.parametrize(("rows", "width", "group"), SHAPES)
def test_4_bits_are_nearer_than_equal_steps_over_the_group(rows: int, width: int, group: int) -> None:
    weight = torch.randn(rows, width, generator=torch.Generator().manual_seed(rows))
    groups = weight.view(-1, group)
    low, high = groups.amin(dim=1, keepdim=True), groups.amax(dim=1, keepdim=True)
    step = (high - low) / 15
    plain = (((groups - low) / step).round() * step + low).view(rows, width)
    few = quantize(weight, 4, group)
    assert off(weight, few) < 0.97 * float((plain - weight).norm() / weight.norm())
    assert few.integers().min() >= -8
    assert few.integers().max() <= 7


def test_4_bits_of_normal_weights_are_off_by_7_percent() -> None:
    weight = torch.randn(200, 960, generator=torch.Generator().manual_seed(0))
    assert 0.07 < off(weight, quantize(weight, 4, 32)) < 0.0735


def test_a_group_of_one_number_has_it() -> None:
    weight = torch.full((2, 64), 0.375)
    assert torch.equal(quantize(weight, 4, 32).dequantized(), weight)


@pytest.mark.parametrize("bits", [4, 8])
def test_rows_are_quantised_one_by_one(bits: int) -> None:
    weight = torch.randn(9, 64, generator=torch.Generator().manual_seed(0))
    order = torch.tensor([8, 1, 5])
    chosen, some = quantize(weight, bits, 32).rows(order), quantize(weight[order], bits, 32)
    assert torch.equal(chosen.dequantized(), some.dequantized())


@pytest.mark.parametrize("bits", [4, 8])
def test_zeros_stay_zeros_and_very_small_numbers_small(bits: int) -> None:
    assert quantize(torch.zeros(2, 32), bits, 32).dequantized().abs().max() == 0
    small = torch.full((1, 32), 3e-9)
    assert quantize(small, bits, 32).dequantized().abs().max() <= 1e-7


def test_all_digits_of_4_bits_are_packed() -> None:
    digits = torch.arange(-8, 8, dtype=torch.int8)[None]
    few = QuantizedWeight(4, 16, pack(digits), torch.ones(1, 1, dtype=torch.float16))
    assert torch.equal(few.integers(), digits)


@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf"), 1e9])
def test_numbers_that_have_no_scale_are_refused(bits: int, wrong: float) -> None:
    weight = torch.randn(4, 64)
    weight[2, 40] = wrong
    with pytest.raises(ValueError, match="not finite, or too large"):
        quantize(weight, bits, 32)


@pytest.mark.parametrize(
    ("bits", "group", "words"), [(5, 32, "bits is 5"), (4, 24, "divide"), (8, 0, "group_size is 0")]
)
def test_sizes_that_do_not_go_together_are_refused(bits: int, group: int, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        quantize(torch.ones(1, 64), bits, group)
