"""Programs whose jobs another machine does, on copies of the tensors that their arguments point into. Stands in for
`jit.cpu.pool`.
"""

import ctypes
import gc
import struct
from bisect import bisect_right
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch

from pagedchat.jit.cpu.pool import Job
from tools.arm64.machine import ForeignLibrary, Machine, number_of

_LEAST_ADDRESS, _LAST_ADDRESS = 1 << 32, 1 << 48
"""Other words are numbers."""


class ForeignPool:
    """As `Pool`; nobody waits for anybody. All kernels are there from now on, since the program that has them is
    linked once.

    Args:
        num_threads: that programs are written for.
        others: of `Pool`: the processor, and where compiled kernels are kept.
    """

    def __init__(self, num_threads: int, *others: Any) -> None:
        from pagedchat.ops.cpu.kernels import module_texts  # noqa: PLC0415 - the plugin is to be first

        self.num_threads = num_threads
        for text in module_texts(others[0]) if others else ():
            ForeignLibrary(text, *others)

    def close(self) -> None:
        """Nothing."""


class _Storage(NamedTuple):
    start: int
    num_bytes: int


class ForeignProgram:
    """As `Program`.

    Args:
        pool: not asked.
        jobs: in order.
    """

    machine: Machine | None = None
    """Where all of them run; by default the one that emulates arm64, from the first run on."""

    def __init__(self, pool: ForeignPool, jobs: Sequence[Job]) -> None:
        self._functions = [(job.function, max(1, job.chunk)) for job in jobs]
        self._units = [job.units for job in jobs]
        self._arguments = [list(job.arguments) for job in jobs]

    def set_units(self, job: int, units: int) -> None:
        """As there."""
        self._units[job] = units

    def set_argument(self, job: int, index: int, word: int) -> None:
        """As there."""
        arguments = self._arguments[job]
        arguments += [0] * (index + 1 - len(arguments))
        arguments[index] = word

    def run(self) -> None:
        """All of it, there."""
        storages = _storages()
        starts = [each.start for each in storages]
        wanted: dict[_Storage, int] = {}
        jobs = b""
        for (function, chunk), units, arguments in zip(self._functions, self._units, self._arguments, strict=True):
            jobs += struct.pack("<4q", number_of(function), units, chunk, len(arguments))
            for word in arguments:
                if not _LEAST_ADDRESS <= word <= _LAST_ADDRESS:
                    jobs += struct.pack("<2q", -1, word)
                    continue
                found = storages[bisect_right(starts, word) - 1]
                if not found.start <= word < found.start + found.num_bytes:
                    raise RuntimeError(f"an argument is {word:#x}, which no tensor holds")
                jobs += struct.pack("<2q", wanted.setdefault(found, len(wanted)), word - found.start)
        written = struct.pack("<q", len(wanted))
        for each in wanted:
            written += struct.pack("<q", each.num_bytes) + ctypes.string_at(each.start, each.num_bytes)
        written += struct.pack("<q", len(self._functions)) + jobs
        machine = ForeignProgram.machine = ForeignProgram.machine or Machine()
        answer = machine.exchange(written, sum(each.num_bytes for each in wanted))
        for each in wanted:
            ctypes.memmove(each.start, answer, each.num_bytes)
            answer = answer[each.num_bytes :]


def _storages() -> list[_Storage]:
    """Of all tensors that there are on the CPU, by where they begin, behind an empty one."""
    found: dict[int, int] = {}
    gc.unfreeze()  # what an engine sets aside is there too
    for each in gc.get_objects():
        if issubclass(type(each), torch.Tensor) and each.device.type == "cpu" and each.layout == torch.strided:
            storage = each.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
    return [_Storage(0, 0), *(_Storage(start, found[start]) for start in sorted(found) if found[start])]
