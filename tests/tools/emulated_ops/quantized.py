"""Products with weights of few bits, and such weights in 16 bits."""

from functools import partial

import torch

from pagedchat.ops.quantized.dequantize import dequantize
from pagedchat.ops.quantized.few_bits_linear import few_bits_linear
from tests.ops.quantized.few_bits_case import FORMATS, small_weights_like_large, weight_of
from tests.tools.emulated_ops.op_case import BFLOAT, HALF, NOTHING, OpCase, Results, in_types
from tests.tools.emulated_ops.products import rows_of


def product(dtype: torch.dtype, *, form: str, num_rows: int, warpgroups: bool) -> Results:
    """Chunks that are not full, and rows of the weight that are no whole tile; with a bias and without."""
    weight = weight_of(*FORMATS[form], 131, 640, "cpu")
    rows = rows_of(num_rows, 640, dtype)
    bias = rows_of(1, 131, dtype)[0]
    with small_weights_like_large(warpgroups=warpgroups, most_rows=128):
        wider = rows.new_full((num_rows, 160), NOTHING)
        few_bits_linear(rows, weight, bias, out=wider[:, 16:147])
        return {
            "rows": few_bits_linear(rows, weight),
            "shifted": few_bits_linear(rows, weight, bias),
            "columns": wider,
        }


def in_16_bits(dtype: torch.dtype, *, form: str) -> Results:
    weight = weight_of(*FORMATS[form], 7, 384, "cpu")
    return {"weight": dequantize(weight, torch.full((7, 384), NOTHING, dtype=dtype))}


PRODUCTS = (
    ("few_bits_linear", "int8", 3),
    ("few_bits_linear", "int4", 40),
    ("few_bits_warpgroups", "fp8", 20),
    ("few_bits_warpgroups", "int4 in large groups", 70),
    ("lay_out_rows", "int8 in groups", 33),
)
CASES: list[OpCase] = [
    case
    for entry, form, num_rows in PRODUCTS
    for case in in_types(
        entry,
        partial(product, form=form, num_rows=num_rows, warpgroups=entry != "few_bits_linear"),
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
