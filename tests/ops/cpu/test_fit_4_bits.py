"""Floats into 4 bits by a kernel: as near as by torch, group by group, and what has no scale is refused."""

import pytest
import torch

from pagedchat.ops.cpu.four_bits import FitFourBits
from pagedchat.ops.cpu.kernels import CpuKernels
from pagedchat.ops.quantized.quantize import FourBits, quantize
from pagedchat.ops.quantized.weight import QuantizedWeight


@pytest.fixture
def four_bits(kernels: CpuKernels) -> FourBits:
    return FitFourBits(kernels.address("fit_4_bits"))


def off(weight: torch.Tensor, few: QuantizedWeight) -> torch.Tensor:
    """Of each row."""
    return (few.dequantized() - weight.float()).norm(dim=1) / weight.float().norm(dim=1)


@pytest.mark.parametrize(("rows", "width", "group"), [(1, 32, 32), (7, 96, 48), (300, 1920, 128), (5, 64, 16)])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_it_is_as_near_as_torch_brings_it(
    four_bits: FourBits, rows: int, width: int, group: int, dtype: torch.dtype
) -> None:
    generator = torch.Generator().manual_seed(rows)
    weight = ((torch.randn(rows, width, generator=generator) ** 3 + 0.3) * 0.02).to(dtype)
    few, by_torch = quantize(weight, 4, group, four_bits=four_bits), quantize(weight, 4, group)
    assert few.form == by_torch.form
    torch.testing.assert_close(off(weight, few), off(weight, by_torch), rtol=0.01, atol=1e-6)
    # Two shares of a span may be as good to the last bit; else the steps are the same.
    alike = (few.scales.float() - by_torch.scales.float()).abs() <= 2e-3 * by_torch.scales.float()
    assert alike.float().mean() > 0.97


def test_rows_that_lie_apart_are_the_same(four_bits: FourBits) -> None:
    weight = torch.randn(64, 32, generator=torch.Generator().manual_seed(1))
    apart, together = (
        quantize(weight[::2], 4, 32, four_bits=four_bits),
        quantize(weight, 4, 32, four_bits=four_bits),
    )
    assert torch.equal(apart.dequantized(), together.dequantized()[::2])
    turned = quantize(weight.T, 4, 64, four_bits=four_bits)
    assert torch.equal(turned.dequantized(), quantize(weight.T.clone(), 4, 64, four_bits=four_bits).dequantized())


@pytest.mark.parametrize("number", [0.0, 0.375, -2.0])
def test_a_group_of_one_number_has_it(four_bits: FourBits, number: float) -> None:
    weight = torch.full((2, 64), number)
    assert torch.equal(quantize(weight, 4, 32, four_bits=four_bits).dequantized(), weight)


def test_digits_are_whole_from_least_to_largest(four_bits: FourBits) -> None:
    weight = torch.arange(16.0).repeat(3, 2)
    few = quantize(weight, 4, 32, four_bits=four_bits)
    assert torch.equal(few.integers(), (weight - 8).to(torch.int8))
    assert torch.equal(few.dequantized(), weight)


@pytest.mark.parametrize("wrong", [float("nan"), float("inf"), -float("inf"), 1e9])
def test_numbers_that_have_no_scale_are_refused(four_bits: FourBits, wrong: float) -> None:
    weight = torch.randn(4, 64, generator=torch.Generator().manual_seed(2))
    weight[2, 40] = wrong
    with pytest.raises(ValueError, match="not finite, or too large"):
        quantize(weight, 4, 32, four_bits=four_bits)
