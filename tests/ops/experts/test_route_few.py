import pytest
import torch

from pagedchat.ops.experts.expert_plan import MOST_FEW_PAIRS, ExpertPlan
from pagedchat.ops.experts.group_pairs import group_pairs
from pagedchat.ops.experts.route_few import route_few
from pagedchat.ops.experts.route_tokens import route_tokens
from tests.ops.paged_case import DEVICES
from tests.ops.products.small_batch_case import normal


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("renormalised", [False, True])
@pytest.mark.parametrize(
    ("num_tokens", "num_experts", "per_token"), [(1, 128, 8), (64, 128, 8), (1, 1, 1), (37, 8, 2), (16, 1000, 32)]
)
def test_it_is_what_the_two_give_one_after_the_other(
    num_tokens: int, num_experts: int, per_token: int, renormalised: bool, device: str
) -> None:
    for dtype, tile_rows in ((torch.float16, 8), (torch.float32, 16)):
        logits, plan = (
            normal(num_tokens, num_experts, device=device, dtype=dtype),
            ExpertPlan("registers", tile_rows),
        )
        routes, groups = route_few(logits, per_token, plan, renormalised=renormalised)
        wanted = route_tokens(logits, per_token, renormalised=renormalised)
        assert torch.equal(routes.experts, wanted.experts)
        assert torch.equal(routes.weights, wanted.weights)
        for found, expected in zip(groups, group_pairs(wanted.experts, num_experts, plan), strict=True):
            assert torch.equal(found, expected)


def test_more_pairs_than_a_thread_block_has_room_for_are_refused() -> None:
    plan = ExpertPlan("torch", 8)
    with pytest.raises(ValueError, match=f"520 pairs are more than {MOST_FEW_PAIRS}"):
        route_few(torch.zeros(65, 16), 8, plan, renormalised=False)
    with pytest.raises(ValueError, match="per_token is 5, expected 1 to 4"):
        route_few(torch.zeros(2, 4), 5, plan, renormalised=False)
