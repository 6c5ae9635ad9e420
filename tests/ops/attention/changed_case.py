"""Layout cases of sequences that begin with the same blocks, or whose newest tokens are not in the cache yet."""

import torch

from pagedchat.ops.attention.call import AttentionCall, AttentionOptions
from pagedchat.ops.attention.decode_split import launch_split
from pagedchat.ops.attention.new_heads import NewHeads
from pagedchat.ops.cache.heads_to_cache import heads_to_cache
from pagedchat.ops.common.norm import HeadNorms, Norm
from tests.ops.cuda_layout_case import LayoutCase


def share(case: LayoutCase, groups: list[tuple[int, int]], block_size: int) -> tuple[torch.Tensor, torch.Tensor]:
    """Let the members of each group (sequences, shared tokens) begin with the blocks of its first one.

    Returns:
        What `decode_shared` calls `shared_lens` and `group_starts`.
    """
    starts, lens, row = [0], [], 0
    for count, shared in groups:
        for member in range(row, row + count):
            case.block_tables[member, : shared // block_size] = case.block_tables[row, : shared // block_size]
            case.keys[member][:shared] = case.keys[row][:shared]
            case.values[member][:shared] = case.values[row][:shared]
        row += count
        starts.append(row)
        lens += [shared] * count
    device = case.query.device
    return (
        torch.tensor(lens, dtype=torch.int32, device=device),
        torch.tensor(starts, dtype=torch.int32, device=device),
    )


def without_newest(case: LayoutCase) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    """Heads with the newest keys and values behind the queries, and caches that lack those."""
    nothing = case.keys[0].new_zeros(1, *case.keys[0].shape[1:])
    newest = [
        torch.cat([rows[-1:] if len(rows) else nothing for rows in side]) for side in (case.keys, case.values)
    ]
    key_cache, value_cache = case.key_cache.clone(), case.value_cache.clone()
    block_size = value_cache.shape[3]
    for table, length in zip(case.block_tables.tolist(), case.seq_lens.tolist(), strict=True):
        if length:
            block, slot = table[(length - 1) // block_size], (length - 1) % block_size
            key_cache[block, :, :, slot] = float("nan")
            value_cache[block, :, :, slot] = float("nan")
    return torch.cat([case.query, *newest], dim=1), key_cache, value_cache


def check_new_heads(case: LayoutCase, *, normed: bool) -> None:
    """Heads that the kernel norms and turns itself are those that a launch before leaves it, up to rounding."""
    heads, *caches = without_newest(case)
    _, num_heads, head_size = case.query.shape
    new_heads = changes(head_size, heads.dtype, heads.device, normed=normed)
    assert not new_heads.objection(head_size)
    options, positions, longest = (
        AttentionOptions(scale=head_size**-0.5),
        case.seq_lens - 1,
        int(case.seq_lens.max()),
    )
    before = [heads.clone(), *(cache.clone() for cache in caches)]
    query = heads_to_cache(
        *before, case.block_tables, positions, norms=new_heads.norms, rotations=new_heads.rotations
    )
    wanted = AttentionCall.to_new(query.contiguous(), *before[1:], case.block_tables, case.seq_lens, options)
    launch_split(wanted, longest, None)
    call = AttentionCall.to_new(heads[:, :num_heads], *caches, case.block_tables, case.seq_lens, options)
    launch_split(call, longest, None, overlap=True, new_heads=new_heads)
    room = 4 * torch.finfo(heads.dtype).eps
    for ours, theirs in ((caches[0], before[1]), (caches[1], before[2]), (call.output, wanted.output)):
        torch.testing.assert_close(ours.nan_to_num(7.0), theirs.nan_to_num(7.0), rtol=room, atol=room)


def changes(head_size: int, dtype: torch.dtype, device: torch.device, *, normed: bool) -> NewHeads:
    """Norms with weights around one, and angles of positions."""
    generator = torch.Generator().manual_seed(5)
    angles = torch.arange(600)[:, None] * 10000.0 ** (-torch.arange(0, head_size, 2) / head_size)
    rotations = torch.stack((angles.cos(), angles.sin()), dim=-1).float().to(device)
    if not normed:
        return NewHeads(None, rotations)
    weights = [1 + 0.2 * torch.randn(head_size, generator=generator) for _ in range(2)]
    query, key = (
        Norm("rms", weight.to(device, dtype), None, eps) for weight, eps in zip(weights, (1e-6, 1e-3), strict=True)
    )
    return NewHeads(HeadNorms(query, key), rotations)
