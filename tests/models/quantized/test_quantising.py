"""Weights that are packed while they are quantised are those that are packed behind it."""

import pytest
import torch

from pagedchat.layers.linear import Linear
from pagedchat.layers.quantized_linear import QuantizedLinear
from pagedchat.layers.weights import new_tensors
from pagedchat.models.quantized.forms import Form
from pagedchat.models.quantized.quantising import Quantising
from pagedchat.ops.cpu.four_bits import FitFourBits
from pagedchat.ops.cpu.kernels import CpuKernels, cpu_kernels
from pagedchat.ops.cpu.packing import PackedWeight
from pagedchat.ops.quantized.quantize import quantize
from pagedchat.ops.quantized.weight import QuantizedWeight

WIDTH = 64


@pytest.fixture(scope="module")
def kernels() -> CpuKernels:
    found = cpu_kernels()
    if found is None:
        pytest.skip("no CPU kernels")
    return found


def product(num_rows: int) -> QuantizedLinear:
    with new_tensors(torch.float32, torch.device("meta")):
        linear = Linear(WIDTH, num_rows, bias=False)
    return QuantizedLinear(linear)


def filled(heights: list[int], forms: list[Form], kernels: CpuKernels | None, weight: torch.Tensor) -> list[object]:
    """The parts of a product whose parts come last first."""
    linear = product(len(weight))
    starts = [sum(heights[:i]) for i in range(len(heights))]
    quantising = Quantising({linear: forms}, {linear: set(starts)}, kernels)
    assert quantising.takes(linear)
    for start, height in sorted(zip(starts, heights, strict=True), reverse=True):
        quantising.add(linear, start, weight[start : start + height])
    return [*linear.parts]


def four_bits(kernels: CpuKernels) -> FitFourBits:
    return FitFourBits(kernels.address("fit_4_bits"))


@pytest.mark.parametrize("bits", [4, 8])
def test_parts_of_one_form_become_one_packed_weight(kernels: CpuKernels, bits: int) -> None:
    weight = torch.randn(48 + 16 + 21, WIDTH)
    [packed] = filled([48, 16, 21], [Form(85, bits, 32)], kernels, weight)
    assert isinstance(packed, PackedWeight)
    meant = quantize(weight, bits, 32, four_bits=four_bits(kernels)).dequantized()
    assert torch.equal(packed.floats(slice(0, 85), torch.float32), meant)


def test_each_form_has_a_packed_weight_whatever_parts_it_is_of(kernels: CpuKernels) -> None:
    weight = torch.randn(80, WIDTH)
    four, eight = filled([48, 32], [Form(64, 4, 32), Form(80, 8, 32)], kernels, weight)
    assert isinstance(four, PackedWeight)
    assert isinstance(eight, PackedWeight)
    assert (four.bits, eight.bits) == (4, 8)
    for packed, rows in ((four, weight[:64]), (eight, weight[64:])):
        meant = quantize(rows, packed.bits, 32, four_bits=four_bits(kernels)).dequantized()
        assert torch.equal(packed.floats(slice(0, len(rows)), torch.float32), meant)


@pytest.mark.parametrize("without", ["tiles", "kernels", "groups"])
def test_what_cannot_be_packed_on_the_way_stays_in_its_order(kernels: CpuKernels, without: str) -> None:
    heights = [20, 28] if without == "tiles" else [16, 32]
    weight, group = torch.randn(48, WIDTH), 8 if without == "groups" else 32
    [few] = filled(heights, [Form(48, 8, group)], None if without == "kernels" else kernels, weight)
    assert isinstance(few, QuantizedWeight)
    assert torch.equal(few.dequantized(), quantize(weight, 8, group).dequantized())


def test_numbers_that_are_not_finite_are_refused(kernels: CpuKernels) -> None:
    weight = torch.randn(32, WIDTH)
    weight[17, 3] = torch.inf
    with pytest.raises(ValueError, match="not finite"):
        filled([32], [Form(32, 8, 32)], kernels, weight)
