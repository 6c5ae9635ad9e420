"""Pairs of a token and one of its experts, brought together expert by expert, on the device and without waiting."""

from typing import NamedTuple

import torch

from pagedchat.jit.launch import get_kernel, i32
from pagedchat.ops.common.checks import check_dtype, check_shape
from pagedchat.ops.common.launch import can_overlap, on_cuda, stream_of
from pagedchat.ops.experts.expert_plan import MOST_EXPERTS, ExpertPlan

NAME = "group_pairs"
_THREADS = 256


class Groups(NamedTuple):
    """Pairs by expert. Pair `token * per_token + slot` is a token and its expert in that slot."""

    order: torch.Tensor
    """`[num_pairs]`, int32: pairs, those of an expert together and in their order."""
    tiles: torch.Tensor
    """`[num_tiles, 4]`, int32: expert, first place in `order`, how many pairs, 0. What is left over has none."""


def group_pairs(experts: torch.Tensor, num_experts: int, plan: ExpertPlan, *, overlap: bool = False) -> Groups:
    """Sort pairs by expert.

    Args:
        experts: `[num_tokens, per_token]`, int32, contiguous; each below `num_experts`.
        num_experts: of the mixture.
        plan: says how large tiles are.
        overlap: the launch may begin before the kernel before it has ended, which makes `experts`.

    Raises:
        ValueError: another shape or type, or more experts than a kernel takes.
    """
    check_shape("experts", experts, None, None)
    check_dtype("experts", experts, torch.int32)
    if num_experts > MOST_EXPERTS or not experts.is_contiguous():
        raise ValueError(f"experts is not contiguous, or {num_experts} of them are more than {MOST_EXPERTS}")
    num_pairs = experts.numel()
    num_tiles = plan.num_tiles(num_pairs, num_experts)
    if not on_cuda(experts):
        return _grouped(experts.flatten(), num_experts, plan.tile_rows, num_tiles)
    groups = Groups(experts.new_empty(num_pairs), experts.new_empty(num_tiles, 4))
    args = (
        groups.order.data_ptr(),
        groups.tiles.data_ptr(),
        experts.data_ptr(),
        i32(num_pairs),
        i32(num_experts),
        i32(plan.tile_rows),
        i32(num_tiles),
    )
    kernel, overlap = get_kernel(NAME, experts.device.index), overlap and can_overlap(experts.device)
    kernel.launch(num_experts, _THREADS, args, stream=stream_of(experts), overlap=overlap)
    return groups


def _grouped(experts: torch.Tensor, num_experts: int, tile_rows: int, num_tiles: int) -> Groups:
    counts = torch.bincount(experts, minlength=num_experts)
    starts = counts.cumsum(0) - counts
    of_expert = -(-counts // tile_rows)
    expert = torch.repeat_interleave(of_expert)  # of each tile
    done = (
        torch.arange(len(expert), device=experts.device) - (of_expert.cumsum(0) - of_expert)[expert]
    ) * tile_rows
    found = torch.stack((expert, starts[expert] + done, (counts[expert] - done).clamp(max=tile_rows)), dim=1)
    tiles = experts.new_zeros(num_tiles, 4)
    tiles[: len(found), :3] = found
    return Groups(experts.argsort(stable=True).int(), tiles)
