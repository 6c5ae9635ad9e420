"""What the cases of `sanitize_kernels` share: inputs on the CPU, and an op run on both sides."""

from collections.abc import Callable

import torch

from pagedchat.ops.cache.layout import key_cache_shape, value_cache_shape

Tensors = list[torch.Tensor]
BLOCK_SIZE, NUM_KV_HEADS = 16, 2
SHARED = 128
"""Tokens of the prefix that all sequences begin with."""
TOLERANCE = 2e-2


def random_tensor(*shape: int, dtype: torch.dtype = torch.float16) -> torch.Tensor:
    """On the CPU."""
    return torch.randn(*shape).to(dtype)


def index(*values: int, dtype: torch.dtype = torch.int32) -> torch.Tensor:
    """Whole numbers on the CPU."""
    return torch.tensor(values, dtype=dtype)


def paged_inputs(lens: list[int], head_size: int, group_size: int, dtype: torch.dtype, num_tokens: int) -> Tensors:
    """Query, key cache, value cache, block tables with a common beginning, lengths."""
    width = -(-max(lens) // BLOCK_SIZE)
    common = SHARED // BLOCK_SIZE
    num_blocks = common + len(lens) * width
    tables = torch.arange(common, num_blocks, dtype=torch.int32).view(len(lens), width).clone()
    tables[:, :common] = torch.arange(common, dtype=torch.int32)
    return [
        random_tensor(num_tokens, NUM_KV_HEADS * group_size, head_size, dtype=dtype),
        torch.randn(key_cache_shape(num_blocks, NUM_KV_HEADS, head_size, BLOCK_SIZE, dtype)).to(dtype),
        torch.randn(value_cache_shape(num_blocks, NUM_KV_HEADS, head_size, BLOCK_SIZE)).to(dtype),
        tables,
        index(*lens),
    ]


def on_both(name: str, tensors: Tensors, op: Callable[[Tensors], Tensors]) -> bool:
    """Run `op` on the CPU and on the GPU; whether they agree. Says so."""
    expected = op([tensor.clone() for tensor in tensors])
    found = [tensor.cpu() for tensor in op([tensor.cuda() for tensor in tensors])]
    pairs = zip(found, expected, strict=True)
    worst = max((ours.double() - theirs.double()).abs().max().item() for ours, theirs in pairs)
    print(f"{name:<44} {'ok' if worst < TOLERANCE else 'WRONG'}  {worst:.1e}", flush=True)
    return worst < TOLERANCE
