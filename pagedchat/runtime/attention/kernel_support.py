"""What our kernels can do, on which GPUs. What they cannot, the torch backend does."""

from collections.abc import Iterable

import torch

from pagedchat.ops.common.choices import BLOCK_SIZES, ELEMENTS, HEAD_SIZES, has_tensor_cores
from pagedchat.runtime.attention.backend import CacheShape

OLDEST_GPU = (7, 5)
"""Compute capability of the first GPU that has the tensor core and asynchronous instructions used (Turing)."""


def missing_support(shape: CacheShape, device: torch.device) -> str:
    """Why the kernels cannot serve this cache, in words that go after "because"; empty if they can."""
    if device.type != "cuda":
        return "the model does not run on a GPU"
    capability = torch.cuda.get_device_capability(device)
    if capability < OLDEST_GPU:
        return f"the GPU has compute capability {_dotted(capability)} and they need {_dotted(OLDEST_GPU)}"
    return missing_shape(shape) or missing_for_bytes(shape, capability)


def missing_for_bytes(shape: CacheShape, capability: tuple[int, int]) -> str:
    """The same of a cache of bytes, which is read through tensor cores."""
    if shape.kind is None:
        return ""
    if not has_tensor_cores(_name(shape.dtype), capability):
        return f"the cache is {shape.kind} and tensor cores do not multiply {_name(shape.dtype)}"
    if capability < (8, 0) and shape.head_dim == max(HEAD_SIZES):
        return f"the cache is {shape.kind} and heads of {shape.head_dim} find no room on tensor cores before 8.0"
    return ""


def missing_shape(shape: CacheShape) -> str:
    """The same for the shape alone, whatever the GPU."""
    if _name(shape.dtype) not in ELEMENTS:
        return f"the cache is {_name(shape.dtype)} and they are for {_listed(ELEMENTS)}"
    if shape.head_dim not in HEAD_SIZES:
        return f"the head size is {shape.head_dim} and they are for {_listed(HEAD_SIZES)}"
    if shape.block_size not in BLOCK_SIZES:
        return f"the block size is {shape.block_size} and they are for {_listed(BLOCK_SIZES)}"
    return ""


def uses_tensor_cores(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether decodes go through tensor cores; on a CPU as on the newest GPU."""
    newest = device.type != "cuda"
    return has_tensor_cores(_name(dtype), (9, 0) if newest else torch.cuda.get_device_capability(device))


def _name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def _listed(names: Iterable[object]) -> str:
    *first, last = map(str, names)
    return f"{', '.join(first)} and {last}"


def _dotted(capability: tuple[int, int]) -> str:
    return f"{capability[0]}.{capability[1]}"
