"""Products of 65 rows and more by tiles from tensor maps, against float64; on a CPU by the kernel itself."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest
import torch
from torch.nn import functional

from pagedchat.ops.products.wide_linear import launch_wide
from pagedchat.ops.products.wide_plan import WidePlan
from tests.ops.products.small_batch_case import DTYPES, allowed, error, normal
from tools.emulator.ops import kernels_on_cpu

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
PLANS = [
    ((70, 136, 72), WidePlan(128, 64, 0, 3, 1, 0)),  # one thread block, tiles that are not whole
    ((300, 200, 200), WidePlan(128, 64, 1, 3, 4, 0)),  # pairs of tiles of the same weights, one of them empty
    ((300, 200, 200), WidePlan(128, 96, 2, 2, 4, 0)),  # of the same tokens
    ((520, 136, 72), WidePlan(256, 64, 1, 2, 4, 0)),  # two products a warpgroup
    ((1100, 64, 72), WidePlan(128, 64, 0, 2, 5, 0)),  # more rows of tiles than take turns with the same weights
    ((300, 328, 200), WidePlan(128, 64, 1, 2, 6, 8)),  # all tiles cut into parts
    ((300, 328, 200), WidePlan(128, 64, 1, 2, 6, 5)),  # some, and whole ones beside them
    ((140, 320, 72), WidePlan(128, 64, 0, 2, 7, 4)),  # parts that begin and end within a tile
]
"""Tokens, inner dimension and columns, and how they are cut."""


@contextmanager
def kernels_on(device: str, seed: int) -> Iterator[None]:
    """On a CPU by the emulator, in the order of warps that `seed` gives."""
    with kernels_on_cpu(seed=seed) if device == "cpu" else nullcontext():
        yield


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("seed", [1, 4])
@pytest.mark.parametrize(("sizes", "plan"), PLANS, ids=str)
def test_every_way_in_which_tiles_are_shared_out(
    sizes: tuple[int, int, int], plan: WidePlan, seed: int, dtype: torch.dtype, device: str
) -> None:
    num_tokens, in_features, out_features = sizes
    rows = normal(num_tokens, in_features, device=device, dtype=dtype)
    weight = normal(out_features, in_features, device=device, dtype=dtype, scale=in_features**-0.5)
    bias = normal(out_features, device=device, dtype=dtype)
    output = normal(num_tokens, out_features, device=device, dtype=dtype, seed=3)
    product = rows.cpu().double() @ weight.cpu().double().T
    wanted = (product + bias.cpu().double()).relu() / 2 + output.cpu().double()

    with kernels_on(device, seed):
        launch_wide(output, rows, weight, bias, output, "relu", False, plan, residual_scale=0.5)

    assert error(output, wanted) < allowed(dtype)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "plan",
    [
        WidePlan(128, 64, 1, 2, 4, 0),
        WidePlan(128, 128, 2, 2, 4, 0),
        WidePlan(128, 64, 0, 2, 5, 6),
        WidePlan(256, 64, 0, 2, 2, 0),
    ],
    ids=str,
)
def test_gates_and_their_values(plan: WidePlan, device: str) -> None:
    rows = normal(140, 192, device=device, dtype=torch.float16)
    weight = normal(2 * 72, 192, device=device, dtype=torch.float16, scale=192**-0.5)
    gates, values = (rows.cpu().double() @ weight.cpu().double().T).chunk(2, dim=-1)
    output = rows.new_full((140, 72), float("nan"))

    with kernels_on(device, seed=2):
        launch_wide(output, rows, weight, None, None, "silu", True, plan)

    assert error(output, functional.silu(gates) * values) < 2 * allowed(torch.float16)


@pytest.mark.gpu
def test_the_same_bits_every_time_while_launches_overlap() -> None:
    weights = [normal(1152, 896, device="cuda", dtype=torch.float16, scale=0.03, seed=i) for i in range(4)]
    rows = normal(300, 896, device="cuda", dtype=torch.float16)
    plans = [
        WidePlan(128, 128, 1, 6, 36, 0),
        WidePlan(128, 64, 2, 8, 54, 0),
        WidePlan(256, 128, 1, 4, 18, 0),
        WidePlan(128, 192, 1, 5, 66, 12),
    ]
    outputs = [[rows.new_empty(300, 1152) for _ in weights] for _ in range(50)]

    for each in outputs:
        for output, weight, plan in zip(each, weights, plans, strict=True):
            launch_wide(output, rows, weight, None, None, "none", False, plan, overlap=True)

    for output, weight in zip(outputs[0], weights, strict=True):
        assert error(output, rows.cpu().double() @ weight.cpu().double().T) < allowed(torch.float16)
    assert all(torch.equal(a, b) for each in outputs for a, b in zip(each, outputs[0], strict=True))
