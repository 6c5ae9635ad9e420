"""The kernels of mixtures of experts for `sanitize_kernels`, which says how they are checked."""

# mypy: disable-error-code="misc"

import torch

from pagedchat.ops.experts.expert_linear import expert_linear
from pagedchat.ops.experts.expert_plan import ExpertPlan
from pagedchat.ops.experts.gate import Gate
from pagedchat.ops.experts.group_pairs import group_pairs
from pagedchat.ops.experts.mix_experts import Experts, mix_experts
from pagedchat.ops.experts.route_tokens import route_tokens
from pagedchat.ops.experts.stacked_weight import StackedWeight
from pagedchat.ops.quantized.quantize import quantize
from pagedchat.ops.quantized.weight import QuantizedWeight
from tools.sanitize_case import Tensors, on_both, random_tensor

HIDDEN, WIDTH, NUM_EXPERTS, PER_TOKEN = 256, 96, 9, 2
WAYS = (ExpertPlan("registers", 8), ExpertPlan("registers", 32), ExpertPlan("tiles", 32), ExpertPlan("tiles", 64),
        ExpertPlan("tiles", 128), ExpertPlan("warpgroups", 128), ExpertPlan("cuda cores", 8))  # fmt: skip

CLAMPED = Gate(limit=1.0, sharpness=1.702)


def expert_cases() -> list[bool]:
    """Routes and pairs by expert, both products in every way, and a whole mixture, whose launches overlap."""
    results = _few_bits_cases()
    logits = torch.stack([torch.randperm(NUM_EXPERTS) for _ in range(150)]).half()
    into, out = random_tensor(NUM_EXPERTS, 2 * WIDTH, HIDDEN) / 16, random_tensor(NUM_EXPERTS, HIDDEN, WIDTH) / 10
    biases = random_tensor(NUM_EXPERTS, 2 * WIDTH), random_tensor(NUM_EXPERTS, HIDDEN)
    for plan in WAYS:

        def products(t: Tensors, plan: ExpertPlan = plan) -> Tensors:
            routes = route_tokens(t[1], PER_TOKEN, renormalised=True)
            groups = group_pairs(routes.experts, NUM_EXPERTS, plan)
            middle = expert_linear(t[0], t[2], groups, plan, paired=True)
            bounded = expert_linear(t[0], t[2], groups, plan, paired=True, bias=t[4], gate=CLAMPED)
            outs = [expert_linear(middle, t[3], groups, plan, paired=False, bias=bias) for bias in (None, t[5])]
            return [middle, bounded, *outs, routes.weights, groups.tiles]

        name = f"expert_linear {plan.way} {plan.tile_rows}"
        results.append(on_both(name, [random_tensor(150, HIDDEN), logits, into, out, *biases], products))
    for num_tokens in (1, 20, 150):

        def mixture(t: Tensors) -> Tensors:
            mixed = mix_experts(
                t[0], t[1], Experts(t[2], t[3]), per_token=PER_TOKEN, renormalised=False,
                shared=t[4], shared_logits=t[5],
            )  # fmt: skip
            added = mix_experts(
                t[0], t[1] + 0, Experts(t[2], t[3]), per_token=PER_TOKEN, renormalised=False,
                residual=t[4].clone(), overlap=True,
            )  # fmt: skip
            return [mixed, added]

        rows, shared = random_tensor(num_tokens, HIDDEN), random_tensor(num_tokens, HIDDEN)
        tensors = [rows, logits[:num_tokens], into, out, shared, random_tensor(num_tokens, 1)]
        results.append(on_both(f"mix_experts {num_tokens}", tensors, mixture))
    return results


def _few_bits_cases() -> list[bool]:
    """Both products with weights of few bits, in tiles of every size."""
    results = []
    logits = torch.stack([torch.randperm(NUM_EXPERTS) for _ in range(150)]).half()
    into, out = random_tensor(NUM_EXPERTS * 2 * WIDTH, HIDDEN) / 16, random_tensor(NUM_EXPERTS * HIDDEN, WIDTH) / 10
    bias = random_tensor(NUM_EXPERTS, 2 * WIDTH)
    for bits, tile_rows in ((8, 8), (4, 16), (8, 32), (4, 64)):
        weights = [quantize(each.float(), bits, 32 if bits == 4 else each.shape[1]) for each in (into, out)]
        parts = [each for few in weights for each in (few.digits, few.scales, few.minimums) if each is not None]

        plan = ExpertPlan("few bits", tile_rows)

        def products(t: Tensors, bits: int = bits, plan: ExpertPlan = plan) -> Tensors:
            half = 3 + (len(t) - 3) // 2
            gate_up, down = _stacked(bits, t[3:half]), _stacked(bits, t[half:])
            routes = route_tokens(t[1], PER_TOKEN, renormalised=True)
            groups = group_pairs(routes.experts, NUM_EXPERTS, plan)
            middle = expert_linear(t[0], gate_up, groups, plan, paired=True)
            bounded = expert_linear(t[0], gate_up, groups, plan, paired=True, bias=t[2], gate=CLAMPED)
            return [middle, bounded, expert_linear(middle, down, groups, plan, paired=False)]

        name = f"expert_linear {bits} bits {tile_rows}"
        results.append(on_both(name, [random_tensor(150, HIDDEN), logits, bias, *parts], products))
    return results


def _stacked(bits: int, parts: Tensors) -> StackedWeight:
    """Of digits, scales and, of four bits, minimums."""
    digits, scales, *minimums = parts
    group = digits.shape[1] * (8 // bits) // scales.shape[1]
    return StackedWeight(NUM_EXPERTS, QuantizedWeight(bits, group, digits, scales, *minimums))
