"""Random caches and block tables for the attention kernels, and what their results are checked against."""

import torch

from pagedchat.bench.kernels.shapes import BLOCK_SIZE
from pagedchat.bench.kernels.timing import num_sets, rotated_bytes
from pagedchat.ops.cache.layout import from_token_major

DEVICE = "cuda"
TYPE = torch.float16


class RandomCache:
    """A paged cache of which every block belongs to one place of `block_tables`, in random order."""

    def __init__(self, *tables_shape: int, num_kv_heads: int, head_size: int) -> None:
        """`tables_shape` is that of `block_tables`, whatever its dimensions mean."""
        num_blocks = torch.Size(tables_shape).numel()
        self.num_kv_heads, self.head_size = num_kv_heads, head_size
        self.block_tables = torch.randperm(num_blocks, device=DEVICE).to(torch.int32).view(tables_shape)
        self.key_pages = random_tensor(num_blocks, BLOCK_SIZE, num_kv_heads, head_size)
        self.value_pages = random_tensor(num_blocks, BLOCK_SIZE, num_kv_heads, head_size)
        self.key_cache, self.value_cache = from_token_major(self.key_pages, self.value_pages)

    def gathered(self, block_table: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of the blocks in order, each `[*batch, num_tokens, num_kv_heads, head_size]`, copies."""
        blocks = block_table.long()
        shape = (*blocks.shape[:-1], -1, self.num_kv_heads, self.head_size)
        return self.key_pages[blocks].view(shape), self.value_pages[blocks].view(shape)


def random_tensor(*shape: int) -> torch.Tensor:
    """Normal numbers of the type that everything is measured in."""
    return torch.randn(shape, device=DEVICE, dtype=TYPE)


def num_rotated_sets(bytes_a_call: int) -> int:
    """Input sets that do not fit into this GPU's L2 together."""
    return num_sets(bytes_a_call, rotated_bytes(torch.cuda.get_device_properties(DEVICE).L2_cache_size))


def reference_attention(query: torch.Tensor, key: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Attention of one token in float64.

    Args:
        query: `[num_heads, head_size]`.
        key, value: `[num_tokens, num_kv_heads, head_size]`.

    Returns:
        `[num_heads, head_size]`.
    """
    num_kv_heads, head_size = key.shape[1:]
    grouped = query.double().view(num_kv_heads, -1, head_size)  # [num_kv_heads, group_size, head_size]
    scores = torch.einsum("hgd,thd->hgt", grouped, key.double()) * head_size**-0.5
    return torch.einsum("hgt,thd->hgd", scores.softmax(-1), value.double()).flatten(0, 1)
