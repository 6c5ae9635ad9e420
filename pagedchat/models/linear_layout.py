"""How linear layers lie in memory on a CPU.

MKL multiplies a few rows (a batch of decoding sequences) by a matrix up to twice as fast when the matrix is stored
`[in_features, out_features]`; for one row or hundreds it makes no difference. A `Linear` keeps its shape
`[out_features, in_features]`, only its strides change, and nothing else in the model notices.
"""

import torch
from torch import nn

SHARED_SHARE = 0.125
"""Part of free memory that the copy of a shared weight may take."""


def transpose_in_memory(model: nn.Module, available: int) -> None:
    """Store the weights of all linear layers transposed.

    A weight that is also an embedding's stays as it is for the embedding, whose rows must be contiguous; the linear
    layer gets a copy if that takes little of the memory.

    Args:
        model: on a CPU; changed in place.
        available: bytes of free main memory.
    """
    embedded = {module.weight.data_ptr() for module in model.modules() if isinstance(module, nn.Embedding)}
    for module in model.modules():
        if type(module) is not nn.Linear:
            continue
        weight = module.weight
        shared = weight.data_ptr() in embedded
        if not shared or weight.numel() * weight.element_size() <= available * SHARED_SHARE:
            transposed = weight.data.t().contiguous().t()
            module.weight = nn.Parameter(transposed, requires_grad=False)


def worth_transposing(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether the products of this type on this device go through MKL."""
    has_mkl = bool(torch.backends.mkl.is_available())  # type: ignore[no-untyped-call]
    return has_mkl and device.type == "cpu" and dtype == torch.float32
