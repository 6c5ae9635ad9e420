"""Products whose inner elements a cluster shares, as the op launches them."""

from functools import partial

import torch

from pagedchat.ops.products.warpgroup_linear import warpgroup_linear
from tests.ops.products.small_batch_case import normal
from tests.tools.emulated_ops.op_case import BFLOAT, HALF, OpCase, Results, in_types


def by_clusters(dtype: torch.dtype, *, paired: bool) -> Results:
    """Rows that do not fill the last tiles: a sum of few columns over many elements, and gates."""
    rows = normal(37, 584, device="cpu", dtype=dtype)
    weight = normal(144, 584, device="cpu", dtype=dtype, scale=584**-0.5)
    if paired:
        return {"rows": warpgroup_linear(rows, weight, activation="silu", paired=True)}
    bias, residual = (normal(*shape, device="cpu", dtype=dtype) for shape in ((136,), (37, 136)))
    return {"rows": warpgroup_linear(rows, weight[:136], bias=bias, residual=residual)}


CASES: list[OpCase] = [
    *in_types("cluster_linear", partial(by_clusters, paired=False), HALF),
    *in_types("cluster_linear", partial(by_clusters, paired=True), BFLOAT, about="gates"),
]
