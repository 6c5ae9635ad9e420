"""Activation functions by the names that configs give them."""

from collections.abc import Callable
from functools import partial

import torch
from torch.nn import functional

Activation = Callable[[torch.Tensor], torch.Tensor]


def _relu2(values: torch.Tensor) -> torch.Tensor:
    """Squared ReLU (So et al. 2021, arXiv 2109.08668)."""
    return functional.relu(values).square()


_gelu_tanh = partial(functional.gelu, approximate="tanh")

ACTIVATIONS: dict[str, Activation] = {
    "relu": functional.relu,
    "relu2": _relu2,
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_pytorch_tanh": _gelu_tanh,
    "gelu_new": _gelu_tanh,
    "gelu_fast": _gelu_tanh,
}
