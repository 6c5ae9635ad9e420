"""What every op that launches a CUDA kernel needs: where tensors lie, their types by name, facts of the GPU."""

from functools import cache

import torch

from pagedchat.jit.driver import gpu
from pagedchat.ops.common import choices

PIECE_BYTES = 16
"""What a thread of most kernels reads or writes at a time."""
ELEMENT_NAMES = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float32: "float32"}


# --- tensors --------------------------------------------------------------------------------------------


def element_name(dtype: torch.dtype) -> str:
    """The `ELEMENT` constant of the kernels for a torch type.

    Raises:
        ValueError: the kernels have no such element type.
    """
    if dtype not in ELEMENT_NAMES:
        raise ValueError(f"element type is {dtype}, expected one of {', '.join(map(str, ELEMENT_NAMES))}")
    return ELEMENT_NAMES[dtype]


def address(tensor: torch.Tensor | None) -> int:
    """Of a tensor's memory; 0 for none."""
    return 0 if tensor is None else tensor.data_ptr()


def on_cuda(*tensors: torch.Tensor) -> bool:
    """Whether all the tensors lie on a GPU."""
    return all(tensor.is_cuda for tensor in tensors)


def across_link(source: torch.Tensor, target: torch.Tensor) -> bool:
    """Whether one tensor lies on a GPU and the other in host memory that the GPU reaches at its own address."""
    if source.is_cuda == target.is_cuda:
        return False
    return (target if source.is_cuda else source).is_pinned()


def with_whole_rows(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself if its last dimension can be read 16 bytes at a time, otherwise a contiguous copy.

    Args:
        tensor: any shape with at least one dimension; the last one a multiple of 16 bytes.
    """
    *outer, last = tensor.stride()
    readable, step = last == 1 and tensor.data_ptr() % PIECE_BYTES == 0, PIECE_BYTES // tensor.itemsize
    for stride in outer:  # a plain loop: this runs in every layer
        if stride % step:
            readable = False
    return tensor if readable else tensor.clone(memory_format=torch.contiguous_format)  # `contiguous` keeps more


def ceil_div(a: int, b: int) -> int:
    """How many times `b` it takes to hold `a`."""
    return -(-a // b)


# --- the GPU --------------------------------------------------------------------------------------------


def current_stream(device: torch.device) -> int:
    """Handle of torch's current stream on a GPU.

    As Triton asks for it: `torch.cuda.current_stream` makes an object each time, which takes longer than a launch.
    """
    stream: int = torch._C._cuda_getCurrentRawStream(device.index)
    return stream


def stream_of(tensor: torch.Tensor) -> int:
    """Handle of torch's current stream on the tensor's device, so that launches keep their order with torch's."""
    return current_stream(tensor.device)


def compute_capability(device: torch.device) -> tuple[int, int]:
    """Of a GPU; elsewhere that of Hopper, so that choices on a CPU are those of a GPU."""
    return gpu(device.index).compute_capability if device.type == "cuda" else (9, 0)


@cache
def can_overlap(device: torch.device) -> bool:
    """Whether a kernel may start before the one before it has ended (programmatic dependent launch, sm_90).

    The same GPUs have bulk copies and clusters.
    """
    return compute_capability(device) >= (9, 0)


def has_warpgroups(tensor: torch.Tensor) -> bool:
    """Whether the tensor's GPU multiplies its type by warpgroups, as Hopper does and nothing before or since."""
    is_half = tensor.dtype in (torch.float16, torch.bfloat16)
    return is_half and on_cuda(tensor) and gpu(tensor.device.index).compute_capability == (9, 0)


def has_tensor_cores(tensor: torch.Tensor) -> bool:
    """Whether the tensor's GPU multiplies its type on tensor cores."""
    return choices.has_tensor_cores(ELEMENT_NAMES.get(tensor.dtype, ""), compute_capability(tensor.device))
