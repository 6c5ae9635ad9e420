"""What the middle of a feed-forward goes through, in torch."""

from collections.abc import Callable
from functools import partial

import torch
from torch.nn import functional

from pagedchat.ops.common.choices import Activation


def _relu2(rows: torch.Tensor) -> torch.Tensor:
    return functional.relu(rows).square()


def _unchanged(rows: torch.Tensor) -> torch.Tensor:
    return rows


_FUNCTIONS: dict[Activation, Callable[[torch.Tensor], torch.Tensor]] = {
    "none": _unchanged,
    "relu": functional.relu,
    "silu": functional.silu,
    "gelu": functional.gelu,
    "gelu_tanh": partial(functional.gelu, approximate="tanh"),
    "relu2": _relu2,
}


def activated(rows: torch.Tensor, activation: Activation) -> torch.Tensor:
    """Any shape -> the same."""
    return _FUNCTIONS[activation](rows)
