import pytest
import torch

from pagedchat.ops.experts.route_tokens import route_tokens
from tests.ops.experts.mixture_case import exact_routes
from tests.ops.paged_case import DEVICES
from tests.ops.products.small_batch_case import normal

KINDS = [(1, 1), (8, 2), (60, 4), (64, 8), (128, 8), (300, 32)]


@pytest.mark.parametrize("device", DEVICES)
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float32], ids=str)
@pytest.mark.parametrize("renormalised", [False, True])
@pytest.mark.parametrize(("num_experts", "per_token"), KINDS)
def test_the_most_likely_experts_and_their_shares(
    num_experts: int, per_token: int, renormalised: bool, dtype: torch.dtype, device: str
) -> None:
    for num_tokens in (1, 7):
        logits = normal(num_tokens, num_experts, device=device, dtype=torch.float32, scale=3.0)
        # no two alike once they are rounded, so that there is one answer
        logits = (logits.argsort(dim=1).argsort(dim=1) - num_experts / 2).div(16).to(dtype)
        experts, weights = exact_routes(logits, per_token, renormalised=renormalised)
        routes = route_tokens(logits, per_token, renormalised=renormalised)
        assert routes.experts.dtype == torch.int32
        assert routes.experts.tolist() == experts.tolist()
        torch.testing.assert_close(routes.weights.cpu().double(), weights, rtol=2e-6, atol=0)


@pytest.mark.parametrize("device", DEVICES)
def test_whatever_logits_are_each_expert_is_there_and_none_comes_twice(device: str) -> None:
    nan, inf = float("nan"), float("inf")
    logits = torch.zeros(5, 40, device=device)
    logits[1], logits[2], logits[3, ::2], logits[4, 7] = nan, -inf, nan, inf
    for row in route_tokens(logits, 8, renormalised=True).experts.tolist():
        assert len(set(row)) == 8
        assert all(0 <= expert < 40 for expert in row)


def test_more_experts_than_there_are_are_refused() -> None:
    with pytest.raises(ValueError, match="per_token is 5, expected 1 to 4"):
        route_tokens(torch.zeros(2, 4), 5, renormalised=False)
    with pytest.raises(ValueError, match=r"logits has shape \[4\]"):
        route_tokens(torch.zeros(4), 1, renormalised=False)
