"""Products with weights of few bits, and such weights in 16 bits."""

from functools import partial

import torch

from pagedchat.ops.quantized.dequantize import dequantize
from pagedchat.ops.quantized.few_bits_linear import few_bits_linear
from tests.ops.quantized.few_bits_case import FORMATS, weight_of
from tests.tools.emulated_ops.op_case import BFLOAT, HALF, NOTHING, OpCase, Results, in_types
from tests.tools.emulated_ops.products import rows_of


def product(dtype: torch.dtype, *, form: str, num_rows: int) -> Results:
    """Chunks that are not full, and rows of the weight that are no whole tile; with a bias and without."""
    weight = weight_of(*FORMATS[form], 131, 640, "cpu")
    rows = rows_of(num_rows, 640, dtype)
    return {
        "rows": few_bits_linear(rows, weight),
        "shifted": few_bits_linear(rows, weight, rows_of(1, 131, dtype)[0]),
    }


def in_16_bits(dtype: torch.dtype, *, form: str) -> Results:
    weight = weight_of(*FORMATS[form], 7, 384, "cpu")
    return {"weight": dequantize(weight, torch.full((7, 384), NOTHING, dtype=dtype))}


CASES: list[OpCase] = [
    case
    for form, num_rows in (("int8", 3), ("fp8", 20), ("int4", 40), ("int4 in large groups", 70))
    for case in in_types(
        "few_bits_linear",
        partial(product, form=form, num_rows=num_rows),
        HALF,
        BFLOAT,
        about=f"{form}, {num_rows} rows",
    )
]
CASES += [
    case
    for form in ("int8 in groups", "fp8", "int4")
    for case in in_types("dequantize", partial(in_16_bits, form=form), HALF, BFLOAT, exact=True, about=form)
]
