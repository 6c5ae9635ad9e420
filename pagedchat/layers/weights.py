"""Tensors that wait for a checkpoint, and the names under which it brings their parts.

A layer may keep in one tensor what a checkpoint stores as several (queries, keys and values of an attention are one
product). So it does not say "this is my weight" but "this is the place for that tensor": a view of its memory.
"""

from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import nn

Places = dict[str, torch.Tensor]
"""Name in the checkpoint -> where its values go; no two places overlap."""


def empty_parameter(*shape: int, dtype: torch.dtype | None = None) -> nn.Parameter:
    """A weight without values, of the default type if none is said, on the default device; never trained."""
    return nn.Parameter(torch.empty(shape, dtype=dtype), requires_grad=False)


@contextmanager
def new_tensors(dtype: torch.dtype, device: torch.device) -> Iterator[None]:
    """Inside, tensors are of this type and on this device if nothing else is said."""
    previous = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        with device:
            yield
    finally:
        torch.set_default_dtype(previous)
