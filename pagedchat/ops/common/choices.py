"""Values that constants of several kernels take, and what some architectures cannot do. Loads no torch.

The `kernels.py` of a folder declares its kernels with these; `pagedchat.ops.catalogue` gathers them.
"""

from dataclasses import dataclass
from typing import Literal

from pagedchat.jit.kernel_file import Choices, Limit

ELEMENTS = ("float16", "bfloat16", "float32")
TENSOR_CORE_ELEMENTS = ("float16", "bfloat16")
HEAD_SIZES = (64, 80, 96, 112, 128, 256)
BLOCK_SIZES = (8, 16, 32)
GROUP_SIZES = (1, 4, 7, 8, 2, 32)
"""Some of the numbers of query heads to a KV head; a kernel takes any from 1 on."""
FLAG = (0, 1)
Activation = Literal["none", "relu", "silu", "gelu", "gelu_tanh", "relu2"]
"""What the middle of a feed-forward goes through."""
ACTIVATIONS: dict[Activation, int] = {"none": 0, "relu": 1, "silu": 2, "gelu": 3, "gelu_tanh": 4, "relu2": 5}
"""The `ACTIVATION` constant of the kernels (activation.cuh)."""
NORMS = (0, 1, 2, 3, 4)
"""The `NORM` constant (norm_kinds.cuh)."""

CACHE: Choices = {"ELEMENT": ELEMENTS, "HEAD_SIZE": HEAD_SIZES, "BLOCK_SIZE": BLOCK_SIZES}
"""What lies in the cache."""
_SCORES: Choices = {"GROUP_SIZE": GROUP_SIZES, "SOFT_CAP": FLAG, "ALIBI": FLAG}
ON_CUDA_CORES: Choices = {**CACHE, **_SCORES}
ON_TENSOR_CORES: Choices = {**ON_CUDA_CORES, "ELEMENT": TENSOR_CORE_ELEMENTS}
"""What attention over the cache is compiled for."""
CACHE_KINDS: Choices = {"CACHE_KIND": (0, 1, 2)}
"""What the cache holds, where a kernel reads one of bytes too: its elements, whole numbers, or floats of 8 bits."""
BYTES: Choices = {**CACHE, "ELEMENT": TENSOR_CORE_ELEMENTS, "CACHE_KIND": (1, 2)}
"""Of kernels that write such a cache."""
FINISHED: Choices = {"SINKS": FLAG}
"""What else, where rows are finished."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoreParts:
    """What a model does to its scores that is compiled in: attention of models without it pays nothing."""

    soft_cap: bool = False
    """They are bounded."""
    alibi: bool = False
    """They fall with the distance of a key."""
    sinks: bool = False
    """Heads have a score that belongs to no key."""


OVERLAPPING = frozenset({"sm_90", "sm_100", "sm_103", "sm_120"})
"""Where a launch may begin before the one before it has ended (programmatic dependent launch)."""
TURING = frozenset({"sm_75"})
NO_BFLOAT16 = Limit("tensor cores multiply bfloat16 from sm_80 on", TURING, where={"ELEMENT": ["bfloat16"]})
HOPPER_ONLY = Limit("warpgroup products (wgmma) exist on sm_90 alone", frozenset({"sm_90"}), but=True)
NO_BULK_COPIES = Limit("bulk copies exist from sm_90 on", OVERLAPPING, but=True)

H200_MULTIPROCESSORS = 132
H200_SHARED_BYTES = 227 << 10
"""For which plans are asked what `doctor --compile` compiles; what runs is planned for the GPU that is there."""


def has_tensor_cores(element: str, capability: tuple[int, int]) -> bool:
    """Whether a GPU multiplies elements of that type on tensor cores.

    Args:
        element: of `ELEMENTS`; of any other the answer is no.
        capability: compute capability of a GPU that the kernels support at all.
    """
    return element == "float16" or (element == "bfloat16" and capability >= (8, 0))
