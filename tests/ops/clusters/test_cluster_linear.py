"""Products whose inner elements a cluster shares, against float64; on a CPU by the kernel itself."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext

import pytest
import torch
from torch.nn import functional

from pagedchat.ops.clusters.cluster_linear import launch_clusters
from pagedchat.ops.clusters.cluster_plan import ClusterPlan
from pagedchat.ops.common.norm import Norm
from pagedchat.ops.products.add_norm import add_norm
from pagedchat.ops.products.warpgroup_linear import side_by_side, warpgroup_linear
from pagedchat.ops.quantized.weight import Weight
from tests.ops.products.small_batch_case import DTYPES, allowed, error, normal
from tests.ops.quantized.few_bits_case import FORMATS, weight_of
from tools.emulator.ops import kernels_on_cpu

DEVICES = ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)]
PLANS = [
    ((9, 576, 72), ClusterPlan(16, 4, 1, 3)),  # a thread block finishes some rows of all tokens
    ((20, 456, 136), ClusterPlan(32, 4, 1, 3)),  # no whole tiles or chunks; slices of one chunk and of two
    ((64, 1032, 40), ClusterPlan(64, 8, 1, 2)),  # as few stages as there may be
    ((50, 328, 200), ClusterPlan(64, 1, 4, 3)),  # tokens shared, inner elements not
    ((40, 1048, 136), ClusterPlan(64, 2, 4, 3)),  # both; rings begin anew
    ((25, 200, 64), ClusterPlan(32, 1, 1, 4)),  # one tile
    ((40, 1544, 136), ClusterPlan(64, 2, 1, 10)),  # a ring of more than half of a multiprocessor
]
"""Tokens, inner dimension and columns, and how they are cut."""
ORDERS = [
    *(("cpu", (torch.float16, torch.bfloat16)[i % 2], case, 1 + i % 4) for i, case in enumerate(PLANS)),
    *(pytest.param("cuda", dtype, case, 0, marks=pytest.mark.gpu) for case in PLANS for dtype in DTYPES),
]
"""Devices, types in turns on a CPU, and there the order of warps."""
OF_FEW_BITS = [
    ("int8", (9, 576, 136), (16, 4, 1, 3)),  # as above; and tiles of as many bytes
    ("fp8", (20, 464, 264), (32, 4, 1, 3)),
    ("int8", (64, 1040, 40), (64, 8, 1, 2)),
    ("fp8", (50, 336, 520), (64, 1, 4, 3)),
    ("int8", (40, 1056, 264), (64, 2, 4, 3)),
    ("int8", (25, 208, 128), (32, 1, 1, 4)),
    ("int8 in groups", (40, 512, 136), (64, 2, 1, 3)),
    ("fp8 in groups", (9, 1024, 136), (16, 1, 2, 3)),
    ("int4", (20, 768, 136), (32, 4, 1, 3)),
    ("int4 in large groups", (64, 2048, 264), (64, 2, 2, 3)),
    ("int4 in large groups", (9, 3072, 72), (16, 4, 1, 2)),
    ("int4 without minimums", (33, 1536, 136), (64, 1, 1, 4)),
    ("int8", (37, 208, 136), (16, 1, 1, 4)),  # by launches of so many tokens
]
"""Forms of weights, tokens and widths, and how they are cut."""
FEW_BITS_ORDERS = [
    *(("cpu", DTYPES[i % 2], *case) for i, case in enumerate(OF_FEW_BITS)),
    *(pytest.param("cuda", dtype, *case, marks=pytest.mark.gpu) for case in OF_FEW_BITS for dtype in DTYPES),
]


@contextmanager
def kernels_on(device: str, seed: int) -> Iterator[None]:
    """On a CPU by the emulator, in the order of warps that `seed` gives."""
    with kernels_on_cpu(seed=seed) if device == "cpu" else nullcontext():
        yield


@pytest.mark.parametrize(("device", "dtype", "case", "seed"), ORDERS, ids=str)
def test_every_way_in_which_tiles_are_shared_out(
    case: tuple[tuple[int, int, int], ClusterPlan], seed: int, dtype: torch.dtype, device: str
) -> None:
    (num_tokens, in_features, out_features), plan = case
    rows = normal(num_tokens, in_features, device=device, dtype=dtype)
    weight = normal(out_features, in_features, device=device, dtype=dtype, scale=in_features**-0.5)
    bias = normal(out_features, device=device, dtype=dtype)
    output = normal(num_tokens, out_features, device=device, dtype=dtype, seed=3)
    wanted = (rows.cpu().double() @ weight.cpu().double().T + bias.cpu().double()).relu() + output.cpu().double()

    with kernels_on(device, seed):
        launch_clusters(output, rows, weight, bias, output, "relu", False, plan)

    assert error(output, wanted) < allowed(dtype)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("plan", [ClusterPlan(64, 1, 4, 3), ClusterPlan(64, 8, 1, 3)], ids=str)
def test_gates_and_their_values(plan: ClusterPlan, device: str) -> None:
    num_tokens = min(40, plan.tokens)
    rows = normal(num_tokens, 584, device=device, dtype=torch.float16)
    weight = normal(2 * 72, 584, device=device, dtype=torch.float16, scale=584**-0.5)
    gates, values = (rows.cpu().double() @ weight.cpu().double().T).chunk(2, dim=-1)
    output = rows.new_full((num_tokens, 72), float("nan"))

    with kernels_on(device, seed=2):
        launch_clusters(output, rows, weight, None, None, "silu", True, plan)

    assert error(output, functional.silu(gates) * values) < 2 * allowed(torch.float16)


@pytest.mark.parametrize(("device", "dtype", "form", "sizes", "cut"), FEW_BITS_ORDERS, ids=str)
def test_weights_of_few_bits(
    form: str, sizes: tuple[int, int, int], cut: tuple[int, int, int, int], dtype: torch.dtype, device: str
) -> None:
    num_tokens, in_features, out_features = sizes
    rows = normal(num_tokens, in_features, device=device, dtype=dtype)
    weight = weight_of(*FORMATS[form], out_features, in_features, device)
    bias = normal(out_features, device=device, dtype=dtype)
    output = normal(num_tokens, out_features, device=device, dtype=dtype, seed=3)
    product = rows.cpu().double() @ weight.dequantized().cpu().double().T
    wanted = (product + bias.cpu().double()).relu() + output.cpu().double()

    with kernels_on(device, seed=1):
        launch_clusters(output, rows, weight, bias, output, "relu", False, ClusterPlan(*cut, weight.form))

    assert error(output, wanted) < allowed(dtype)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("cut", [(64, 1, 4, 3), (64, 8, 1, 3)])
def test_columns_of_a_wider_output(cut: tuple[int, int, int, int], device: str) -> None:
    rows = normal(40, 1280, device=device, dtype=torch.float16)
    weight = weight_of(*FORMATS["int4"], 136, 1280, device)
    wanted = rows.cpu().double() @ weight.dequantized().cpu().double().T
    wider = rows.new_full((40, 200), float("nan"))

    with kernels_on(device, seed=2):
        launch_clusters(wider[:, 32:168], rows, weight, None, None, "none", False, ClusterPlan(*cut, weight.form))

    assert error(wider[:, 32:168], wanted) < allowed(torch.float16)
    assert wider[:, :32].isnan().all()
    assert wider[:, 168:].isnan().all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("form", ["int8", "int4"])
@pytest.mark.parametrize("cut", [(64, 1, 4, 3), (64, 8, 1, 3)])
def test_gates_of_few_bits(cut: tuple[int, int, int, int], form: str, device: str) -> None:
    rows = normal(40, 1280, device=device, dtype=torch.float16)
    weight = weight_of(*FORMATS[form], 2 * 136, 1280, device)
    gates, values = (rows.cpu().double() @ weight.dequantized().cpu().double().T).chunk(2, dim=-1)
    output = rows.new_full((40, 136), float("nan"))

    with kernels_on(device, seed=2):
        launch_clusters(output, rows, weight, None, None, "silu", True, ClusterPlan(*cut, weight.form))

    assert error(output, functional.silu(gates) * values) < 2 * allowed(torch.float16)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("num_tokens", [16, 40])
def test_two_products_side_by_side_are_those_of_each(num_tokens: int, device: str) -> None:
    """Behind a launch that makes their rows, and before one that reads what both make."""
    rows, scale = (normal(num_tokens, 1280, device=device, dtype=torch.float16, seed=seed) for seed in (1, 2))
    parts: list[tuple[Weight, torch.Tensor | None]] = [
        (weight_of(*FORMATS["int4"], 144, 1280, device), None),
        (weight_of(*FORMATS["int8"], 64, 1280, device), normal(64, device=device, dtype=torch.float16)),
    ]
    norm = Norm("rms", scale[0].contiguous(), None, 1e-6)
    reader = Norm("rms", rows.new_ones(208), None, 1e-6)
    with kernels_on(device, seed=3):
        for _ in range(1 if device == "cpu" else 50):
            heads = rows.new_full((num_tokens, 208), float("nan"))
            normed = add_norm(rows, None, norm, overlap=True)
            side_by_side(normed, parts, heads)
            read = add_norm(heads, None, reader, overlap=True)
            wanted = torch.cat([warpgroup_linear(normed, weight, bias=bias) for weight, bias in parts], dim=1)
            assert torch.equal(heads, wanted)
            assert torch.equal(read, add_norm(wanted, None, reader))


@pytest.mark.gpu
def test_the_same_bits_every_time_while_launches_overlap() -> None:
    weights = [normal(1152, 896, device="cuda", dtype=torch.float16, scale=0.03, seed=i) for i in range(4)]
    rows = normal(48, 896, device="cuda", dtype=torch.float16)
    plans = [
        ClusterPlan(64, 1, 4, 7),
        ClusterPlan(64, 8, 1, 7),
        ClusterPlan(64, 2, 1, 10),
        ClusterPlan(64, 4, 1, 5),
    ]
    outputs = [[rows.new_empty(48, 1152) for _ in weights] for _ in range(50)]

    for each in outputs:
        for output, weight, plan in zip(each, weights, plans, strict=True):
            launch_clusters(output, rows, weight, None, None, "none", False, plan, overlap=True)

    for output, weight in zip(outputs[0], weights, strict=True):
        assert error(output, rows.cpu().double() @ weight.cpu().double().T) < allowed(torch.float16)
    assert all(torch.equal(a, b) for each in outputs for a, b in zip(each, outputs[0], strict=True))
