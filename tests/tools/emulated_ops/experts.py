"""Mixtures of experts: who has which expert, products with their weights, the sum."""

from functools import partial

import torch

from pagedchat.ops.experts.expert_linear import expert_linear
from pagedchat.ops.experts.expert_plan import ExpertPlan, Way
from pagedchat.ops.experts.gate import Gate
from pagedchat.ops.experts.group_pairs import group_pairs
from pagedchat.ops.experts.route_few import route_few
from pagedchat.ops.experts.route_tokens import route_tokens
from pagedchat.ops.experts.stacked_weight import StackedWeight
from pagedchat.ops.experts.sum_experts import sum_experts
from tests.ops.quantized.few_bits_case import FORMATS
from tests.ops.quantized.few_bits_case import weight_of as few_bits_of
from tests.tools.emulated_ops.op_case import BFLOAT, DTYPES, HALF, SINGLE, OpCase, Results, in_types, numbers
from tests.tools.emulated_ops.products import rows_of, weight_of

NUM_EXPERTS, PER_TOKEN = 5, 2


def routes(dtype: torch.dtype, *, renormalised: bool) -> Results:
    """More experts than a warp has lanes, and two that are equally likely at the end."""
    found = route_tokens(rows_of(5, 45, dtype), 3, renormalised=renormalised)
    return {"experts": found.experts, "weights": found.weights}


def pairs() -> torch.Tensor:
    """`[7, PER_TOKEN]`: an expert whom nobody has, and one with more pairs than a tile of four."""
    experts = numbers(0, 4, 4, 1, 4, 0, 1, 4, 0, 4, 4, 2, 2, 4)
    return experts.view(7, PER_TOKEN)


def groups() -> Results:
    found = group_pairs(pairs(), NUM_EXPERTS, ExpertPlan("registers", 4))
    return {"order": found.order, "tiles": found.tiles}


def few(dtype: torch.dtype) -> Results:
    """Routes and groups at once; more experts than a warp has lanes."""
    found, grouped = route_few(rows_of(34, 45, dtype), 3, ExpertPlan("registers", 4), renormalised=False)
    return {**found._asdict(), **grouped._asdict()}


def products(dtype: torch.dtype, *, way: Way, tile_rows: int, width: int) -> Results:
    """On the way into the experts, also with biases and bounds, and on the way out."""
    plan = ExpertPlan(way, tile_rows)
    grouped = group_pairs(pairs(), NUM_EXPERTS, plan)
    into = weight_of(NUM_EXPERTS * 2 * width, 96, dtype).view(NUM_EXPERTS, 2 * width, 96)
    out = weight_of(NUM_EXPERTS * 96, width, dtype).view(NUM_EXPERTS, 96, width)
    middle = expert_linear(rows_of(7, 96, dtype), into, grouped, plan, paired=True)
    rows = rows_of(7 * PER_TOKEN, width, dtype)
    bias, gate = rows_of(NUM_EXPERTS, 2 * width, dtype), Gate(limit=0.5, sharpness=1.702)
    bounded = expert_linear(rows_of(7, 96, dtype), into, grouped, plan, paired=True, bias=bias, gate=gate)
    return {"middle": middle, "bounded": bounded, "rows": expert_linear(rows, out, grouped, plan, paired=False)}


def few_bits(dtype: torch.dtype, *, form: str, tile_rows: int) -> Results:
    """The same with weights of few bits; columns that are no whole tile, and chunks that are not full."""
    plan = ExpertPlan("few bits", tile_rows)
    grouped = group_pairs(pairs(), NUM_EXPERTS, plan)
    into = StackedWeight(NUM_EXPERTS, few_bits_of(*FORMATS[form], NUM_EXPERTS * 2 * 72, 384, "cpu"))
    out = StackedWeight(NUM_EXPERTS, few_bits_of(*FORMATS[form], NUM_EXPERTS * 96, 128, "cpu"))
    bias, gate = rows_of(NUM_EXPERTS, 2 * 72, dtype), Gate(limit=0.5, sharpness=1.702)
    rows = rows_of(7, 384, dtype)
    return {
        "middle": expert_linear(rows, into, grouped, plan, paired=True),
        "bounded": expert_linear(rows, into, grouped, plan, paired=True, bias=bias, gate=gate),
        "rows": expert_linear(rows_of(7 * PER_TOKEN, 128, dtype), out, grouped, plan, paired=False),
    }


def sums(dtype: torch.dtype) -> Results:
    """Rows of more pieces than a thread block has threads."""
    weights = rows_of(4, PER_TOKEN, SINGLE).abs()
    rows, shared = rows_of(4 * PER_TOKEN, 1032, dtype), rows_of(4, 1032, dtype)
    logits = rows_of(4, 1, dtype)
    return {
        "alone": sum_experts(rows, weights),
        "with one shared": sum_experts(rows, weights, shared=shared),
        "with a gate": sum_experts(rows, weights, shared=shared, shared_logits=logits),
        "added": sum_experts(rows, weights, shared=shared, residual=rows_of(4, 1032, dtype), residual_scale=0.5),
    }


CASES: list[OpCase] = [
    *in_types("route_tokens", partial(routes, renormalised=True), HALF, BFLOAT),
    *in_types("route_tokens", partial(routes, renormalised=False), SINGLE),
    *in_types("route_few", few, HALF, SINGLE),
    OpCase("group_pairs", "tiles of four", groups),
    *in_types("expert_linear", partial(products, way="registers", tile_rows=8, width=64), HALF),
    *in_types("expert_linear", partial(products, way="registers", tile_rows=16, width=64), BFLOAT, about="sixteen"),
    *in_types("expert_tiles", partial(products, way="tiles", tile_rows=32, width=72), HALF, about="few"),
    *in_types("expert_tiles", partial(products, way="tiles", tile_rows=64, width=72), HALF),
    *in_types("expert_tiles", partial(products, way="tiles", tile_rows=128, width=72), BFLOAT),
    *in_types("expert_warpgroups", partial(products, way="warpgroups", tile_rows=128, width=72), HALF, BFLOAT),
    *in_types("expert_few_bits", partial(few_bits, form="int8", tile_rows=8), HALF, BFLOAT, about="int8"),
    *in_types("expert_few_bits", partial(few_bits, form="fp8 in groups", tile_rows=16), HALF, about="fp8"),
    *in_types("expert_few_bits", partial(few_bits, form="int4", tile_rows=32), BFLOAT, about="int4"),
    *in_types("expert_simt", partial(products, way="cuda cores", tile_rows=8, width=27), *DTYPES),
    *in_types("sum_experts", sums, *DTYPES),
]
