"""What a block takes, in which type, and what that saves beside the type that the model computes in. Made of what
the engine said of itself alone.
"""

from pagedchat.chat.sanitize import one_line
from pagedchat.events import EngineReady
from pagedchat.units import format_size

_ELEMENT_BYTES = {"float64": 8, "float32": 4, "float16": 2, "bfloat16": 2}


def saved_bytes(info: EngineReady) -> int:
    """Of one block; 0 where the cache is of the type that the model computes in."""
    if not info.kv_cache_dtype or info.dtype not in _ELEMENT_BYTES:
        return 0
    elements = 2 * info.num_layers * info.block_size * info.num_kv_heads * info.head_dim
    return max(0, elements * _ELEMENT_BYTES[info.dtype] - info.block_bytes)


def block_bytes_text(info: EngineReady) -> str:
    """`"74.2 KiB"`, or `"74.2 KiB, int8, saves 214 KiB"`."""
    parts = [format_size(info.block_bytes) + f" on each of {len(info.ranks)} ranks" * bool(info.ranks)]
    if info.kv_cache_dtype:
        parts.append(one_line(info.kv_cache_dtype))
    if saved := saved_bytes(info):
        parts.append(f"saves {format_size(saved)}")
    return ", ".join(parts)
