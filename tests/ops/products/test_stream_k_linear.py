"""Products whose weight streams through all multiprocessors, against float64; on a CPU by the kernel itself."""

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
from pagedchat.ops.products.stream_k_linear import launch_stream_k
from pagedchat.ops.products.stream_k_plan import ROWS, TOKEN_COUNTS, StreamKPlan, plan_stream_k
from pagedchat.ops.products.warpgroup_plan import WarpgroupPlan
from pagedchat.ops.products.wide_plan import WidePlan
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
SHARES = [
    (16, 256, 128, 3),  # one tile, three thread blocks
    (20, 320, 512, 5),  # four tiles and five thread blocks: each begins somewhere in a tile
    (64, 320, 264, 7),  # the last tile has eight rows
    (33, 128, 640, 2),  # whole tiles beside parts
    (9, 1024, 72, 16),  # one chunk a thread block
]
"""Tokens, inner dimension, columns, thread blocks."""


@contextmanager
def kernels_on(device: str, seed: int) -> Iterator[None]:
    """On a CPU by the emulator, in the order of warps that `seed` gives."""
    with kernels_on_cpu(seed=seed) if device == "cpu" else nullcontext():
        yield


def plan_of(in_features: int, out_features: int, num_tokens: int, paired: bool, num_blocks: int) -> StreamKPlan:
    plan = plan_stream_k(in_features, out_features, num_tokens, paired, 132, LIMIT)
    assert plan is not None
    return replace(plan, num_blocks=num_blocks)


@pytest.mark.parametrize(("device", "dtype", "seed"), ORDERS, ids=str)
@pytest.mark.parametrize(("num_tokens", "in_features", "out_features", "num_blocks"), SHARES)
def test_every_way_in_which_tiles_are_shared_out(
    num_tokens: int,
    in_features: int,
    out_features: int,
    num_blocks: int,
    seed: int,
    dtype: torch.dtype,
    device: str,
) -> None:
    rows = normal(num_tokens, in_features, device=device, dtype=dtype)
    weight = normal(out_features, in_features, device=device, dtype=dtype, scale=in_features**-0.5)
    bias = normal(out_features, device=device, dtype=dtype)
    output = normal(num_tokens, out_features, device=device, dtype=dtype, seed=3)
    wanted = (rows.cpu().double() @ weight.cpu().double().T + bias.cpu().double()).relu() + output.cpu().double()
    plan = plan_of(in_features, out_features, num_tokens, False, num_blocks)

    with kernels_on(device, seed):
        launch_stream_k(output, rows, weight, bias, output, "relu", False, plan)

    assert error(output, wanted) < allowed(dtype)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("num_blocks", [1, 4, 7])
def test_gates_and_their_values(num_blocks: int, device: str) -> None:
    rows = normal(40, 192, device=device, dtype=torch.float16)
    weight = normal(2 * 200, 192, device=device, dtype=torch.float16, scale=192**-0.5)
    gates, values = (rows.cpu().double() @ weight.cpu().double().T).chunk(2, dim=-1)
    output = rows.new_full((40, 200), float("nan"))

    with kernels_on(device, seed=2):
        launch_stream_k(output, rows, weight, None, None, "silu", True, plan_of(192, 200, 40, True, num_blocks))

    assert error(output, functional.silu(gates) * values) < 2 * allowed(torch.float16)


@pytest.mark.gpu
def test_the_same_bits_every_time_while_launches_overlap() -> None:
    weights = [normal(1152, 896, device="cuda", dtype=torch.float16, scale=0.03, seed=i) for i in range(4)]
    rows = normal(48, 896, device="cuda", dtype=torch.float16)
    plans = [plan_of(896, 1152, 48, False, count) for count in (9, 126, 36, 60)]
    outputs = [[rows.new_empty(48, 1152) for _ in weights] for _ in range(50)]

    for each in outputs:
        for output, weight, plan in zip(each, weights, plans, strict=True):
            launch_stream_k(output, rows, weight, None, None, "none", False, plan, overlap=True)

    for output, weight in zip(outputs[0], weights, strict=True):
        assert error(output, rows.cpu().double() @ weight.cpu().double().T) < allowed(torch.float16)
    assert all(torch.equal(a, b) for each in outputs for a, b in zip(each, outputs[0], strict=True))


@given(
    in_features=st.integers(1, 300).map(lambda chunks: 64 * chunks),
    out_features=st.integers(1, 40_000).map(lambda pieces: 8 * pieces),
    num_tokens=st.integers(1, 64),
    paired=st.booleans(),
    num_multiprocessors=st.integers(1, 200),
)
def test_a_plan_fits_into_shared_memory_and_leaves_no_thread_block_idle(
    in_features: int, out_features: int, num_tokens: int, paired: bool, num_multiprocessors: int
) -> None:
    plan = plan_stream_k(in_features, out_features, num_tokens, paired, num_multiprocessors, LIMIT)

    assert plan is not None
    assert plan.shared_bytes(paired) <= LIMIT
    assert num_tokens <= plan.tokens == next(count for count in TOKEN_COUNTS if count >= num_tokens)
    tiles = -(-out_features // (ROWS // (1 + paired)))
    assert 1 <= plan.num_blocks <= min(num_multiprocessors, 4 * tiles, tiles * in_features // 64)


def test_what_the_kernel_cannot_do_has_no_plan() -> None:
    assert plan_stream_k(96, 512, 16, False, 132, LIMIT) is None
    assert plan_stream_k(128, 50257, 16, False, 132, LIMIT) is None
    assert plan_stream_k(128, 512, 65, False, 132, LIMIT) is None
    assert plan_stream_k(128, 512, 64, False, 132, 40 << 10) is None


def test_vocabularies_stream_and_the_gates_of_many_rows_do_not() -> None:
    def kind(in_features: int, out_features: int, num_tokens: int, paired: bool = False) -> type | None:
        plan = plan_many_rows(in_features, out_features, num_tokens, paired=paired, gpu=H200)
        return None if plan is None else type(plan)

    assert kind(896, 151936, 16) is StreamKPlan
    assert kind(4096, 128256, 64) is StreamKPlan
    assert kind(512, 50304, 48) is StreamKPlan
    assert kind(512, 50304, 49) is None
    assert kind(896, 1152, 32) is WarpgroupPlan
    assert kind(4096, 14336, 65, paired=True) is WidePlan
    assert kind(4096, 14336, 65) is None
    assert plan_many_rows(896, 1152, 32, paired=False, gpu=replace(H200, compute_capability=(8, 0))) is None
    assert plan_many_rows(896, 1152, 32, paired=False, gpu=None) is None
