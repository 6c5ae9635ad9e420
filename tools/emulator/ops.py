"""The ops of pagedchat on the emulator: within `kernels_on_cpu` they launch their kernels on tensors of the CPU.

What asks about a GPU in `pagedchat.ops` is answered as if there were one of sm_90, and all tensors lay on it or in
host memory that it reaches.
"""

import importlib
import pkgutil
from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType
from typing import Any

import torch

import pagedchat.ops
from pagedchat.jit.driver import Gpu
from pagedchat.jit.variant import Constant, Variant
from tools.emulator.errors import KernelFaultError
from tools.emulator.kernel import SHARED_LIMIT, EmulatedKernel
from tools.emulator.tensor_map import emulated_tensor_map

_CAPABILITY = (9, 0)


class EmulatedKernels:
    """Kernels by name, in place of `pagedchat.jit.launch.KernelStore`; each is built once.

    Args:
        seed: of all launches; see `EmulatedKernel`.
    """

    def __init__(self, seed: int = 1) -> None:
        self.seed = seed
        self._kernels: dict[tuple[Variant, str | None], EmulatedKernel] = {}

    def get(
        self, stem: str, device_index: int | None = None, entry: str | None = None, **constants: Constant
    ) -> EmulatedKernel:
        """The kernel `entry` (`stem` by default) of `{stem}.cu`, compiled with `constants`."""
        key = (Variant.of(stem, **constants), entry)
        if key not in self._kernels:
            self._kernels[key] = EmulatedKernel(*key, seed=self.seed)
        return self._kernels[key]

    @property
    def num_launches(self) -> int:
        """Of all kernels."""
        return sum(kernel.num_launches for kernel in self._kernels.values())

    @property
    def launched(self) -> set[str]:
        """Names of kernels."""
        return {kernel.entry for kernel in self._kernels.values() if kernel.num_launches > 0}


@contextmanager
def kernels_on_cpu(*, seed: int = 1, num_multiprocessors: int = 132) -> Iterator[EmulatedKernels]:
    """Within it, ops launch their kernels on the CPU.

    Args:
        seed: of the order in which warps run and copies land; 0 is in order and nobody is slow.
        num_multiprocessors: that ops believe in; fewer make fewer thread blocks where a kernel fills the GPU.

    Raises:
        KernelFaultError: at the end, if launches left counters of arrivals that the next ones would go on with.
    """
    kernels, counters = EmulatedKernels(seed), _Counters()
    answers = _answers(kernels, counters, num_multiprocessors)
    before: list[tuple[ModuleType, str, Any]] = []
    for module in _modules():
        _forget(module)
        for name in answers.keys() & vars(module).keys():
            before.append((module, name, getattr(module, name)))
            setattr(module, name, answers[name])
    try:
        yield kernels
        counters.check()
    finally:
        for module, name, value in before:
            setattr(module, name, value)
            _forget(module)


class _Counters:
    """Of arrivals, for launches whose thread blocks merge: zero between launches; and words that they hand over."""

    def __init__(self) -> None:
        self._found: dict[tuple[int, str], torch.Tensor] = {}
        self._words: dict[int, torch.Tensor] = {}

    def get(self, _device: torch.device, count: int, purpose: str = "") -> torch.Tensor:
        """`[count]`, int32, and no more: so that a fence can be behind them."""
        return self._found.setdefault((count, purpose), torch.zeros(count, dtype=torch.int32))

    def words(self, _device: torch.device, count: int) -> torch.Tensor:
        """The same of words that are not there."""
        return self._words.setdefault(count, torch.full((count,), -1, dtype=torch.int32))

    def check(self) -> None:
        if any(bool((words != -1).any()) for words in self._words.values()):
            raise KernelFaultError("A launch left words that were handed over and not taken.")
        if any(bool(counters.any()) for counters in self._found.values()):
            raise KernelFaultError("A launch left counters of arrivals that are not zero.")


def _answers(kernels: EmulatedKernels, counters: _Counters, num_multiprocessors: int) -> dict[str, Any]:
    """By the names under which ops ask."""
    gpu = Gpu(0, "the emulator", _CAPABILITY, 1 << 30, num_multiprocessors, SHARED_LIMIT)
    return {
        "get_kernel": kernels.get,
        "gpu": lambda _index: gpu,
        "on_cuda": lambda *_tensors: True,
        "across_link": lambda _source, _target: True,
        "current_stream": lambda _device: 0,
        "stream_of": lambda _tensor: 0,
        "can_overlap": lambda _device: True,
        "arrival_counters": counters.get,
        "handover_words": counters.words,
        "compute_capability": lambda _device: _CAPABILITY,
        "tensor_map": emulated_tensor_map,
    }


def _modules() -> list[ModuleType]:
    found = pkgutil.walk_packages(pagedchat.ops.__path__, "pagedchat.ops.")
    return [importlib.import_module(module.name) for module in found]


def _forget(module: ModuleType) -> None:
    """Plans that were made for another GPU."""
    for value in list(vars(module).values()):
        if hasattr(value, "cache_clear"):
            value.cache_clear()
