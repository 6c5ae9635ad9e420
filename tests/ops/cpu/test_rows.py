"""Rows on their way into products: norms and activations against float64, in each of the orders."""

from collections.abc import Callable

import pytest
import torch
from torch.nn import functional

from pagedchat.jit.cpu.pool import Program
from pagedchat.ops.cpu.kernels import CpuKernels
from pagedchat.ops.cpu.linear import CpuLinear
from pagedchat.ops.cpu.product import Product, ProductInputs, RowNorm, Rows
from pagedchat.ops.quantized.weight import QuantizedWeight

WIDTHS = [32, 33, 64, 96, 100, 7]
ACTIVATIONS: dict[str, Callable[[torch.Tensor], torch.Tensor]] = {
    "plain": lambda x: x,
    "silu": functional.silu,
    "gelu_tanh": lambda x: functional.gelu(x, approximate="tanh"),
    "relu": functional.relu,
    "relu2": lambda x: functional.relu(x).square(),
}


def product_of(kernels: CpuKernels, width: int, sink: str) -> Product:
    """With the unit matrix, so that its results are its inputs."""
    if sink == "int8":
        digits = torch.eye(width, dtype=torch.int8)
        weight: torch.Tensor | QuantizedWeight = QuantizedWeight(
            8, 32, digits, torch.ones(width, width // 32).half()
        )
    else:
        weight = torch.eye(width, dtype={"f32": torch.float32, "bf16": torch.bfloat16}[sink])
    product = CpuLinear(weight, kernels=kernels).product
    assert product is not None
    return product


def through(
    kernels: CpuKernels, product: Product, source: str, rows: torch.Tensor, norm: RowNorm | None = None
) -> torch.Tensor:
    inputs = ProductInputs.for_rows(len(rows), product.in_features)
    output = torch.full((len(rows), product.out_features), 9.0)
    place, from_rows = Rows(output.data_ptr(), output.shape[1]), Rows(rows.data_ptr(), rows.shape[1])
    jobs = [
        product.input_job(kernels, source, from_rows, len(rows), inputs, norm),
        product.job(kernels, inputs, len(rows), place),
    ]
    Program(kernels.pool, jobs).run()
    return output


def cases() -> list[tuple[str, int]]:
    return [
        (sink, width) for sink in ("f32", "bf16", "int8") for width in WIDTHS if sink != "int8" or not width % 32
    ]


def assert_same(kernels: CpuKernels, sink: str, found: torch.Tensor, expected: torch.Tensor) -> None:
    """As far as 8 bits of a group go, or bfloat16 where the processor multiplies it."""
    if sink != "int8":
        is_rounded = sink == "bf16" and kernels.target.multiplies_bf16
        torch.testing.assert_close(found.double(), expected, rtol=2.0**-8 if is_rounded else 2e-6, atol=2e-6)
        return
    steps = expected.view(len(expected), -1, 32).abs().amax(dim=2, keepdim=True) / 127
    off = (found.double() - expected).view(len(expected), -1, 32).abs()
    assert (off <= 0.502 * steps + 1e-6).all()


@pytest.mark.parametrize("name", ACTIVATIONS)
@pytest.mark.parametrize(("sink", "width"), cases())
@pytest.mark.parametrize("gated", [False, True])
def test_activations(kernels: CpuKernels, name: str, sink: str, width: int, *, gated: bool) -> None:
    if name == "plain" and gated:
        pytest.skip("nothing to gate with")
    torch.manual_seed(width)
    rows = torch.randn(11, width * (2 if gated else 1)) * 4
    rows[0, :3] = torch.tensor([-200.0, 200.0, 0.0])
    expected = ACTIVATIONS[name](rows[:, :width].double())
    expected = expected * rows[:, width:].double() if gated else expected
    source = f"{name}_gated" if gated else name
    assert_same(kernels, sink, through(kernels, product_of(kernels, width, sink), source, rows), expected)


@pytest.mark.parametrize("kind", ["rms", "layer"])
@pytest.mark.parametrize(("sink", "width"), cases())
@pytest.mark.parametrize("with_bias", [False, True])
def test_norms(kernels: CpuKernels, kind: str, sink: str, width: int, *, with_bias: bool) -> None:
    torch.manual_seed(width)
    rows, weight = torch.randn(9, width) * 3 + 1, torch.randn(width)
    bias = torch.randn(width) if with_bias else None
    exact = rows.double()
    if kind == "layer":
        expected = functional.layer_norm(exact, (width,), weight.double(), None, 1e-5)
    else:
        expected = functional.rms_norm(exact, (width,), weight.double(), 1e-5)
    expected = expected if bias is None else expected + bias.double()
    norm = RowNorm(kind, weight, bias, 1e-5)
    assert_same(kernels, sink, through(kernels, product_of(kernels, width, sink), "plain", rows, norm), expected)


def test_group_of_zeros_stays_zero(kernels: CpuKernels) -> None:
    rows = torch.zeros(1, 64)
    rows[0, 40] = 3.0
    assert torch.equal(through(kernels, product_of(kernels, 64, "int8"), "plain", rows), rows)
