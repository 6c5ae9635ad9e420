"""Small kernels compiled for the CPU, and whether this machine can do that."""

from pathlib import Path

import pytest
import torch

from pagedchat.errors import KernelError
from pagedchat.jit.kernel import Size
from pagedchat.jit.variant import Constant, Variant
from tools.emulator.compiler import find_compiler
from tools.emulator.kernel import EmulatedKernel

FOLDER = Path(__file__).with_name("emulated_kernels")
SEEDS = range(6)


def why_not() -> str:
    """Why there is no emulator here; empty if there is."""
    try:
        find_compiler()
    except KernelError as error:
        return str(error)
    return ""


needs_compiler = pytest.mark.skipif(bool(why_not()), reason=why_not())


class Kernels:
    """The entry points of a small file of emulated_kernels/."""

    def __init__(self, stem: str, folder: Path = FOLDER, **constants: Constant) -> None:
        self._folder, self._variant = folder, Variant.of(stem, **constants)
        self.constants = constants
        self._kernels: dict[str, EmulatedKernel] = {}

    def run(
        self, entry: str, *tensors: torch.Tensor, grid: Size = 1, threads: int = 64, seed: int = 1, shared: int = 0
    ) -> None:
        if entry not in self._kernels:
            self._kernels[entry] = EmulatedKernel(self._variant, entry, self._folder)
        self._kernels[entry].seed = seed
        self._kernels[entry].launch(grid, threads, [tensor.data_ptr() for tensor in tensors], shared_bytes=shared)
