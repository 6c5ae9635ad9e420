"""Products of many rows with weights of 8 bits: the bits that few rows have, whatever the digits, and whoever is
beside them."""

from collections.abc import Iterator

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagedchat.jit.cpu.cache import ObjectCache
from pagedchat.jit.cpu.pool import Program
from pagedchat.jit.cpu.target import host_target
from pagedchat.ops.cpu.kernels import CpuKernels
from pagedchat.ops.cpu.linear import CpuLinear
from pagedchat.ops.cpu.many_bytes_product import has_many_bytes
from pagedchat.ops.cpu.product import ProductInputs, RowNorm, Rows, product_jobs
from pagedchat.ops.quantized.weight import QuantizedWeight
from tests.jit.cpu.targets import ARM, AVX2, AVX512, AVX_VNNI

SHAPES = [
    (33, 32, 32, 1), (34, 16, 48, 17), (35, 48, 96, 16), (257, 32, 1056, 40), (513, 64, 1152, 19),
    (40, 128, 2176, 33), (64, 2080, 2080, 50),
]  # fmt: skip
"""Rows, group, width, columns: around blocks of 4 rows, units of 256 by 16 and runs of 1024 elements."""


@pytest.fixture(scope="module")
def avx2() -> Iterator[CpuKernels]:
    host = host_target()
    if isinstance(host, str) or not AVX2.features <= host.features:
        pytest.skip("no such processor")
    made = CpuKernels(AVX2, 2, ObjectCache())
    yield made
    made.pool.close()


def some_weight(group: int, columns: int, width: int) -> QuantizedWeight:
    digits = torch.randint(-128, 128, (columns, width), dtype=torch.int8)
    return QuantizedWeight(8, group, digits, (torch.rand(columns, width // group) * 0.01).half())


def by_few(linear: CpuLinear, rows: torch.Tensor) -> torch.Tensor:
    return torch.cat([linear(some) for some in torch.split(rows, 7)])


@pytest.mark.parametrize("with_bias", [False, True])
@pytest.mark.parametrize(("num_rows", "group", "width", "columns"), SHAPES)
def test_many_rows_have_the_bits_of_few(
    avx2: CpuKernels, num_rows: int, group: int, width: int, columns: int, *, with_bias: bool
) -> None:
    torch.manual_seed(num_rows + width)
    linear = CpuLinear(
        some_weight(group, columns, width), torch.randn(columns) if with_bias else None, kernels=avx2
    )
    rows = torch.randn(num_rows, width) * torch.logspace(-3, 3, num_rows)[:, None]
    assert torch.equal(linear(rows), by_few(linear, rows))


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_extremes_of_digits_and_inputs_are_exact(avx2: CpuKernels, data: st.DataObject) -> None:
    torch.manual_seed(data.draw(st.integers(0, 1000)))
    group = data.draw(st.sampled_from([16, 32, 48, 64, 128]))
    width, columns = group * data.draw(st.integers(1, 3)), data.draw(st.integers(1, 40))
    num_rows = data.draw(st.integers(33, 70))
    digits = torch.tensor([-128, -127, -1, 0, 1, 127], dtype=torch.int8)[torch.randint(6, (columns, width))]
    rows = torch.tensor([-127.0, -1.0, 0.0, 1.0, 127.0])[torch.randint(5, (num_rows, width))]
    rows[:, ::group] = 127.0  # so that a step is 1
    linear = CpuLinear(QuantizedWeight(8, group, digits, torch.ones(columns, width // group).half()), kernels=avx2)
    assert torch.equal(linear(rows).double(), rows.double() @ digits.double().T)


@pytest.mark.parametrize("normed", [False, True])
def test_rows_that_lie_together_are_made_by_one_thread(avx2: CpuKernels, *, normed: bool) -> None:
    product = CpuLinear(some_weight(32, 20, 96), kernels=avx2).product
    assert product is not None
    rows, inputs = torch.randn(41, 96), ProductInputs.for_rows(41, 96)
    norm = RowNorm("rms", torch.ones(96), None, 1e-6) if normed else None
    job = product.input_job(avx2, "plain", Rows(rows.data_ptr(), 96), 41, inputs, norm)
    units_of_a_row = 1 if normed else 96 // 32
    assert (job.units, job.chunk) == (41 * units_of_a_row, 4 * units_of_a_row)


@pytest.mark.parametrize("number", [torch.nan, torch.inf])
def test_what_is_no_number_stays_in_its_row(avx2: CpuKernels, number: float) -> None:
    linear, rows = CpuLinear(some_weight(32, 20, 64), kernels=avx2), torch.randn(38, 64)
    rows[5, 40] = number
    result, others = linear(rows), torch.arange(38) != 5
    assert not result[5].isfinite().any()
    assert torch.equal(result[others], by_few(linear, rows[others]))


@pytest.mark.parametrize("adds", [False, True])
def test_results_go_side_by_side_and_nowhere_else(avx2: CpuKernels, *, adds: bool) -> None:
    torch.manual_seed(4)
    linears = [CpuLinear(some_weight(32, columns, 64), kernels=avx2) for columns in (21, 35)]
    products = [linear.product for linear in linears if linear.product is not None]
    rows, output = torch.randn(45, 64), torch.randn(47, 60)
    before, inputs = output.clone(), ProductInputs.for_rows(45, 64)
    place = Rows(output.data_ptr(), 60)
    jobs = product_jobs(avx2, products, Rows(rows.data_ptr(), 64), place, 45, inputs, adds=adds)
    assert [makes_inputs for makes_inputs, _ in jobs] == [True, False, False]
    Program(avx2.pool, [job for _, job in jobs]).run()
    expected = torch.cat([by_few(linear, rows) for linear in linears], dim=1)
    assert torch.equal(output[:45, :56], before[:45, :56] + expected if adds else expected)
    assert torch.equal(output[:45, 56:], before[:45, 56:])
    assert torch.equal(output[45:], before[45:])


def test_it_is_for_processors_without_sums_of_bytes() -> None:
    assert [has_many_bytes(each) for each in (AVX2, AVX_VNNI, AVX512, ARM)] == [True, False, False, False]
