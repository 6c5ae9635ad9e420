"""How the attention kernels on CUDA cores cut up their work. Arithmetic only."""

STEP_TOKENS = 32
"""Tokens a warp attends to at a time: `STEP_TOKENS` of kernels/attention/decode_simt.cu."""
NUM_WARPS = 4
"""Of a thread block that decodes."""
THREAD_BLOCKS = 4
"""For each multiprocessor; a batch that makes fewer has its sequences split."""
PREFILL_THREADS = 128
"""Of a thread block that prefills."""


def passes(group_size: int, head_size: int, element_bytes: int) -> int:
    """Thread blocks that share the query heads of one KV head: `PASSES` of kernels/attention/decode_simt.cu."""
    rows = head_size * element_bytes // 16
    max_heads = 1 if rows > 32 else 2 if rows > 16 else 4
    return -(-group_size // max_heads)


def num_parts(thread_blocks: int, longest: int, num_multiprocessors: int) -> int:
    """Into how many parts the longest sequence may go so that the GPU is filled.

    Args:
        thread_blocks: without parts.
        longest: tokens of a sequence that are looked at, at most.
        num_multiprocessors: of the GPU.
    """
    wanted = THREAD_BLOCKS * num_multiprocessors // thread_blocks
    return max(1, min(wanted, -(-longest // (STEP_TOKENS * NUM_WARPS))))


def tile_shape(head_size: int) -> tuple[int, int]:
    """Query rows and keys of a tile: `TILE_ROWS` and `TILE_KEYS` of kernels/attention/prefill_simt.cu."""
    if head_size > 128:
        return 32, 16
    return (64, 32) if head_size > 64 else (64, 64)


def shared_memory(head_size: int, tile_rows: int, tile_keys: int) -> int:
    """Bytes of that kernel's `Shared`: queries; keys or values; weights. Within what every GPU from sm_75 has."""
    queries = head_size // 4 * tile_rows
    keys_or_values = max(head_size // 4 * tile_keys, tile_keys // 4 * (head_size + 1))
    weights = tile_keys // 4 * (tile_rows + 2)
    return 16 * (queries + keys_or_values + weights)
