"""Gates and values of 65 rows and more, tiles by tensor maps, against float64; on a CPU by the kernel itself."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional

from pagedchat.jit.driver import Gpu
from pagedchat.ops.products.many_rows_plan import plan_many_rows
from pagedchat.ops.products.wide_gates import launch_wide_gates
from pagedchat.ops.products.wide_plan import WidePlan, plan_wide
from tests.ops.products.small_batch_case import DTYPES, allowed, error, normal
from tools.emulator.ops import kernels_on_cpu

LIMIT = 227 << 10
H200 = Gpu(0, "NVIDIA H200", (9, 0), 140 << 30, 132, LIMIT)
DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
ORDERS = [
    ("cpu", torch.float16, 1),
    ("cpu", torch.bfloat16, 4),
    *(pytest.param("cuda", dtype, 0, marks=pytest.mark.gpu) for dtype in DTYPES),
]
"""Devices, types, and on a CPU the order of warps."""
PLANS = [
    ((70, 136, 72), WidePlan(128, 64, 2, False, 3, 4)),  # tiles that are not whole, one that is empty
    ((300, 200, 72), WidePlan(128, 64, 1, False, 3, 4)),  # pairs of tiles of the same weights
    ((300, 200, 104), WidePlan(128, 64, 1, True, 4, 4)),  # two tiles each, or one
    ((140, 136, 136), WidePlan(128, 128, 2, True, 3, 2)),  # an odd number of tiles, chunks that are no whole rings
    ((520, 72, 40), WidePlan(256, 64, 1, False, 3, 2)),  # two products a warpgroup
    ((2200, 64, 40), WidePlan(128, 64, 1, True, 5, 6)),  # more rows of tiles than take turns with the same weights
]
"""Tokens, inner dimension and columns, and how they are cut."""


@contextmanager
def kernels_on(device: str, seed: int) -> Iterator[None]:
    """On a CPU by the emulator, in the order of warps that `seed` gives."""
    with kernels_on_cpu(seed=seed) if device == "cpu" else nullcontext():
        yield


@pytest.mark.parametrize(("device", "dtype", "seed"), ORDERS, ids=str)
@pytest.mark.parametrize(("sizes", "plan"), PLANS, ids=str)
def test_every_way_in_which_tiles_are_shared_out(
    sizes: tuple[int, int, int], plan: WidePlan, seed: int, dtype: torch.dtype, device: str
) -> None:
    num_tokens, in_features, out_features = sizes
    rows = normal(num_tokens, in_features, device=device, dtype=dtype)
    weight = normal(2 * out_features, in_features, device=device, dtype=dtype, scale=in_features**-0.5)
    gates, values = (rows.cpu().double() @ weight.cpu().double().T).chunk(2, dim=-1)
    output = rows.new_full((num_tokens, out_features), float("nan"))

    with kernels_on(device, seed):
        launch_wide_gates(output, rows, weight, "silu", plan)

    assert error(output, functional.silu(gates) * values) < allowed(dtype)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_the_same_bits_every_time_while_launches_overlap(dtype: torch.dtype) -> None:
    weights = [normal(2 * 1152, 896, device="cuda", dtype=dtype, scale=0.03, seed=i) for i in range(4)]
    rows = normal(900, 896, device="cuda", dtype=dtype)
    plans = [
        WidePlan(128, 128, 1, False, 6, 132),
        WidePlan(128, 192, 2, True, 5, 36),
        WidePlan(256, 128, 1, False, 4, 18),
        WidePlan(128, 64, 1, True, 8, 132),
    ]
    outputs = [[rows.new_empty(900, 1152) for _ in weights] for _ in range(50)]

    for each in outputs:
        for output, weight, plan in zip(each, weights, plans, strict=True):
            launch_wide_gates(output, rows, weight, "silu", plan, overlap=True)

    for output, weight in zip(outputs[0], weights, strict=True):
        gates, values = (rows.cpu().double() @ weight.cpu().double().T).chunk(2, dim=-1)
        assert error(output, functional.silu(gates) * values) < allowed(dtype)
    assert all(torch.equal(a, b) for each in outputs for a, b in zip(each, outputs[0], strict=True))


@given(
    in_features=st.integers(1, 2_000).map(lambda pieces: 8 * pieces),
    out_features=st.integers(1, 4_000).map(lambda pieces: 8 * pieces),
    num_tokens=st.integers(65, 40_000),
    num_multiprocessors=st.integers(2, 200),
)
def test_a_plan_fits_into_shared_memory_and_gives_every_cluster_a_tile(
    in_features: int, out_features: int, num_tokens: int, num_multiprocessors: int
) -> None:
    plan = plan_wide(in_features, out_features, num_tokens, num_multiprocessors, LIMIT)

    assert plan is not None
    assert plan.shared_bytes <= LIMIT
    tiles = -(-num_tokens // plan.tokens) * -(-2 * out_features // plan.sums)
    assert plan.num_blocks % 2 == 0
    assert 2 <= plan.num_blocks <= min(num_multiprocessors, 2 * tiles)


def test_what_the_kernel_cannot_do_has_no_plan() -> None:
    assert plan_wide(100, 512, 1536, 132, LIMIT) is None
    assert plan_wide(128, 500, 1536, 132, LIMIT) is None
    assert plan_wide(128, 512, 1536, 132, 40 << 10) is None
    assert plan_wide(128, 512, 1536, 1, LIMIT) is None


def test_the_tiles_are_those_that_were_quickest() -> None:
    assert plan_wide(896, 4864, 1536, 132, LIMIT) == WidePlan(128, 128, 1, True, 6, 132)
    assert plan_wide(2048, 6144, 1536, 132, LIMIT) == WidePlan(128, 192, 1, True, 5, 132)
    assert plan_wide(2048, 6144, 256, 132, LIMIT) == WidePlan(128, 192, 1, False, 5, 128)
    assert plan_wide(2048, 8192, 256, 132, LIMIT) == WidePlan(128, 256, 1, False, 4, 128)


def test_gates_of_many_rows_are_ours_and_plain_products_a_librarys() -> None:
    def kind(num_tokens: int, paired: bool, gpu: Gpu = H200) -> type:
        return type(plan_many_rows(2048, 6144, num_tokens, paired=paired, gpu=gpu))

    assert kind(1536, True) is WidePlan
    assert kind(256, True) is WidePlan
    assert kind(64, True) is not WidePlan
    assert kind(1536, False) is type(None)
    large = 4096, 14_336
    assert plan_many_rows(*large, 384, paired=True, gpu=H200) is None
    for num_tokens in (256, 512, 1536):
        assert isinstance(plan_many_rows(*large, num_tokens, paired=True, gpu=H200), WidePlan)
    assert kind(1536, True, replace(H200, compute_capability=(8, 0))) is type(None)
