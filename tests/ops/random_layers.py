"""Random caches, and states of decodes over them, for the ops that run several layers at once."""

import torch

from pagedchat.ops.sampling.decode_state import DecodeState


def random_cache(
    num_blocks: int, num_kv_heads: int, head_size: int, block_size: int, dtype: torch.dtype
) -> tuple[torch.Tensor, torch.Tensor]:
    """Keys and values of a layer, on the CPU."""
    caches = torch.randn(2, num_blocks, num_kv_heads, head_size, block_size).to(dtype)
    return caches[0].view(num_blocks, num_kv_heads, head_size // 8, block_size, 8), caches[1]


def random_decodes(positions: list[int], vocab_size: int, num_blocks: int, block_size: int) -> DecodeState:
    """On the CPU; a position of -1 is padding. No two sequences share a block."""

    def numbers(values: list[int]) -> torch.Tensor:
        return torch.tensor(values, dtype=torch.int32)

    width = max(positions) // block_size + 2
    tables = torch.randperm(num_blocks)[: len(positions) * width].int().view(len(positions), width)
    token_ids = torch.randint(vocab_size, (len(positions),), dtype=torch.int32)
    lens = [position + 1 for position in positions]
    history = torch.zeros(4, len(positions), dtype=torch.int32)
    return DecodeState(token_ids, numbers(positions), numbers(lens), tables, numbers([6]), history, numbers([0]))
