"""Rows times a matrix of few bits, against float64."""

import pytest
import torch

from pagedchat.ops.quantized.linear import dequantized_linear
from pagedchat.ops.quantized.quantize import quantize
from pagedchat.ops.quantized.weight import QuantizedWeight, stacked

SHAPES = [(32, 1, 32), (96, 7, 48), (896, 1000, 32), (64, 5, 64)]
"""Width, outputs, group; one of them in several pieces."""


def with_minimums(weight: QuantizedWeight) -> QuantizedWeight:
    minimums = torch.randn(weight.scales.shape, generator=torch.Generator().manual_seed(1)).half() / 8
    return QuantizedWeight(weight.bits, weight.group_size, weight.digits, weight.scales, minimums)


@pytest.mark.parametrize(("width", "outputs", "group"), SHAPES)
@pytest.mark.parametrize("bits", [4, 8])
@pytest.mark.parametrize("num_rows", [0, 1, 3, 33])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_products(width: int, outputs: int, group: int, bits: int, num_rows: int, dtype: torch.dtype) -> None:
    random = torch.Generator().manual_seed(width + num_rows)
    rows = torch.randn(num_rows, width, generator=random).to(dtype)
    few = with_minimums(quantize(torch.randn(outputs, width, generator=random), bits, group))
    exact = rows.double() @ few.dequantized().double().T
    product = dequantized_linear(rows, few)
    plain = torch.nn.functional.linear(rows, few.dequantized(dtype))
    assert product.dtype == dtype
    allowed = 2 * (plain.double() - exact).norm() + 1e-12
    assert (product.double() - exact).norm() <= allowed


def test_rows_of_any_shape() -> None:
    few = quantize(torch.randn(6, 32), 8, 32)
    rows = torch.randn(2, 3, 32)
    assert dequantized_linear(rows, few).shape == (2, 3, 6)
    assert torch.equal(dequantized_linear(rows, few)[1], dequantized_linear(rows[1], few))


def test_sums_are_those_that_were_asked_for() -> None:
    few = quantize(torch.randn(6, 32), 4, 32)
    asked = []

    def multiply(rows: torch.Tensor, weight: torch.Tensor, _bias: None) -> torch.Tensor:
        asked.append(weight.shape)
        return torch.zeros(len(rows), len(weight))

    assert dequantized_linear(torch.ones(2, 32), few, multiply).abs().max() == 0
    assert asked == [(6, 32)]


def test_another_width_is_refused() -> None:
    with pytest.raises(ValueError, match="rows has shape"):
        dequantized_linear(torch.ones(1, 33), quantize(torch.randn(6, 32), 8, 32))


def test_those_of_one_form_are_stacked() -> None:
    upper, lower = (quantize(torch.randn(rows, 64), 4, 32) for rows in (3, 5))
    assert torch.equal(stacked([upper, lower]).dequantized(), torch.cat((upper.dequantized(), lower.dequantized())))
    assert stacked([upper]) is upper
    without = QuantizedWeight(4, 32, lower.digits, lower.scales)
    for other in (quantize(torch.randn(5, 64), 8, 32), quantize(torch.randn(5, 64), 4, 64), without):
        with pytest.raises(ValueError, match="expected one"):
            stacked([upper, other])
