"""How many blocks fit. Plain arithmetic on bytes; what is free is measured elsewhere."""

from pagedchat.config import GIB
from pagedchat.errors import DeviceError
from pagedchat.units import format_size

MAX_DEFAULT_CPU_CACHE = 4 * GIB
CPU_CACHE_SHARE = 0.25
"""Part of free memory that the cache takes on a CPU if nothing else is said."""
HOST_SHARE = 0.25
"""Part of free memory that swapped blocks may take at most."""
MAX_GRAPH_MEMORY = 2 * GIB
GRAPH_SHARE = 0.04
"""Part of a GPU that captured steps may take, outside of the share that weights, activations and cache may."""


def num_blocks_for(memory: int, block_bytes: int) -> int:
    """Blocks that fit into `memory` bytes.

    Args:
        memory: bytes for the cache.
        block_bytes: bytes of one block, K and V of all layers.

    Raises:
        DeviceError: not even one fits.
    """
    num_blocks = memory // block_bytes
    if num_blocks < 1:
        raise DeviceError(
            f"The KV cache may take {format_size(max(memory, 0))}, but one block takes {format_size(block_bytes)}.",
            "Free some memory, raise --kv-cache-memory or --gpu-memory-utilization, or choose a smaller model.",
        )
    return num_blocks


def check_fits(num_blocks: int, block_bytes: int, memory: int) -> None:
    """Refuse a pool that is larger than what is free.

    Raises:
        DeviceError: it does not fit.
    """
    if num_blocks * block_bytes > memory:
        raise DeviceError(
            f"{num_blocks} blocks take {format_size(num_blocks * block_bytes)}, "
            f"but {format_size(max(memory, 0))} are free.",
            "Lower --num-blocks or --kv-cache-memory, or leave both out to size the pool from free memory.",
        )


def default_cpu_memory(available: int) -> int:
    """Bytes for the cache on a CPU with `available` bytes free: a quarter of it, at most 4 GiB."""
    return min(MAX_DEFAULT_CPU_CACHE, int(available * CPU_CACHE_SHARE))


def graph_memory(total: int) -> int:
    """Bytes that captured steps may take on a GPU of `total` bytes, with what the driver keeps for them, the 8-bit
    copy of the vocabulary that some of them read, and the counts of tokens for penalties."""
    return min(MAX_GRAPH_MEMORY, int(total * GRAPH_SHARE))


def cuda_memory(total: int, free: int, reserved: int, peak: int, utilization: float) -> int:
    """Bytes for the cache on a GPU after the profiling run.

    Args:
        total, free: of the whole GPU, as the driver tells.
        reserved: held by this process' allocator, and therefore not free.
        peak: the most that weights and activations took together.
        utilization: share of the GPU that weights, activations and cache may take together.

    Returns:
        What is left of that share when the peak and everybody else's memory are taken off, or of all that is free
        when the peak and captured steps are, whichever is less; may be negative.
    """
    elsewhere = total - free - reserved
    return min(int(total * utilization) - peak - elsewhere, free + reserved - peak - graph_memory(total))


def useful_blocks(model_len: int, block_size: int, max_num_seqs: int) -> int:
    """Blocks that the largest batch of the longest sequences takes."""
    return max_num_seqs * -(-model_len // block_size)


def num_host_blocks_for(swap_space: int, available: int, block_bytes: int, limit: int) -> int:
    """Host blocks: what `swap_space` holds, within a quarter of free memory and within `limit` blocks; may be 0."""
    return min(min(swap_space, int(available * HOST_SHARE)) // block_bytes, limit)
