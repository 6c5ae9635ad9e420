"""Products on a CPU against float64, within what rounding can do; and rows that do not know of each other."""

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagedchat.ops.cpu.kernels import CpuKernels
from pagedchat.ops.cpu.linear import CpuLinear, objection_to
from pagedchat.ops.cpu.quantized_product import LONGEST_GROUP
from pagedchat.ops.quantized.weight import QuantizedWeight

ROUNDING = 2.0**-24
"""Relative error of a float32 operation."""
DENSE_SHAPES = [
    (1, 32, 16),
    (1, 33, 7),
    (3, 896, 50),
    (8, 70, 19),
    (13, 31, 1),
    (32, 1, 33),
    (5, 4864, 9),
    (23, 1700, 75),
]
"""Rows, width, columns."""
QUANTIZED_SHAPES = [(1, 32, 64, 7), (2, 16, 48, 33), (8, 128, 896, 40), (13, 64, 192, 16), (40, 32, 96, 1)]
"""Rows, group, width, columns."""
FORMATS = [(8, False), (8, True), (4, False), (4, True)]


def quantized(bits: int, group: int, columns: int, width: int, *, minimums: bool) -> QuantizedWeight:
    shape = (columns, width) if bits == 8 else (columns, width // 2)
    digits = torch.randint(-128, 128, shape, dtype=torch.int8)
    scales = (torch.rand(columns, width // group) * 0.01).half()
    least = torch.randn(columns, width // group).half() * 0.1 if minimums else None
    return QuantizedWeight(bits, group, digits if bits == 8 else digits.view(torch.uint8), scales, least)


def sums_of_sizes(rows: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """What errors of a product are measured by."""
    return rows.double().abs() @ weight.double().abs().T


def as_multiplied(kernels: CpuKernels, rows: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """With what some processors round inputs to."""
    is_rounded = dtype == torch.bfloat16 and kernels.target.multiplies_bf16
    return rows.bfloat16().float() if is_rounded else rows


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("num_rows", "width", "columns"), DENSE_SHAPES)
def test_dense_product_is_within_rounding(
    kernels: CpuKernels, num_rows: int, width: int, columns: int, dtype: torch.dtype, *, with_bias: bool
) -> None:
    torch.manual_seed(num_rows + width)
    weight, rows = torch.randn(columns, width).to(dtype), torch.randn(num_rows, width)
    bias = torch.randn(columns) if with_bias else None
    linear = CpuLinear(weight, bias, kernels=kernels)
    assert linear.by_kernels
    rows = as_multiplied(kernels, rows, dtype)
    exact = rows.double() @ weight.double().T + (0 if bias is None else bias.double())
    # A lane's chain of products, then four folds and the bias.
    steps = 2 * -(-width // 32) + 5
    bound = 1.01 * steps * ROUNDING * (sums_of_sizes(rows, weight) + (0 if bias is None else bias.abs()))
    assert ((linear(rows) - exact).abs() <= bound).all()


@pytest.mark.parametrize(("bits", "minimums"), FORMATS)
@pytest.mark.parametrize(("num_rows", "group", "width", "columns"), QUANTIZED_SHAPES)
def test_quantized_product_is_within_what_8_bits_of_its_inputs_cost(
    kernels: CpuKernels, num_rows: int, group: int, width: int, columns: int, bits: int, *, minimums: bool
) -> None:
    torch.manual_seed(num_rows + width)
    weight = quantized(bits, group, columns, width, minimums=minimums)
    dense, rows, bias = weight.dequantized(torch.float64), torch.randn(num_rows, width), torch.randn(columns)
    result = CpuLinear(weight, bias, kernels=kernels)(rows)
    exact = rows.double() @ dense.T + bias.double()
    # Each input is off by half a step of its group at most, and a step is a 127th of the group's largest one.
    steps = rows.abs().view(num_rows, -1, group).amax(dim=2).double() / 127
    sizes = dense.abs().view(columns, -1, group).sum(dim=2)
    of_inputs = 0.5 * steps @ sizes.T
    # Digits and minimums can cancel each other out in an element, but not in what is rounded.
    parts = weight.integers().abs().double().view(columns, -1, group) * weight.scales.double().unsqueeze(2)
    if weight.minimums is not None:
        parts = parts + weight.minimums.double().abs().unsqueeze(2)
    of_sums = 1.01 * (2 * width // group + 4) * ROUNDING * (sums_of_sizes(rows, parts.flatten(1)) + bias.abs())
    assert ((result - exact).abs() <= 1.001 * of_inputs + of_sums).all()


@pytest.mark.parametrize(("bits", "minimums"), FORMATS)
def test_inputs_that_are_whole_steps_cost_nothing(kernels: CpuKernels, bits: int, *, minimums: bool) -> None:
    weight = quantized(bits, 32, 21, 96, minimums=minimums)
    rows = torch.randint(-127, 128, (3, 96)).float()
    rows.view(3, -1, 32)[:, :, 0] = 127  # so that a step is 1
    exact = rows.double() @ weight.dequantized(torch.float64).T
    torch.testing.assert_close(CpuLinear(weight, kernels=kernels)(rows).double(), exact, rtol=1e-5, atol=1e-4)


@pytest.mark.parametrize("num_rows", [1, 2, 4, 9])
@pytest.mark.parametrize(("bits", "digit"), [(8, -128), (8, 127), (4, 0), (4, 15)])
@pytest.mark.parametrize("number", [-127, 127])
def test_largest_digits_times_largest_inputs_are_exact(
    kernels: CpuKernels, bits: int, digit: int, number: int, num_rows: int
) -> None:
    group, columns, width = 32, 20, 96
    digits = torch.full((columns, width), digit, dtype=torch.int8)
    if bits == 4:
        digits = torch.full((columns, width // 2), digit * 17, dtype=torch.uint8)
    weight = QuantizedWeight(bits, group, digits, torch.ones(columns, width // group).half())
    result = CpuLinear(weight, kernels=kernels)(torch.full((num_rows, width), float(number)))
    assert (result == width * number * (digit if bits == 8 else digit - 8)).all()


def test_scale_of_a_whole_row_gives_inputs_scales_of_shorter_groups(kernels: CpuKernels) -> None:
    weight = quantized(8, 896, 20, 896, minimums=False)
    linear = CpuLinear(weight, kernels=kernels)
    assert linear.product is not None
    assert linear.product.input_parts() > 896 // LONGEST_GROUP
    rows = torch.randn(2, 896)
    rows[:, 0] = 1e4  # which would leave nothing of the others, had they its scale
    exact = rows.double() @ weight.dequantized(torch.float64).T
    others = rows.double()[:, 64:] @ weight.dequantized(torch.float64).T[64:]
    first = rows.double()[:, :64] @ weight.dequantized(torch.float64).T[:64]
    assert ((linear(rows) - exact).abs() <= 0.02 * first.abs() + 0.02 * others.abs() + 3.0).all()


@pytest.mark.parametrize("kind", ["f32", "bf16", "int8", "int4", "int8_min", "int4_min"])
@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_row_is_the_same_alone_and_among_others(kernels: CpuKernels, kind: str, data: st.DataObject) -> None:
    torch.manual_seed(data.draw(st.integers(0, 1000)))
    width, columns = 16 * data.draw(st.integers(1, 20)), data.draw(st.integers(1, 70))
    num_rows = data.draw(st.integers(2, kernels.most_rows))
    if kind in ("f32", "bf16"):
        made = torch.randn(columns, width).to(torch.bfloat16 if kind == "bf16" else torch.float32)
        linear = CpuLinear(made, kernels=kernels)
    else:
        weight = quantized(int(kind[3]), 16, columns, width, minimums=kind.endswith("min"))
        linear = CpuLinear(weight, kernels=kernels)
    rows = torch.randn(num_rows, width) * torch.logspace(-2, 2, num_rows)[:, None]
    assert linear.product is not None
    together = linear._by_kernels(kernels, linear.product, rows)
    for row in range(num_rows):
        assert torch.equal(linear(rows[row : row + 1])[0], together[row])


@pytest.mark.parametrize(("bits", "minimums"), FORMATS)
@pytest.mark.parametrize("group", [16, 64, 192])
def test_packed_weight_is_the_weight(kernels: CpuKernels, bits: int, group: int, *, minimums: bool) -> None:
    weight = quantized(bits, group, 37, 192, minimums=minimums)
    product = CpuLinear(weight, kernels=kernels).product
    assert product is not None
    packed = product.weight
    assert not isinstance(packed, torch.Tensor)
    assert torch.equal(packed.floats(slice(0, 37), torch.float32), weight.dequantized())
    assert torch.equal(packed.floats(slice(16, 20), torch.float32), weight.dequantized()[16:20])


@pytest.mark.parametrize("kind", ["f32", "bf16", "int8", "int4_min"])
def test_torch_stands_behind_the_same_name(kernels: CpuKernels, kind: str) -> None:
    torch.manual_seed(1)
    if kind in ("f32", "bf16"):
        weight: torch.Tensor | QuantizedWeight = torch.randn(24, 64).to(
            getattr(torch, {"f32": "float32"}.get(kind, "bfloat16"))
        )
    else:
        weight = quantized(int(kind[3]), 32, 24, 64, minimums=kind.endswith("min"))
    rows, bias = torch.randn(3, 64), torch.randn(24)
    by_torch = CpuLinear(weight, bias, by_torch=True)
    assert not by_torch.by_kernels
    torch.testing.assert_close(CpuLinear(weight, bias, kernels=kernels)(rows), by_torch(rows), rtol=0.02, atol=0.1)


def test_results_have_the_type_of_the_rows(kernels: CpuKernels) -> None:
    linear = CpuLinear(torch.randn(8, 32).bfloat16(), kernels=kernels)
    assert linear(torch.randn(2, 32)).dtype == torch.float32
    assert linear(torch.randn(2, 32).bfloat16()).dtype == torch.bfloat16
    assert linear(torch.randn(40, 32).bfloat16()).dtype == torch.bfloat16
    assert linear(torch.randn(0, 32)).shape == (0, 8)


def test_what_kernels_do_not_take_goes_to_torch() -> None:
    assert objection_to(torch.ones(2, 2, dtype=torch.float16))
    odd = quantized(8, 12, 5, 24, minimums=False)
    assert objection_to(odd)
    rows = torch.randn(3, 24)
    torch.testing.assert_close(CpuLinear(odd)(rows), rows @ odd.dequantized().T)


def test_rows_of_another_width_are_refused(kernels: CpuKernels) -> None:
    with pytest.raises(ValueError, match=r"rows has shape \[2, 31\]"):
        CpuLinear(torch.randn(8, 32), kernels=kernels)(torch.randn(2, 31))


def test_what_is_no_number_stays_none(kernels: CpuKernels) -> None:
    rows = torch.zeros(2, 32)
    rows[0, 3], rows[1, 5] = float("nan"), float("inf")
    few = [quantized(bits, 32, 4, 32, minimums=minimums) for bits, minimums in FORMATS]
    for weight in (torch.ones(4, 32), torch.ones(4, 32).bfloat16(), *few):
        result = CpuLinear(weight, kernels=kernels)(rows)
        assert not result.isfinite().any()
        assert result[0].isnan().all()


@pytest.mark.parametrize(("bits", "minimums"), FORMATS)
def test_numbers_near_the_smallest_do_not_become_large(bits: int, minimums: bool, kernels: CpuKernels) -> None:
    weight = quantized(bits, 32, 4, 32, minimums=minimums)
    sums = weight.dequantized().abs().sum(dim=1)
    for largest in (1e-30, 1e-35, 3e-36, 9e-37, 3e-37, 1e-38, 1e-42):
        rows = torch.full((2, 32), largest)
        rows[1, 5:] = 0
        off = (
            CpuLinear(weight, kernels=kernels)(rows).double() - rows.double() @ weight.dequantized(torch.float64).T
        )
        assert bool((off.abs() <= (0.01 * largest + 1e-36) * sums).all()), largest
