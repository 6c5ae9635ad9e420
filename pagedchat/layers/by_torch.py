"""The switch between kernels and torch, of every layer that multiplies by kernels of our own. Knows no kernel."""

from collections.abc import Iterator
from contextlib import contextmanager

from torch import nn


class HasKernels:
    """A layer that multiplies by kernels of our own, unless torch is to do it."""

    by_torch = False
    """Whether torch multiplies, by weights of few bits as floats: slower, and what kernels are held against."""


@contextmanager
def by_torch(model: nn.Module) -> Iterator[None]:
    """Inside, torch multiplies in all layers of a model."""
    layers = [module for module in model.modules() if isinstance(module, HasKernels)]
    before = [layer.by_torch for layer in layers]
    do_without_kernels(model)
    try:
        yield
    finally:
        for layer, was in zip(layers, before, strict=True):
            layer.by_torch = was


def do_without_kernels(model: nn.Module) -> None:
    """Have torch multiply in all layers of a model from now on."""
    for module in model.modules():
        if isinstance(module, HasKernels):
            module.by_torch = True
