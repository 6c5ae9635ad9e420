"""Torch's grouped product, on a CPU through torch's own stand-in: the same as pair by pair."""

import pytest
import torch

from pagedchat.ops.experts.expert_plan import ExpertPlan
from pagedchat.ops.experts.group_pairs import group_pairs
from pagedchat.ops.experts.library_experts import library_experts
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
    order = group_pairs(experts, 11, ExpertPlan("library", 64)).order
    found = library_experts(mixture.rows, *mixture.experts[:2], experts, order)
    middle = exact_products(mixture.rows, mixture.experts.gate_up, experts, paired=True)
    wanted = exact_products(middle, mixture.experts.down, experts, paired=False)
    assert found.shape == wanted.shape
    assert error(found, wanted) < 2 * allowed(torch.bfloat16)


@pytest.mark.parametrize("device", DEVICES)
def test_where_nobody_has_made_its_input_it_reads_and_writes_nothing_else(device: str) -> None:
    """As where kernels are looked for that a step wants."""
    mixture = make_mixture(20, 7, 2, hidden=64, width=40, dtype=torch.bfloat16, device=device)
    for experts in (1 << 30, -5, 6):
        for order in (1 << 30, -1 << 30, 39, 0):
            given = (torch.full((20, 2), experts).int().to(device), torch.full((40,), order).int().to(device))
            found = library_experts(mixture.rows, *mixture.experts[:2], *given)
            assert found.cpu().shape == (40, 64)


def test_wrong_arguments_are_named() -> None:
    mixture = make_mixture(2, 4, 2)
    experts, order = torch.zeros(2, 2, dtype=torch.int32), torch.arange(4, dtype=torch.int32)
    gate_up, down = mixture.experts[:2]
    with pytest.raises(ValueError, match=r"order has shape \[3\], expected \[4\]"):
        library_experts(mixture.rows, gate_up, down, experts, order[:3])
    with pytest.raises(ValueError, match=r"order is torch\.int64"):
        library_experts(mixture.rows, gate_up, down, experts, order.long())
    with pytest.raises(ValueError, match=r"gate_up has shape \[4, 63, 64\]"):
        library_experts(mixture.rows, gate_up[:, :63], down, experts, order)
