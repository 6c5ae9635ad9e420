"""What every op that launches a CUDA kernel needs: the name of its element type, its stream, where tensors lie."""

from functools import cache

import torch

_ELEMENT_NAMES = {torch.float16: "float16", torch.bfloat16: "bfloat16", torch.float32: "float32"}


def element_name(dtype: torch.dtype) -> str:
    """The `ELEMENT` constant of the kernels for a torch type.

    Raises:
        ValueError: the kernels have no such element type.
    """
    if dtype not in _ELEMENT_NAMES:
        raise ValueError(f"element type is {dtype}, expected one of {', '.join(map(str, _ELEMENT_NAMES))}")
    return _ELEMENT_NAMES[dtype]


def current_stream(device: torch.device) -> int:
    """Handle of torch's current stream on a GPU.

    As Triton asks for it: `torch.cuda.current_stream` makes an object each time, which takes longer than a launch.
    """
    stream: int = torch._C._cuda_getCurrentRawStream(device.index)
    return stream


def stream_of(tensor: torch.Tensor) -> int:
    """Handle of torch's current stream on the tensor's device, so that launches keep their order with torch's."""
    return current_stream(tensor.device)


@cache
def can_overlap(device: torch.device) -> bool:
    """Whether a kernel may start before the one before it has ended (programmatic dependent launch, sm_90)."""
    return torch.cuda.get_device_capability(device) >= (9, 0)


def on_cuda(*tensors: torch.Tensor) -> bool:
    """Whether all the tensors lie on a GPU."""
    return all(tensor.is_cuda for tensor in tensors)


def ceil_div(a: int, b: int) -> int:
    """How many times `b` it takes to hold `a`."""
    return -(-a // b)


def with_whole_rows(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor itself if its last dimension can be read 16 bytes at a time, otherwise a contiguous copy.

    Args:
        tensor: any shape with at least one dimension; the last one a multiple of 16 bytes.
    """
    *outer, last = tensor.stride()
    aligned = all(stride * tensor.itemsize % 16 == 0 for stride in outer) and tensor.data_ptr() % 16 == 0
    return tensor if last == 1 and aligned else tensor.clone(memory_format=torch.contiguous_format)
