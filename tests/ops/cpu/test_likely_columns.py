"""Columns that may be the largest of a row: the largest is among them, however rounded, and they are few."""

import pytest
import torch

from pagedchat.jit.cpu.pool import Job, Program
from pagedchat.ops.cpu.bounded_copy import GROUP, BoundedCopy, CopyInMaking
from pagedchat.ops.cpu.kernels import CpuKernels
from pagedchat.ops.cpu.product import Product, ProductInputs, Rows, float_bits

COLUMNS = [5, 16, 100, 1000, 4097]
ROUNDED = 2.0**-8


def bounded_copy(weight: torch.Tensor, zero_of_8_bits: int) -> BoundedCopy:
    copy = CopyInMaking(weight, zero_of_8_bits).go_on(1 << 40)
    assert copy is not None
    return copy


def marked(kernels: CpuKernels, weight: torch.Tensor, rows: torch.Tensor, rounding: float) -> torch.Tensor:
    """Whether each column is, for each row: `[num_rows, num_columns]`."""
    copy, num_columns = bounded_copy(weight, kernels.zero_of_8_bits), len(weight)
    product = Product(copy.packed, None)
    found = []
    for row in rows:
        inputs, output = ProductInputs.for_rows(1, len(row)), torch.empty(1, num_columns)
        marks = torch.zeros(num_columns, dtype=torch.uint8)
        arguments = (
            output.data_ptr(), num_columns, num_columns, copy.lengths.data_ptr(),
            copy.lost.data_ptr(),
            inputs.numbers.data_ptr(), inputs.scales.data_ptr(), len(row), GROUP, float_bits(rounding),
            marks.data_ptr(),
        )  # fmt: skip
        jobs = [
            product.input_job(kernels, "plain", Rows(row.data_ptr(), len(row)), 1, inputs),
            product.job(kernels, inputs, 1, Rows(output.data_ptr(), num_columns)),
            Job(kernels.address("likely_columns"), 1, 1, arguments),
        ]
        Program(kernels.pool, jobs).run()
        found.append(marks.bool())
    return torch.stack(found)


@pytest.mark.parametrize("num_columns", COLUMNS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_largest_is_among_few(kernels: CpuKernels, num_columns: int, dtype: torch.dtype) -> None:
    torch.manual_seed(num_columns)
    weight, rows = (torch.randn(num_columns, 256) * 0.1).to(dtype), torch.randn(7, 256) * 3
    rows[0, 17] = 90.0  # one that is far larger than all others has its group rounded coarsely
    found = marked(kernels, weight, rows, ROUNDED)
    for inputs in (rows, rows.bfloat16().float()):
        exact = inputs.double() @ weight.double().T
        assert found.gather(1, exact.argmax(dim=1, keepdim=True)).all()
    if num_columns >= 1000:
        assert found[1:].sum() < 0.06 * found[1:].numel()


def test_columns_that_are_nearly_alike_are_all_marked(kernels: CpuKernels) -> None:
    torch.manual_seed(3)
    weight, row = torch.randn(400, 128), torch.randn(1, 128)
    weight[7] = weight[7] + 0.5 * row[0]  # the largest by far
    alike = list(range(40, 400, 23))
    weight[alike] = weight[7] + 1e-4 * torch.randn(len(alike), 128)
    assert marked(kernels, weight, row, 0.0)[0, alike].all()


def test_numbers_as_large_once_they_are_rounded_are_marked(kernels: CpuKernels) -> None:
    weight = torch.zeros(64, 64)
    weight[:, 0] = torch.linspace(0.99, 1.0, 64)
    row = torch.zeros(1, 64)
    row[0, 0] = 100.0
    exact = (row @ weight.T)[0].bfloat16()
    assert marked(kernels, weight, row, 0.0)[0, exact == exact.max()].all()


def test_what_is_off_is_within_its_bound_by_rows_that_make_the_most_of_it(kernels: CpuKernels) -> None:
    """Each row points the way in which a column has lost the most, and another is larger by less than that."""
    torch.manual_seed(5)
    weight = torch.randn(200, 64)
    copy = bounded_copy(weight, kernels.zero_of_8_bits)
    means = copy.packed.floats(slice(0, 200), torch.float32)
    assert (copy.lengths.double() >= means.double().norm(dim=1)).all()
    assert (copy.lost.double() >= (means.double() - weight.double()).norm(dim=1)).all()
    rows = (weight - means) * 100
    weight[199] = weight[:100].mean(dim=0)
    found = marked(kernels, weight, rows, 0.0)
    exact = rows.double() @ weight.double().T
    assert found.gather(1, exact.argmax(dim=1, keepdim=True)).all()


@pytest.mark.parametrize("number", [float("nan"), float("inf"), 3e19])
def test_all_columns_are_marked_where_bounds_are_no_numbers(kernels: CpuKernels, number: float) -> None:
    row = torch.zeros(1, 64)
    row[0, 1::2] = number
    assert marked(kernels, torch.randn(48, 64), row, 0.0).all()
