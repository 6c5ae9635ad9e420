"""Products whose inner elements a cluster shares, cut as no plan cuts them yet."""

from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial

import pytest
import torch

from pagedchat.ops.clusters.cluster_plan import ClusterPlan
from pagedchat.ops.products import warpgroup_linear as products
from tests.ops.products.small_batch_case import make_norm, normal
from tests.tools.emulated_ops.op_case import BFLOAT, HALF, OpCase, Results, in_types


@contextmanager
def cut_by(plan: ClusterPlan) -> Iterator[None]:
    """All products of warpgroups."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(products, "plan_many_rows", lambda *_sizes, **_: plan)
        yield


def two_products(dtype: torch.dtype, *, plan: ClusterPlan, kind: str) -> Results:
    """A way down that adds to a residual stream, and gates of its rows, normed; neither fills its last tiles."""
    rows, stream = (normal(21, width, device="cpu", dtype=dtype) for width in (328, 200))
    bias = normal(200, device="cpu", dtype=dtype)
    down = normal(200, 328, device="cpu", dtype=dtype, scale=328**-0.5)
    up = normal(2 * 72, 200, device="cpu", dtype=dtype, scale=200**-0.5)
    with cut_by(plan):
        squares = products.add_product(stream, rows, down, bias)
        norm = make_norm(kind, 200, "cpu", dtype)
        gated = products.warpgroup_linear(stream, up, norm=norm, squares=squares, activation="silu", paired=True)
    return {"stream": stream, "gated": gated}


CASES: list[OpCase] = [
    *in_types("cluster_linear", partial(two_products, plan=ClusterPlan(32, 2, 4, 1, 3, 2), kind="rms"), HALF),
    *in_types(
        "cluster_linear",
        partial(two_products, plan=ClusterPlan(32, 1, 2, 2, 3, 2), kind="offset rms"),
        BFLOAT,
        about="tokens shared",
    ),
]
