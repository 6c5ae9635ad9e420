"""Layout cases of sequences that begin with the same blocks, or whose newest tokens are not in the cache yet."""

import torch

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
