"""Which experts each token has, and how much each of them counts (Shazeer et al. 2017, arXiv 1701.06538)."""

from typing import NamedTuple

import torch

from pagedchat.jit.launch import get_kernel, i32
from pagedchat.ops.common.checks import check_shape
from pagedchat.ops.common.launch import can_overlap, ceil_div, element_name, on_cuda, stream_of
from pagedchat.ops.common.rows import row_by_row
from pagedchat.ops.experts.expert_plan import MOST_EXPERTS, MOST_PER_TOKEN

NAME = "route_tokens"
_NUM_WARPS = 4


class Routes(NamedTuple):
    """Of tokens."""

    experts: torch.Tensor
    """`[num_tokens, per_token]`, int32."""
    weights: torch.Tensor
    """`[num_tokens, per_token]`, float32."""


def route_tokens(
    logits: torch.Tensor,
    per_token: int,
    *,
    renormalised: bool,
    batch_invariant: bool = False,
    overlap: bool = False,
) -> Routes:
    """A softmax, of which each token keeps the highest; worked out in float32.

    Args:
        logits: `[num_tokens, num_experts]`, contiguous: how likely a router thinks each expert.
        per_token: experts of a token.
        renormalised: the weights of a token sum to one, which is a softmax over those chosen alone.
        batch_invariant: a token's weights do not depend on other tokens, by torch too.
        overlap: the launch may begin before the kernel before it has ended, which makes `logits`.

    Raises:
        ValueError: another shape, or more experts of a token than there are.
    """
    check_shape("logits", logits, None, None)
    num_tokens, num_experts = logits.shape
    if not 1 <= per_token <= num_experts:
        raise ValueError(f"per_token is {per_token}, expected 1 to {num_experts}")
    if not on_cuda(logits) or num_experts > MOST_EXPERTS or per_token > MOST_PER_TOKEN:
        likely = row_by_row(_softmax, logits) if batch_invariant else _softmax(logits)
        likely, experts = torch.topk(likely, per_token, dim=-1)
        if renormalised:
            likely /= row_by_row(_total, likely) if batch_invariant else _total(likely)
        return Routes(experts.int(), likely)
    rows = logits.contiguous()
    routes = Routes(
        torch.empty(num_tokens, per_token, dtype=torch.int32, device=logits.device),
        torch.empty(num_tokens, per_token, dtype=torch.float32, device=logits.device),
    )
    kernel = get_kernel(
        NAME,
        logits.device.index,
        ELEMENT=element_name(logits.dtype),
        NUM_EXPERTS=num_experts,
        PER_TOKEN=per_token,
        RENORMALISED=int(renormalised),
    )
    kernel.launch(
        ceil_div(num_tokens, _NUM_WARPS),
        32 * _NUM_WARPS,
        (routes.experts.data_ptr(), routes.weights.data_ptr(), rows.data_ptr(), i32(num_tokens)),
        stream=stream_of(logits),
        overlap=overlap and can_overlap(logits.device),
    )
    return routes


def _softmax(logits: torch.Tensor) -> torch.Tensor:
    return torch.softmax(logits, dim=-1, dtype=torch.float32)


def _total(likely: torch.Tensor) -> torch.Tensor:
    return likely.sum(dim=-1, keepdim=True)
