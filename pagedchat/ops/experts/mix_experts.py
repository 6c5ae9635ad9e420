"""A mixture of experts from its router's logits on: who has which expert, both products, their sum.

Nothing in it waits for a GPU, and no shape depends on what a tensor holds, so that a step can be captured.
"""

from typing import NamedTuple

import torch

from pagedchat.jit.driver import gpu
from pagedchat.ops.common.checks import check_shape
from pagedchat.ops.common.launch import has_tensor_cores, has_warpgroups, on_cuda
from pagedchat.ops.experts.expert_linear import expert_linear
from pagedchat.ops.experts.expert_plan import (
    MOST_EXPERTS,
    MOST_FEW_PAIRS,
    ExpertPlan,
    plan_experts,
    plan_few_bits_experts,
)
from pagedchat.ops.experts.expert_weight import ExpertWeight
from pagedchat.ops.experts.gate import SILU, Gate
from pagedchat.ops.experts.group_pairs import group_pairs
from pagedchat.ops.experts.route_few import route_few
from pagedchat.ops.experts.route_tokens import route_tokens
from pagedchat.ops.experts.stacked_weight import StackedWeight
from pagedchat.ops.experts.sum_experts import sum_experts

__all__ = ["MOST_EXPERTS", "Experts", "mix_experts"]


class Experts(NamedTuple):
    """Weights of a mixture; tensors are contiguous and of one type."""

    gate_up: ExpertWeight
    """`[num_experts, 2 * width, hidden]`, gates first."""
    down: ExpertWeight
    """`[num_experts, hidden, width]`."""
    gate_up_bias: torch.Tensor | None = None
    """`[num_experts, 2 * width]`; None adds nothing."""
    down_bias: torch.Tensor | None = None
    """`[num_experts, hidden]`."""


def mix_experts(
    rows: torch.Tensor,
    logits: torch.Tensor,
    weights: Experts,
    *,
    per_token: int,
    renormalised: bool,
    gate: Gate = SILU,
    shared: torch.Tensor | None = None,
    shared_logits: torch.Tensor | None = None,
    residual: torch.Tensor | None = None,
    residual_scale: float = 1.0,
    batch_invariant: bool = False,
    overlap: bool = False,
) -> torch.Tensor:
    """The weighted sum of `down @ gate(gate_up @ row)` of each token's experts.

    Args:
        rows: `[num_tokens, hidden]`, contiguous.
        logits: `[num_tokens, num_experts]`, of the router.
        weights: of the experts.
        per_token: experts of a token.
        renormalised: as `route_tokens` has it.
        gate: what is between the products of an expert.
        shared: `[num_tokens, hidden]`, added; None adds nothing.
        shared_logits: `[num_tokens, 1]`: `shared` is multiplied by their sigmoid.
        residual, residual_scale: what the sum is added to, as `sum_experts` has it.
        batch_invariant: a token's numbers do not depend on what other tokens there are.
        overlap: the first launch may begin before the kernel before it has ended, which makes one of the tensors.

    Returns:
        `[num_tokens, hidden]`; `residual`, if it is given.

    Raises:
        ValueError: shapes or types that do not go together.
    """
    gate_up, down, gate_up_bias, down_bias = weights
    num_experts, hidden, width = down.shape
    check_shape("rows", rows, None, hidden)
    check_shape("logits", logits, len(rows), num_experts)
    check_shape("gate_up", gate_up, num_experts, 2 * width, hidden)
    num_pairs = len(rows) * per_token
    plan = _plan(rows, weights, num_pairs, batch_invariant)
    if num_pairs <= MOST_FEW_PAIRS:
        routes, groups = route_few(logits, per_token, plan, renormalised=renormalised, overlap=overlap)
    else:
        routes = route_tokens(
            logits, per_token, renormalised=renormalised, batch_invariant=batch_invariant, overlap=overlap
        )
        groups = group_pairs(routes.experts, num_experts, plan, overlap=True)
    middle = expert_linear(rows, gate_up, groups, plan, paired=True, bias=gate_up_bias, gate=gate, after="groups")
    products = expert_linear(middle, down, groups, plan, paired=False, bias=down_bias, after="rows")
    return sum_experts(
        products,
        routes.weights,
        shared=shared,
        shared_logits=shared_logits,
        residual=residual,
        residual_scale=residual_scale,
        batch_invariant=batch_invariant,
        overlap=True,
    )


def _plan(rows: torch.Tensor, weights: Experts, num_pairs: int, batch_invariant: bool) -> ExpertPlan:
    num_experts, hidden, width = weights.down.shape
    both = weights.gate_up, weights.down
    if on_cuda(rows) and all(isinstance(weight, StackedWeight) for weight in both):
        return plan_few_bits_experts(num_pairs, num_experts)
    if not on_cuda(rows) or not all(isinstance(weight, torch.Tensor) for weight in both):
        return ExpertPlan("torch", num_pairs, batch_invariant)
    return plan_experts(
        hidden,
        width,
        num_pairs,
        num_experts,
        tensor_cores=has_tensor_cores(rows),
        shared_limit=gpu(rows.device.index).shared_bytes,
        warpgroups=has_warpgroups(rows),
        batch_invariant=batch_invariant,
    )
