"""Which of the kernels' forms a weight of few bits has. Knows no kernel."""

import torch

from pagedchat.ops.quantized.weight import QuantizedWeight


def kind_of(weight: QuantizedWeight) -> str:
    """How its digits are stored, of `few_bits_plan.WEIGHT_KINDS`."""
    if weight.bits == 4:
        return "int4"
    return "int8" if weight.digits.dtype == torch.int8 else "fp8"


def scales_of(weight: QuantizedWeight) -> int:
    """The `SCALES` constant: 0 a scale a row, 1 one for each group, 2 with minimums."""
    if weight.minimums is not None:
        return 2
    return int(weight.group_size < weight.in_features)


def elements_of_piece(weight: QuantizedWeight) -> int:
    """Of 16 bytes as they are stored."""
    return 128 // weight.bits
