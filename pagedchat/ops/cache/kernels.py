"""What the kernels of the cache are compiled for. Loads no torch."""

from pagedchat.jit.kernel_file import Choices, KernelFile, Use
from pagedchat.ops.common.choices import CACHE, FLAG

_HEADS: Choices = {**CACHE, "ROTARY": FLAG, "HEAD_NORM": (0, 1, 2), "BY_SLOT": FLAG}

KERNELS = (
    KernelFile("reshape_and_cache", ("reshape_and_cache", "reshape_and_cache_runs"), Use.ANY_MODEL, CACHE),
    KernelFile("gather_cached_kv", ("gather_cached_kv",), Use.LIBRARY, CACHE),
    KernelFile("copy_blocks", ("copy_blocks",), Use.ANY_MODEL),
    KernelFile("swap_blocks", ("swap_blocks",), Use.ANY_MODEL),
    KernelFile("heads_to_cache", ("heads_to_cache",), Use.CAPTURED_STEPS, _HEADS),
)
