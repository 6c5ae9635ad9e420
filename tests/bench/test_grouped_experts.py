"""Torch's grouped product, on a CPU through torch's own stand-in: the same as pair by pair."""

import pytest
import torch

from pagedchat.bench.kernels.products.grouped_experts import grouped_experts
from pagedchat.ops.experts.expert_plan import ExpertPlan
from pagedchat.ops.experts.group_pairs import group_pairs
from tests.ops.experts.mixture_case import exact_products, exact_routes, make_mixture
from tests.ops.paged_case import DEVICES
from tests.ops.products.small_batch_case import allowed, error


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("num_tokens", [1, 30, 333])
def test_agrees_with_the_definition(num_tokens: int, device: str) -> None:
    """Of eleven experts some have no pair."""
    mixture = make_mixture(num_tokens, 11, 3, hidden=64, width=40, dtype=torch.bfloat16, device=device)
    mixture.logits[:, 4:9] -= 100
    experts = exact_routes(mixture.logits, 3, renormalised=True)[0].int().to(device)
    order = group_pairs(experts, 11, ExpertPlan("tiles", 64)).order
    found = grouped_experts(mixture.rows, *mixture.experts[:2], experts, order)
    middle = exact_products(mixture.rows, mixture.experts.gate_up, experts, paired=True)
    wanted = exact_products(middle, mixture.experts.down, experts, paired=False)
    assert found.shape == wanted.shape
    assert error(found, wanted) < 2 * allowed(torch.bfloat16)
