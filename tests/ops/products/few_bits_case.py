"""Weights of few bits as tests of products take them."""

import torch

from pagedchat.ops.quantized.quantize import quantize
from pagedchat.ops.quantized.weight import QuantizedWeight, Weight

FORMS = (
    "int8", "int8, 64", "fp8", "fp8, 128", "int4, 128, minimums", "int4, 32, minimums", "int4, 64",
)  # fmt: skip
"""Kind, elements of a group (all of a row, if nothing is said), whether groups have minimums."""


def in_form(weight: torch.Tensor, form: str | None) -> Weight:
    """A weight in a form of `FORMS`, or as it is."""
    if form is None:
        return weight
    kind, *rest = form.split(", ")
    group_size = int(rest[0]) if rest else weight.shape[1]
    few = quantize(weight.float(), 4 if kind == "int4" else 8, group_size, floats=kind == "fp8")
    if few.minimums is None or "minimums" in rest:
        return few
    return QuantizedWeight(few.bits, few.group_size, few.digits, few.scales)


def exact_weight(weight: Weight) -> torch.Tensor:
    """In float64, on the CPU."""
    if isinstance(weight, QuantizedWeight):
        return weight.to(torch.device("cpu")).dequantized(torch.float64)
    return weight.cpu().double()
