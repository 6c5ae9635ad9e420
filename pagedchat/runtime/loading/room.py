"""Whether a model fits beside one that is there already, found out before any of its weights is read.

What is counted is what it takes at least: its weights in the bits in which they will be kept, and a pool for one
short chat. Arithmetic on bytes; what is free is measured by whoever asks.
"""

from pathlib import Path

from pagedchat.errors import DeviceError
from pagedchat.models.checkpoint_files import weight_files
from pagedchat.models.description import ModelDescription
from pagedchat.models.native import count_parameters
from pagedchat.models.quantized.mxfp4 import STORED_AS
from pagedchat.runtime.attention.backend import CacheShape
from pagedchat.runtime.loading.memory import graph_memory
from pagedchat.runtime.loading.precision import Precision
from pagedchat.units import format_size

SMALLEST_POOL_TOKENS = 1024
"""A chat that is shorter than that is none."""
_BITS = {"int8": 8, "int4": 4, "fp8": 8}
_WEIGHTS = ("*.safetensors", "*.bin", "*.gguf")


def refuse_without_room(name: str, weights: int, shape: CacheShape, free: int, gpu: int = 0) -> None:
    """Say that a model does not fit beside the other one.

    Args:
        name: of the model.
        weights: bytes, as they will be kept.
        shape: of its cache.
        free: bytes where it is to run.
        gpu: of all its memory, if that is a GPU; captured steps take a part of it, too.

    Raises:
        DeviceError: it does not fit; the sentence states what it needs and what is free.
    """
    pool = -(-SMALLEST_POOL_TOKENS // shape.block_size) * shape.block_bytes
    steps = graph_memory(gpu)
    if weights + pool + steps <= free:
        return
    parts = f"{format_size(weights)} of weights, {format_size(pool)} for the smallest pool"
    parts += f", {format_size(steps)} for captured steps" if gpu else ""
    where = "of the GPU's memory" if gpu else "of memory"
    both = "--gpu-memory-utilization 0.45 at the start leaves room for two" if gpu else "close other programs"
    raise DeviceError(
        f"{name} needs {format_size(weights + pool + steps)} beside the other model ({parts}), and "
        f"{format_size(max(0, free))} {where} are free.",
        f"Choose a smaller one, or {both}.",
    )


def weight_bytes(description: ModelDescription, precision: Precision) -> int:
    """What the weights take at least, in the bits in which they will be kept.

    Those of few bits that are stored so, and those of strangers, take what their files do, but for MXFP4, which is
    kept in 8 bits.
    """
    stored_as = description.stored_as if precision.keeps_bits else ""
    if description.native is None or stored_as not in ("", STORED_AS):
        return _file_bytes(description.name, description.folder)
    quantization = precision.quantization or ("int8" if stored_as else None)
    bits = _BITS[quantization] if quantization else 8 * precision.dtype.itemsize
    return count_parameters(description.native) * bits // 8


def _file_bytes(name: str, place: Path) -> int:
    if place.is_file():
        return sum(file.stat().st_size for file in weight_files(name, place))
    return max(sum(file.stat().st_size for file in place.glob(pattern)) for pattern in _WEIGHTS)
