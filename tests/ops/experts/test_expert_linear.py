from dataclasses import replace

import pytest
import torch

from pagedchat.ops.experts.expert_linear import expert_linear
from pagedchat.ops.experts.expert_plan import ExpertPlan
from pagedchat.ops.experts.gate import SILU, Gate
from pagedchat.ops.experts.group_pairs import group_pairs
from tests.ops.experts.mixture_case import CLAMPED, exact_products
from tests.ops.experts.test_group_pairs import some_experts
from tests.ops.paged_case import DEVICES
from tests.ops.products.small_batch_case import DTYPES, allowed, error, normal

IN_REGISTERS = [ExpertPlan("registers", rows) for rows in (8, 16, 32)]
IN_TILES = [ExpertPlan("tiles", rows) for rows in (32, 64, 128)]
BY_WARPGROUPS = ExpertPlan("warpgroups", 128)
ON_CUDA_CORES = ExpertPlan("cuda cores", 8)
NUM_EXPERTS, PER_TOKEN = 6, 3


def check(
    plan: ExpertPlan,
    num_tokens: int,
    in_features: int,
    out_features: int,
    dtype: torch.dtype,
    device: str,
    num_experts: int = NUM_EXPERTS,
    gate: Gate = SILU,
) -> None:
    """The product on the way into an expert, and the one on the way out."""
    experts = some_experts(num_tokens, PER_TOKEN, num_experts, device)
    groups = group_pairs(experts, num_experts, plan)
    for paired in (True, False):
        num_rows = out_features * (2 if paired else 1)
        rows = normal(num_tokens * (1 if paired else PER_TOKEN), in_features, device=device, dtype=dtype)
        weight = normal(num_experts, num_rows, in_features, device=device, dtype=dtype, scale=in_features**-0.5)
        bias = None if gate == SILU else normal(num_experts, num_rows, device=device, dtype=dtype, seed=5)
        wanted = exact_products(rows, weight, experts, paired=paired, bias=bias, gate=gate)
        found = expert_linear(rows, weight, groups, plan, paired=paired, bias=bias, gate=gate)
        assert found.shape == wanted.shape
        assert error(found, wanted) < (1e-6 if dtype == torch.float32 else allowed(dtype))


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("plan", [*IN_REGISTERS, *IN_TILES, BY_WARPGROUPS], ids=str)
def test_agrees_with_the_definition(plan: ExpertPlan, dtype: torch.dtype, device: str) -> None:
    for num_tokens in (1, 5, 40):
        check(plan, num_tokens, 96, 64, dtype, device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [*DTYPES, torch.float32], ids=str)
def test_on_cuda_cores_rows_may_have_any_length(dtype: torch.dtype, device: str) -> None:
    for num_tokens, in_features, out_features in ((1, 33, 7), (11, 100, 20)):
        check(ON_CUDA_CORES, num_tokens, in_features, out_features, dtype, device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("plan", [*IN_TILES, BY_WARPGROUPS], ids=str)
def test_what_is_no_whole_tile_is_as_right(plan: ExpertPlan, device: str) -> None:
    check(plan, 30, 72, 136, torch.float16, device)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("plan", [IN_REGISTERS[0], *IN_TILES, BY_WARPGROUPS, ON_CUDA_CORES], ids=str)
def test_biases_and_gates_with_bounds(plan: ExpertPlan, device: str) -> None:
    """In tiles the last rows of the weights are no whole one."""
    out_features = 144 if plan.way == "registers" else 136
    for dtype in (*DTYPES, torch.float32) if plan == ON_CUDA_CORES else DTYPES:
        check(plan, 21, 96, out_features, dtype, device, gate=CLAMPED)


@pytest.mark.parametrize("device", DEVICES)
def test_what_is_no_number_stays_none_beyond_a_bound(device: str) -> None:
    experts = torch.zeros(1, 1, dtype=torch.int32, device=device)
    rows = torch.full((1, 16), float("nan"), device=device)
    weight = normal(1, 16, 16, device=device, dtype=torch.float32)
    groups = group_pairs(experts, 1, ON_CUDA_CORES)
    found = expert_linear(rows, weight, groups, ON_CUDA_CORES, paired=True, gate=CLAMPED)
    assert found.isnan().all()


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_warpgroups_go_through_their_ring_again_and_again(dtype: torch.dtype, device: str) -> None:
    """More chunks than stages, more than one tile of an expert, and of its weights."""
    check(BY_WARPGROUPS, 150, 520, 264, dtype, device, num_experts=3)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize(("in_features", "out_features"), [(2048, 768), (768, 2048), (1408, 2048), (4096, 1792)])
def test_widths_of_models(in_features: int, out_features: int, dtype: torch.dtype) -> None:
    for plan in (*IN_REGISTERS, *IN_TILES, BY_WARPGROUPS):
        for num_tokens in (1, 8, 100):
            check(plan, num_tokens, in_features, out_features, dtype, "cuda", num_experts=16)


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("plan", [IN_REGISTERS[0], *IN_TILES, ON_CUDA_CORES], ids=str)
def test_a_pair_gets_the_same_bits_whoever_else_has_its_expert(plan: ExpertPlan, device: str) -> None:
    num_tokens, width = (70, 40) if device == "cpu" else (200, 64)
    rows = normal(num_tokens, 256, device=device, dtype=torch.float16)
    weight = normal(4, 2 * width, 256, device=device, dtype=torch.float16, scale=0.06)
    bias = normal(4, 2 * width, device=device, dtype=torch.float16)
    experts = some_experts(num_tokens, 2, 4, device)

    def found(experts: torch.Tensor, rows: torch.Tensor, plan: ExpertPlan) -> torch.Tensor:
        plan = replace(plan, batch_invariant=True)
        groups = group_pairs(experts.contiguous(), 4, plan)
        return expert_linear(rows, weight, groups, plan, paired=True, bias=bias, gate=CLAMPED)

    together = found(experts, rows, plan)
    for token in (0, 33, num_tokens - 1):
        some = slice(token, token + 1)
        for alone in IN_TILES if plan.way == "tiles" else [plan]:  # of any size
            assert torch.equal(found(experts[some], rows[some], alone), together[2 * token : 2 * token + 2])


def test_wrong_arguments_are_named() -> None:
    plan, experts = ExpertPlan("torch", 8), torch.zeros(2, 2, dtype=torch.int32)
    groups, rows = group_pairs(experts, 3, plan), torch.zeros(2, 64)
    with pytest.raises(ValueError, match=r"weight has shape \[3, 8, 32\], expected \[\*, \*, 64\]"):
        expert_linear(rows, torch.zeros(3, 8, 32), groups, plan, paired=False)
    with pytest.raises(ValueError, match="in an even number"):
        expert_linear(rows, torch.zeros(3, 7, 64), groups, plan, paired=True)
    with pytest.raises(ValueError, match=r"bias has shape \[3, 7\], expected \[3, 8\]"):
        expert_linear(rows, torch.zeros(3, 8, 64), groups, plan, paired=False, bias=torch.zeros(3, 7))
    with pytest.raises(ValueError, match="4 pairs do not share out 3 rows"):
        expert_linear(torch.zeros(3, 64), torch.zeros(3, 8, 64), groups, plan, paired=False)
    with pytest.raises(ValueError, match="not contiguous"):
        expert_linear(torch.zeros(64, 2).T, torch.zeros(3, 8, 64), groups, plan, paired=False)
