from itertools import product

import pytest
import torch

from pagedchat.ops.experts.expert_linear import expert_linear
from pagedchat.ops.experts.expert_plan import ExpertPlan
from pagedchat.ops.experts.few_bits_tiles import TILE_ROWS
from pagedchat.ops.experts.gate import SILU, Gate
from pagedchat.ops.experts.group_pairs import group_pairs
from pagedchat.ops.experts.stacked_weight import StackedWeight
from tests.ops.experts.mixture_case import CLAMPED, exact_products
from tests.ops.experts.test_group_pairs import some_experts
from tests.ops.products.small_batch_case import DTYPES, allowed, error, normal
from tests.ops.quantized.few_bits_case import FORMATS, WHERE, device_of, weight_of

NUM_EXPERTS, PER_TOKEN = 5, 2
PLANS = [ExpertPlan("few bits", rows) for rows in TILE_ROWS]


def stacked(name: str, num_rows: int, in_features: int, device: str, num_experts: int) -> StackedWeight:
    """Random weights in one of `FORMATS`."""
    return StackedWeight(num_experts, weight_of(*FORMATS[name], num_experts * num_rows, in_features, device))


def check(
    plan: ExpertPlan,
    name: str,
    sizes: tuple[int, int, int],
    dtype: torch.dtype,
    device: str,
    *,
    gate: Gate = SILU,
    num_experts: int = NUM_EXPERTS,
) -> None:
    """The product on the way into an expert, and the one on the way out, of so many tokens, inputs and outputs."""
    num_tokens, in_features, out_features = sizes
    experts = some_experts(num_tokens, PER_TOKEN, num_experts, device)
    groups = group_pairs(experts, num_experts, plan)
    for paired in (True, False):
        num_rows = out_features * (2 if paired else 1)
        rows = normal(num_tokens * (1 if paired else PER_TOKEN), in_features, device=device, dtype=dtype)
        weight = stacked(name, num_rows, in_features, device, num_experts)
        bias = None if gate == SILU else normal(num_experts, num_rows, device=device, dtype=dtype, seed=5)
        floats = weight.rows_of_all.dequantized().view(num_experts, num_rows, in_features)
        wanted = exact_products(rows, floats, experts, paired=paired, bias=bias, gate=gate)
        found = expert_linear(rows, weight, groups, plan, paired=paired, bias=bias, gate=gate)
        assert found.shape == wanted.shape
        assert error(found, wanted) < allowed(dtype)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_agrees_with_the_definition(plan: ExpertPlan, name: str, dtype: torch.dtype, where: str) -> None:
    with device_of(where) as device:
        for num_tokens, in_features in ((1, 128), (11, 640)):
            check(plan, name, (num_tokens, in_features, 72), dtype, device)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("plan", PLANS, ids=str)
def test_biases_gates_with_bounds_and_more_tiles_than_one_of_an_expert(plan: ExpertPlan, where: str) -> None:
    with device_of(where) as device:
        for name in ("int8 in groups", "int4"):
            check(plan, name, (90, 160, 136), torch.bfloat16, device, gate=CLAMPED, num_experts=2)


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", FORMATS)
@pytest.mark.parametrize(("in_features", "out_features"), [(2048, 768), (768, 2048), (4096, 1792)])
def test_widths_of_models(in_features: int, out_features: int, name: str, dtype: torch.dtype) -> None:
    for plan, num_tokens in product(PLANS, (1, 8, 100)):
        check(plan, name, (num_tokens, in_features, out_features), dtype, "cuda", num_experts=16)


@pytest.mark.parametrize("where", WHERE)
@pytest.mark.parametrize("name", ["fp8", "int4"])
def test_a_pair_gets_the_same_bits_whoever_else_has_its_expert(name: str, where: str) -> None:
    with device_of(where) as device:
        rows = normal(40, 256, device=device, dtype=torch.float16)
        weight = stacked(name, 80, 256, device, 4)
        experts = some_experts(40, 2, 4, device)

        def found(experts: torch.Tensor, rows: torch.Tensor, plan: ExpertPlan) -> torch.Tensor:
            groups = group_pairs(experts.contiguous(), 4, plan)
            return expert_linear(rows, weight, groups, plan, paired=True)

        for plan in PLANS:
            together = found(experts, rows, plan)
            for token in (0, 17, 39):
                some = slice(token, token + 1)
                alone = found(experts[some], rows[some], plan)
                assert error(alone, together[2 * token : 2 * token + 2]) == 0 or where == "cpu"


def test_weights_that_no_kernel_takes_are_refused_in_words() -> None:
    with pytest.raises(ValueError, match="10 rows do not share out among 3 experts"):
        StackedWeight(3, weight_of("int8", 0, 10, 32, "cpu"))
    plan, experts = PLANS[0], torch.zeros(1, 1, dtype=torch.int32)
    with device_of("emulated") as device:
        groups = group_pairs(experts.to(device), 1, plan)
        rows = torch.zeros(1, 48, dtype=torch.float16, device=device)
        with pytest.raises(
            ValueError, match="there is no kernel for this weight: rows of 24 bytes are no multiple"
        ):
            expert_linear(
                rows,
                StackedWeight(1, weight_of("int4 without minimums", 48, 8, 48, device)),
                groups,
                plan,
                paired=False,
            )
