"""The kernels for weights of few bits for `sanitize_kernels`, which says how they are checked."""

# mypy: disable-error-code="arg-type,call-arg,attr-defined,misc"

import torch

from pagedchat.ops.products.warpgroup_linear import side_by_side, warpgroup_linear
from pagedchat.ops.quantized.dequantize import dequantize
from pagedchat.ops.quantized.few_bits_linear import few_bits_linear
from pagedchat.ops.quantized.quantize import quantize
from pagedchat.ops.quantized.weight import FP8, QuantizedWeight
from tools.sanitize_case import Tensors, on_both, random_tensor

WIDTH, OUTPUTS = 896, 304


def quantized_cases() -> list[bool]:
    """Each kind of digits, with as many rows as one launch has and as several have."""
    return [result for bits, group in ((8, WIDTH), (8, 32), (4, 32)) for result in _cases(bits, group)] + _fp8()


def _cases(bits: int, group: int) -> list[bool]:
    few = quantize(random_tensor(OUTPUTS, WIDTH).float() / 30, bits, group)
    minimums = torch.zeros_like(few.scales) if few.minimums is None else few.minimums
    return _both(f"{bits} bits in groups of {group}", bits, [few.digits, few.scales, minimums])


def _fp8() -> list[bool]:
    digits = random_tensor(OUTPUTS, WIDTH).to(FP8)
    scales = torch.full((OUTPUTS, 1), 0.03, dtype=torch.float16)
    return _both("fp8", 8, [digits, scales, torch.zeros_like(scales)])


def _both(about: str, bits: int, parts: Tensors) -> list[bool]:
    def product(t: Tensors) -> Tensors:
        weight = _weight(bits, t[2:])
        return [few_bits_linear(rows, weight, t[1]) for rows in (t[0][:1], t[0][:20], t[0])]

    def in_16_bits(t: Tensors) -> Tensors:
        weight = _weight(bits, t[2:])
        return [dequantize(weight, torch.empty(OUTPUTS, WIDTH, dtype=t[0].dtype, device=t[0].device))]

    def by_clusters(t: Tensors) -> Tensors:
        weight, rows = _weight(bits, t[2:]), t[0][:40]
        added = warpgroup_linear(rows, weight, bias=t[1], residual=rows[:, :OUTPUTS].contiguous())
        both = rows.new_zeros(len(rows), 2 * OUTPUTS)
        side_by_side(rows, [(weight, t[1]), (weight, None)], both)
        return [added, warpgroup_linear(rows[:16], weight, activation="silu", paired=True), both]

    inputs = [random_tensor(70, WIDTH), random_tensor(OUTPUTS), *parts]
    return [
        on_both(f"few_bits_linear, {about}", inputs, product),
        on_both(f"dequantize, {about}", inputs, in_16_bits),
        on_both(f"products of a dozen rows, {about}", inputs, by_clusters),
    ]


def _weight(bits: int, parts: Tensors) -> QuantizedWeight:
    digits, scales, minimums = parts
    return QuantizedWeight(bits, WIDTH // scales.shape[1], digits, scales, minimums if bits == 4 else None)
