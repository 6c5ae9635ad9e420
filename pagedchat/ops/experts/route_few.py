"""Routes of a few tokens, and their pairs expert by expert, in one launch."""

import torch

from pagedchat.jit.launch import get_kernel, i32
from pagedchat.ops.common.launch import can_overlap, element_name, on_cuda, stream_of
from pagedchat.ops.experts.expert_plan import MOST_EXPERTS, MOST_FEW_PAIRS, MOST_PER_TOKEN, ExpertPlan
from pagedchat.ops.experts.group_pairs import Groups, group_pairs
from pagedchat.ops.experts.route_tokens import Routes, route_tokens

NAME = "route_few"
_THREADS = 1024


def route_few(
    logits: torch.Tensor, per_token: int, plan: ExpertPlan, *, renormalised: bool, overlap: bool = False
) -> tuple[Routes, Groups]:
    """What `route_tokens` and `group_pairs` give.

    Args:
        logits: `[num_tokens, num_experts]`, of a router; no more than `MOST_FEW_PAIRS` pairs come of them.
        per_token: experts of a token.
        plan: says how large tiles are, and whether a token may depend on others.
        renormalised, overlap: as `route_tokens` has them.

    Raises:
        ValueError: too many pairs, or what the other two say of their arguments.
    """
    num_tokens, num_experts = logits.shape
    num_pairs = num_tokens * per_token
    if num_pairs > MOST_FEW_PAIRS:
        raise ValueError(f"{num_pairs} pairs are more than {MOST_FEW_PAIRS}")
    if not on_cuda(logits) or num_experts > MOST_EXPERTS or not 1 <= per_token <= min(num_experts, MOST_PER_TOKEN):
        routes = route_tokens(logits, per_token, renormalised=renormalised, batch_invariant=plan.batch_invariant)
        return routes, group_pairs(routes.experts, num_experts, plan)
    device, rows = logits.device, logits.contiguous()
    experts = torch.empty(num_tokens, per_token, dtype=torch.int32, device=device)
    routes = Routes(experts, torch.empty(num_tokens, per_token, dtype=torch.float32, device=device))
    tiles = experts.new_empty(plan.num_tiles(num_pairs, num_experts), 4)
    groups = Groups(experts.new_empty(num_pairs), tiles)
    kernel = get_kernel(
        NAME,
        device.index,
        ELEMENT=element_name(logits.dtype),
        NUM_EXPERTS=num_experts,
        PER_TOKEN=per_token,
        RENORMALISED=int(renormalised),
    )
    tensors = (tensor.data_ptr() for tensor in (*routes, *groups, rows))
    overlap = overlap and can_overlap(device)
    sizes = (i32(num_tokens), i32(plan.tile_rows), i32(len(tiles)))
    kernel.launch(1, _THREADS, (*tensors, *sizes), stream=stream_of(logits), overlap=overlap)
    return routes, groups
