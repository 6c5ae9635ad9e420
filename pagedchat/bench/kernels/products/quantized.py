"""`few_bits_linear`, beside cuBLAS with the same weight in 16 bits and beside what torch has for few bits."""

from collections.abc import Sequence

import torch
from torch.nn import functional

from pagedchat.bench.kernels.figures import OURS, Bench, Contender, Figure, Work, relative_error
from pagedchat.bench.kernels.products.invariant import CUBLAS
from pagedchat.bench.kernels.products.shapes import QUANTIZED, QuantizedShape
from pagedchat.bench.kernels.random_cache import DEVICE, num_rotated_sets, random_tensor
from pagedchat.bench.kernels.timing import Call
from pagedchat.ops.quantized.few_bits_linear import few_bits_linear
from pagedchat.ops.quantized.weight import FP8, QuantizedWeight

PACKED = "torch packed"
_INNER_TILES = 8
"""Of torch's 4-bit product."""


def measure_quantized(bench: Bench, shapes: Sequence[QuantizedShape] = QUANTIZED) -> list[Figure]:
    """At every shape."""
    return [figure for shape in shapes for figure in _measure(bench, shape)]


def _measure(bench: Bench, shape: QuantizedShape) -> list[Figure]:
    inputs = QuantizedInputs(shape)
    work = Work(
        section="quantized",
        shape=str(shape),
        moved_bytes=shape.moved_bytes,
        limit_gb_s=bench.limits.copy,
        flops=shape.flops,
    )
    contenders = [Contender(name=OURS, prepare=inputs.calls, check=inputs.check)]
    if "torch" in bench.peers:
        contenders.append(Contender(name=CUBLAS, prepare=inputs.cublas_calls, check=inputs.check))
        if shape.kind != "fp8":
            packed = inputs.int4_calls if shape.bits == 4 else inputs.int8_calls
            contenders.append(Contender(name=PACKED, prepare=packed, check=inputs.check))
    return bench.run(work, contenders)


class QuantizedInputs:
    """Rows, and several weights of random digits."""

    def __init__(self, shape: QuantizedShape) -> None:
        self.shape = shape
        self.rows = random_tensor(shape.num_rows, shape.in_features)
        self.weights = [_weight(shape) for _ in range(num_rotated_sets(shape.weight_bytes))]

    def calls(self) -> list[Call]:
        """By the kernel, which may begin while the one before still runs, as in a step."""
        return [
            lambda weight=weight: few_bits_linear(self.rows, weight, overlap=True)  # type: ignore[misc]
            for weight in self.weights
        ]

    def cublas_calls(self) -> list[Call]:
        """By the library, with as many weights in 16 bits as are needed."""
        num_sets = num_rotated_sets(2 * self.shape.in_features * self.shape.out_features)
        wide = [weight.dequantized(self.rows.dtype) for weight in self.weights[:num_sets]]
        return [lambda weight=weight: functional.linear(self.rows, weight) for weight in wide]  # type: ignore[misc]

    def int4_calls(self) -> list[Call]:
        """By torch's own 4-bit product, which takes bfloat16, and digits and scales in orders of its own."""
        rows, group = self.rows.bfloat16(), self.shape.group
        both = [_as_packed(weight) for weight in self.weights]
        return [
            lambda digits=digits, scales=scales: torch._weight_int4pack_mm(rows, digits, group, scales)  # type: ignore[misc]
            for digits, scales in both
        ]

    def int8_calls(self) -> list[Call]:
        """By torch's own product with a scale a row."""
        scales = [weight.scales.flatten().to(self.rows.dtype) for weight in self.weights]
        return [
            lambda weight=weight, of=of: torch._weight_int8pack_mm(self.rows, weight.digits, of)  # type: ignore[misc]
            for weight, of in zip(self.weights, scales, strict=True)
        ]

    def check(self, calls: Sequence[Call]) -> float:
        """Of the first weight."""
        found = calls[0]()
        if not isinstance(found, torch.Tensor):
            return float("nan")
        return relative_error(found, self.rows.double() @ self.weights[0].dequantized().double().T)


def _as_packed(weight: QuantizedWeight) -> tuple[torch.Tensor, torch.Tensor]:
    """Digits, and scales with minimums, as torch's own 4-bit product takes them."""
    assert weight.minimums is not None  # noqa: S101 - as they were made
    digits = torch._convert_weight_to_int4pack(weight.digits << 4 | weight.digits >> 4, _INNER_TILES)
    return digits, torch.stack((weight.scales.T, weight.minimums.T), dim=-1).bfloat16().contiguous()


def _weight(shape: QuantizedShape) -> QuantizedWeight:
    """So that products are around one."""
    num_groups = shape.in_features // (shape.group or shape.in_features)
    digits = _digits(shape)
    spread = {"int8": 73.0, "fp8": 1.0, "int4": 4.6}[shape.kind] * shape.in_features**0.5
    scales = (torch.rand(shape.out_features, num_groups, device=DEVICE) + 0.5).div(spread).half()
    minimums = scales / 2 if shape.kind == "int4" else None
    return QuantizedWeight(shape.bits, shape.in_features // num_groups, digits, scales, minimums)


def _digits(shape: QuantizedShape) -> torch.Tensor:
    size = (shape.out_features, shape.in_features * shape.bits // 8)
    if shape.kind == "fp8":
        return torch.randn(size, device=DEVICE).to(FP8)
    low, high, dtype = (0, 256, torch.uint8) if shape.kind == "int4" else (-127, 128, torch.int8)
    return torch.randint(low, high, size, dtype=dtype, device=DEVICE)
