"""Products whose inner elements a cluster shares, against float64; on a CPU by the kernel itself."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from pagedchat.ops.clusters.cluster_linear import launch_clusters
from pagedchat.ops.clusters.cluster_plan import ClusterPlan
from tests.ops.products.small_batch_case import DTYPES, allowed, error, exact_norm, make_norm, normal
from tools.emulator.ops import kernels_on_cpu

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
ORDERS = [
    ("cpu", torch.float16, 1),
    ("cpu", torch.bfloat16, 4),
    *(pytest.param("cuda", dtype, 0, marks=pytest.mark.gpu) for dtype in DTYPES),
]
"""Devices, types, and on a CPU the order of warps."""
PLANS = [
    ((16, 320, 128), ClusterPlan(16, 2, 1, 1, 4, 2)),  # one tile
    ((20, 456, 264), ClusterPlan(32, 2, 4, 1, 3, 2)),  # no whole tiles or chunks; slices of one chunk and of two
    ((64, 1096, 200), ClusterPlan(64, 2, 2, 2, 3, 2)),  # tokens shared by two tiles; rings begin anew
    ((64, 1032, 72), ClusterPlan(64, 2, 8, 1, 2, 2)),  # as many stages as sums take
    ((50, 520, 392), ClusterPlan(64, 2, 1, 4, 3, 2)),  # tokens shared, inner elements not
    ((40, 1300 // 8 * 8, 136), ClusterPlan(64, 2, 4, 2, 4, 2)),  # both
    ((9, 576, 130 // 8 * 8), ClusterPlan(16, 2, 8, 1, 3, 2)),  # a thread block finishes some rows of all tokens
    ((200, 328, 136), ClusterPlan(128, 2, 2, 2, 2, 2)),  # two tiles of tokens
    ((250, 648, 72), ClusterPlan(256, 2, 4, 1, 4, 1)),
    ((40, 456, 200), ClusterPlan(64, 1, 4, 2, 3, 2, 1, 1)),  # tiles of 64 rows
]
"""Tokens, inner dimension and columns, and how they are cut."""


SMALL = 0.004
"""Rows so small that what a norm adds to their squares counts."""


@contextmanager
def kernels_on(device: str, seed: int) -> Iterator[None]:
    """On a CPU by the emulator, in the order of warps that `seed` gives."""
    with kernels_on_cpu(seed=seed) if device == "cpu" else nullcontext():
        yield


@pytest.mark.parametrize(("device", "dtype", "seed"), ORDERS, ids=str)
@pytest.mark.parametrize(("sizes", "plan"), PLANS, ids=str)
def test_every_way_in_which_tiles_are_shared_out(
    sizes: tuple[int, int, int], plan: ClusterPlan, seed: int, dtype: torch.dtype, device: str
) -> None:
    num_tokens, in_features, out_features = sizes
    rows = normal(num_tokens, in_features, device=device, dtype=dtype)
    weight = normal(out_features, in_features, device=device, dtype=dtype, scale=in_features**-0.5)
    bias = normal(out_features, device=device, dtype=dtype)
    output = normal(num_tokens, out_features, device=device, dtype=dtype, seed=3)
    wanted = (rows.cpu().double() @ weight.cpu().double().T + bias.cpu().double()).relu() + output.cpu().double()

    with kernels_on(device, seed):
        launch_clusters(output, rows, weight, bias, output, "relu", False, plan)

    assert error(output, wanted) < allowed(dtype)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize(
    "plan",
    [
        ClusterPlan(64, 1, 4, 1, 3, 2),
        ClusterPlan(64, 2, 1, 2, 4, 2),
        ClusterPlan(64, 2, 4, 1, 3, 2),
        ClusterPlan(48, 2, 2, 1, 4, 2),
        ClusterPlan(128, 2, 8, 1, 3, 1),
    ],
    ids=str,
)
def test_gates_and_their_values(plan: ClusterPlan, device: str) -> None:
    rows = normal(40, 584, device=device, dtype=torch.float16)
    weight = normal(2 * 200, 584, device=device, dtype=torch.float16, scale=584**-0.5)
    gates, values = (rows.cpu().double() @ weight.cpu().double().T).chunk(2, dim=-1)
    output = rows.new_full((40, 200), float("nan"))

    with kernels_on(device, seed=2):
        launch_clusters(output, rows, weight, None, None, "silu", True, plan)

    assert error(output, functional.silu(gates) * values) < 2 * allowed(torch.float16)


@pytest.mark.gpu
def test_the_same_bits_every_time_while_launches_overlap() -> None:
    weights = [normal(1152, 896, device="cuda", dtype=torch.float16, scale=0.03, seed=i) for i in range(4)]
    rows = normal(48, 896, device="cuda", dtype=torch.float16)
    plans = [
        ClusterPlan(64, 2, 1, 2, 4, 2),
        ClusterPlan(64, 2, 8, 1, 4, 2),
        ClusterPlan(64, 2, 4, 2, 3, 2),
        ClusterPlan(48, 2, 2, 1, 5, 2),
    ]
    outputs = [[rows.new_empty(48, 1152) for _ in weights] for _ in range(50)]

    for each in outputs:
        for output, weight, plan in zip(each, weights, plans, strict=True):
            launch_clusters(output, rows, weight, None, None, "none", False, plan, overlap=True)

    for output, weight in zip(outputs[0], weights, strict=True):
        assert error(output, rows.cpu().double() @ weight.cpu().double().T) < allowed(torch.float16)
    assert all(torch.equal(a, b) for each in outputs for a, b in zip(each, outputs[0], strict=True))


@pytest.mark.parametrize(("device", "dtype", "seed"), ORDERS, ids=str)
@pytest.mark.parametrize(
    ("num_tokens", "kind", "first", "second"),
    [
        (40, "rms", ClusterPlan(64, 2, 8, 1, 3, 2), ClusterPlan(64, 2, 2, 2, 4, 2)),
        (16, "exact rms", ClusterPlan(16, 2, 8, 1, 3, 2), ClusterPlan(16, 1, 4, 1, 3, 2)),
        (60, "offset rms", ClusterPlan(64, 1, 2, 4, 3, 2), ClusterPlan(64, 2, 1, 1, 4, 2)),
        (130, "rms", ClusterPlan(128, 2, 2, 2, 3, 2), ClusterPlan(128, 2, 4, 1, 3, 2)),
    ],
    ids=str,
)
def test_a_product_of_normed_rows_behind_one_that_adds_to_them(
    num_tokens: int,
    kind: str,
    first: ClusterPlan,
    second: ClusterPlan,
    seed: int,
    dtype: torch.dtype,
    device: str,
) -> None:
    rows = normal(num_tokens, 520, device=device, dtype=dtype, scale=SMALL)
    stream = normal(num_tokens, 328, device=device, dtype=dtype, scale=SMALL, seed=3)
    down = normal(328, 520, device=device, dtype=dtype, scale=520**-0.5)
    up = normal(2 * 136, 328, device=device, dtype=dtype, scale=328**-0.5)
    norm = make_norm(kind, 328, device, dtype)
    assert norm is not None
    output = rows.new_full((num_tokens, 136), float("nan"))

    with kernels_on(device, seed):
        squares = launch_clusters(stream, rows, down, None, stream, "none", False, first, sums_squares=True)
        launch_clusters(output, stream, up, None, None, "silu", True, second, norm=norm, squares=squares)

    assert squares is not None
    exact = stream.cpu().double()
    assert torch.allclose(squares[:, :num_tokens].cpu().double().sum(0), exact.pow(2).sum(1), rtol=1e-5)
    gates, values = (exact_norm(norm, exact) @ up.cpu().double().T).chunk(2, dim=-1)
    assert error(output, functional.silu(gates) * values) < 2 * allowed(dtype)


def test_a_thread_block_norms_where_there_is_room_and_registers() -> None:
    limit = 227 << 10
    two = ClusterPlan(64, 2, 8, 1, 4, 2)
    assert two.num_threads(normed=True) == two.num_threads(normed=False) + 128 == 416
    assert two.shared_bytes(4096) == two.shared_bytes() + 4 * 64 + 2 * 64 * 8
    assert two.can_norm(4096, limit)
    assert not replace(two, stages=5).can_norm(4096, limit)
    assert not replace(two, blocks=3, stages=2).can_norm(2048, limit)
    assert not ClusterPlan(128, 2, 4, 1, 3, 2).can_norm(2048, limit)


def test_squares_have_a_part_for_each_thread_block_that_has_a_token() -> None:
    assert ClusterPlan(64, 2, 8, 1, 4, 2).num_square_parts(2048) == 16
    assert ClusterPlan(64, 2, 8, 2, 4, 2).num_square_parts(2056) == 18
    assert ClusterPlan(16, 2, 8, 1, 4, 2).num_square_parts(2048) == 64
