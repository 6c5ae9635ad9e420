"""Products of many rows in bfloat16 against float64, within what rounding can do; rows that know of no other."""

from collections.abc import Iterator
from dataclasses import replace

import pytest
import torch

from pagedchat.jit.cpu.cache import ObjectCache
from pagedchat.jit.cpu.target import host_target
from pagedchat.ops.cpu.kernels import CpuKernels, long_products_are_fast
from pagedchat.ops.cpu.linear import CpuLinear
from pagedchat.ops.cpu.long_linear import LongLinear, objection_to
from tests.jit.cpu.targets import ARM, AVX2, AVX512

ROUNDING, HALF_A_STEP = 2.0**-24, 2.0**-8
"""Relative errors: of a float32 operation, and of what is rounded to bfloat16."""
SHAPES = [(1, 32, 1), (7, 64, 16), (33, 544, 49), (256, 32, 48), (257, 1056, 97), (600, 512, 30)]
"""Rows, width, columns: around groups of 8, tiles of 48 by 256 and panels of 512."""


@pytest.fixture(scope="module")
def long_kernels() -> Iterator[CpuKernels]:
    host = host_target()
    if isinstance(host, str) or not long_products_are_fast(replace(host, name="x", features=host.features - AMX)):
        pytest.skip("no processor with AVX-512")
    made = CpuKernels(replace(host, features=host.features - AMX), 2, ObjectCache())
    if not made.has_long_products:
        pytest.skip("a processor that has something better")
    yield made
    made.pool.close()


AMX = frozenset({"amx-bf16"})


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize(("num_rows", "width", "columns"), SHAPES)
def test_product_is_within_rounding(
    long_kernels: CpuKernels, num_rows: int, width: int, columns: int, *, with_bias: bool
) -> None:
    torch.manual_seed(num_rows + width)
    weight, rows = (torch.randn(count, width).bfloat16() for count in (columns, num_rows))
    bias = torch.randn(columns) if with_bias else None
    result = LongLinear(weight, bias, long_kernels)(rows)
    exact = rows.double() @ weight.double().T + (0 if bias is None else bias.double())
    sizes = rows.double().abs() @ weight.double().abs().T + (0 if bias is None else bias.abs())
    bound = 1.01 * (HALF_A_STEP * exact.abs() + width * ROUNDING * sizes)
    assert result.dtype == torch.bfloat16
    assert ((result.double() - exact).abs() <= bound).all()


def test_row_is_the_same_alone_and_among_others(long_kernels: CpuKernels) -> None:
    linear = LongLinear(torch.randn(70, 544).bfloat16(), torch.randn(70), long_kernels)
    rows = torch.randn(300, 544).bfloat16()
    together = linear(rows)
    for start, stop in ((0, 1), (5, 38), (255, 258), (299, 300)):
        assert torch.equal(linear(rows[start:stop]), together[start:stop])


def test_results_are_rounded_to_even_and_what_is_no_number_stays_so(long_kernels: CpuKernels) -> None:
    numbers = torch.tensor([1 + 2.0**-8, 1 + 3 * 2.0**-8, torch.inf, -torch.inf, torch.nan, 0.0, -1e-30, 3.4e38])
    linear = LongLinear(torch.zeros(8, 32, dtype=torch.bfloat16), numbers, long_kernels)
    result = linear(torch.ones(2, 32, dtype=torch.bfloat16))
    torch.testing.assert_close(result[1], numbers.bfloat16(), rtol=0, atol=0, equal_nan=True)


def test_layers_take_these_kernels_for_more_rows_than_the_others_are_for(long_kernels: CpuKernels) -> None:
    weight, rows = torch.randn(40, 64).bfloat16(), torch.randn(50, 64).bfloat16()
    linear = CpuLinear(weight, kernels=long_kernels)
    assert linear.most_rows is None
    assert torch.equal(linear(rows), LongLinear(weight, None, long_kernels)(rows))


def test_what_they_are_not_for_is_said(long_kernels: CpuKernels) -> None:
    assert "float32" in objection_to(torch.zeros(4, 32), long_kernels)
    assert "multiple of 32" in objection_to(torch.zeros(4, 48, dtype=torch.bfloat16), long_kernels)
    assert not objection_to(torch.zeros(4, 64, dtype=torch.bfloat16), long_kernels)


def test_processors_with_something_better_are_left_to_the_library() -> None:
    assert long_products_are_fast(AVX512)
    assert not long_products_are_fast(replace(AVX512, features=AVX512.features | AMX))
    assert not long_products_are_fast(replace(AVX512, name="znver4"))
    assert not any(map(long_products_are_fast, (AVX2, ARM)))
