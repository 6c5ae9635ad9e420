"""Products of many rows with weights in bfloat16 against float64, within what rounding can do; rows that know
of no other.
"""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from pagedchat.jit.cpu.cache import ObjectCache
from pagedchat.jit.cpu.pool import Program
from pagedchat.jit.cpu.target import host_target
from pagedchat.ops.cpu.kernels import CpuKernels, long_products_are_fast
from pagedchat.ops.cpu.linear import CpuLinear
from pagedchat.ops.cpu.product import Product, ProductInputs, Rows
from tests.jit.cpu.targets import ARM, AVX2, AVX512

ROUNDING = 2.0**-24
"""Relative error of a float32 operation."""
SHAPES = [(1, 32, 1), (7, 64, 16), (33, 544, 49), (256, 32, 48), (257, 1056, 97), (600, 512, 30)]
"""Rows, width, columns: around groups of 8 and of 6, tiles of 48 by 256 and panels of 512 and of 256."""


@pytest.fixture(scope="module", params=[AVX512, AVX2], ids=["wide registers", "narrow ones"])
def long_kernels(request: pytest.FixtureRequest) -> Iterator[CpuKernels]:
    host, target = host_target(), request.param
    if isinstance(host, str) or not target.features <= host.features:
        pytest.skip("no such processor")
    made = CpuKernels(target, 2, ObjectCache())
    yield made
    made.pool.close()


AMX = frozenset({"amx-bf16"})


def long_product(
    kernels: CpuKernels,
    weight: torch.Tensor,
    bias: torch.Tensor | None,
    rows: torch.Tensor,
    output: torch.Tensor | None = None,
) -> torch.Tensor:
    """By the kernel for many rows, however few there are; added to an output if there is one."""
    product, num_rows, width = Product(weight, bias), len(rows), weight.shape[1]
    result = torch.empty(num_rows, len(weight)) if output is None else output
    inputs = ProductInputs.for_rows(num_rows, width)
    inputs.numbers.view(torch.float32)[: rows.numel()] = rows.flatten()
    place = Rows(result.data_ptr(), result.shape[1])
    job = product._job_of_many(kernels, inputs, num_rows, place, adds=output is not None)
    program = Program(kernels.pool, [job])
    program.set_units(0, product.num_units(kernels, max(num_rows, kernels.most_rows + 1)))
    program.run()
    return result


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize(("num_rows", "width", "columns"), SHAPES)
def test_product_is_within_rounding(
    long_kernels: CpuKernels, num_rows: int, width: int, columns: int, *, with_bias: bool
) -> None:
    torch.manual_seed(num_rows + width)
    weight, rows = torch.randn(columns, width).bfloat16(), torch.randn(num_rows, width)
    bias = torch.randn(columns) if with_bias else None
    result = long_product(long_kernels, weight, bias, rows)
    exact = rows.double() @ weight.double().T + (0 if bias is None else bias.double())
    sizes = rows.double().abs() @ weight.double().abs().T + (0 if bias is None else bias.abs())
    assert ((result - exact).abs() <= 1.01 * (width + 1) * ROUNDING * sizes).all()


def test_row_is_the_same_alone_and_among_others(long_kernels: CpuKernels) -> None:
    weight, bias, rows = torch.randn(70, 544).bfloat16(), torch.randn(70), torch.randn(300, 544)
    together = long_product(long_kernels, weight, bias, rows)
    for start, stop in ((0, 1), (5, 38), (255, 258), (299, 300)):
        assert torch.equal(long_product(long_kernels, weight, bias, rows[start:stop]), together[start:stop])


def test_results_can_be_added_between_what_others_are(long_kernels: CpuKernels) -> None:
    weight, rows = torch.randn(50, 64).bfloat16(), torch.randn(40, 64)
    output = torch.randn(40, 60)
    before = output.clone()
    long_product(long_kernels, weight, None, rows, output)
    product = long_product(long_kernels, weight, None, rows)
    assert torch.equal(output[:, :50], product + before[:, :50])
    assert torch.equal(output[:, 50:], before[:, 50:])


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_layers_take_these_kernels_for_more_rows_than_the_others_are_for(
    long_kernels: CpuKernels, dtype: torch.dtype
) -> None:
    weight, bias = torch.randn(40, 64).bfloat16(), torch.randn(40)
    linear = CpuLinear(weight, bias, kernels=long_kernels)
    for num_rows in (long_kernels.most_rows + 1, long_kernels.most_rows, 300):
        assert linear.takes(num_rows)
        rows = torch.randn(num_rows, 64).to(dtype)
        if num_rows > long_kernels.most_rows:
            expected = long_product(long_kernels, weight, bias, rows.float()).to(dtype)
            assert torch.equal(linear(rows), expected)
        else:
            torch.testing.assert_close(
                linear(rows).float(), rows.float() @ weight.float().T + bias, rtol=0.01, atol=0.1
            )


def test_what_they_are_not_for_is_said(long_kernels: CpuKernels) -> None:
    assert "float32" in Product(torch.zeros(4, 32), None).objection_to_many(long_kernels)
    narrow = torch.zeros(4, 48, dtype=torch.bfloat16)
    assert "multiple of 32" in Product(narrow, None).objection_to_many(long_kernels)
    assert not CpuLinear(narrow, kernels=long_kernels).takes(long_kernels.most_rows + 1)


def test_processors_with_something_better_are_left_to_the_library() -> None:
    assert all(map(long_products_are_fast, (AVX512, AVX2, replace(AVX2, name="znver3"))))
    assert not long_products_are_fast(replace(AVX512, features=AVX512.features | AMX))
    assert not long_products_are_fast(replace(AVX512, name="znver4"))
    assert not long_products_are_fast(ARM)
