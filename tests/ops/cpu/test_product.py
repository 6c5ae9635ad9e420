"""Jobs of products that stand side by side: the bits of each alone, in rows that have more columns."""

import pytest
import torch

from pagedchat.jit.cpu.pool import Program
from pagedchat.ops.cpu.kernels import CpuKernels
from pagedchat.ops.cpu.linear import CpuLinear
from pagedchat.ops.cpu.product import ProductInputs, Rows, product_jobs
from pagedchat.ops.quantized.quantize import quantize

NUM_ROWS, WIDTH, ALL_COLUMNS = 5, 192, 100
FORMS = {"one": [(4, 32)], "same groups": [(4, 32), (8, 32)], "other groups": [(8, 192), (4, 32), (8, 48)]}


@pytest.mark.parametrize("adds", [False, True])
@pytest.mark.parametrize("forms", FORMS)
def test_parts_side_by_side(kernels: CpuKernels, forms: str, *, adds: bool) -> None:
    torch.manual_seed(3)
    linears = [
        CpuLinear(quantize(torch.randn(columns, WIDTH), bits, group), torch.randn(columns), kernels=kernels)
        for (bits, group), columns in zip(FORMS[forms], (37, 20, 21), strict=False)
    ]
    products = [linear.product for linear in linears if linear.product is not None]
    rows, output = torch.randn(NUM_ROWS, WIDTH), torch.randn(NUM_ROWS, ALL_COLUMNS)
    before = output.clone()
    inputs = ProductInputs.for_rows(NUM_ROWS, WIDTH)
    jobs = product_jobs(
        kernels, products, Rows(rows.data_ptr(), WIDTH), Rows(output.data_ptr(), ALL_COLUMNS), NUM_ROWS,
        inputs, adds=adds,
    )  # fmt: skip
    assert [makes_inputs for makes_inputs, _ in jobs].count(True) == (3 if forms == "other groups" else 1)
    Program(kernels.pool, [job for _, job in jobs]).run()
    expected = torch.cat([linear(rows) for linear in linears], dim=1)
    width = expected.shape[1]
    assert torch.equal(output[:, :width], before[:, :width] + expected if adds else expected)
    assert torch.equal(output[:, width:], before[:, width:])
