"""Which pages of tensors are in main memory: those of files need not be held, and new ones can be small. Where a
system cannot be told, nothing happens. Knows no model.
"""

import ctypes
import mmap
import os
import sys
import weakref
from functools import cache
from pathlib import Path
from typing import NamedTuple

import torch
from torch.nn import functional

_PAGE = mmap.PAGESIZE
_SMALL_PAGES = 15
"""MADV_NOHUGEPAGE of Linux."""


class FileRows:
    """Rows of a table that is mapped from a file, read out of the file: what is mapped for a row is up to 2 MiB
    around it, and the rows of all chats would be the whole table in memory.

    Args:
        table: `[num_rows, width]`, never written to.
    """

    def __init__(self, table: torch.Tensor) -> None:
        self.table = table
        found = _mapping_of(table)
        self._offset = 0 if found is None else found.offset
        self._file = None if found is None else _opened(found)
        if self._file is not None:
            weakref.finalize(self, os.close, self._file)

    def at(self, indices: torch.Tensor) -> torch.Tensor:
        """`[num_rows]` int64 -> `[num_rows, width]`; from memory where no file is found."""
        table = self.table
        if self._file is None:
            return functional.embedding(indices, table)
        num_rows, width = table.shape
        numbers = indices.tolist()
        if numbers and not 0 <= min(numbers) <= max(numbers) < num_rows:
            raise IndexError(f"rows {min(numbers)} to {max(numbers)} were asked for, of {num_rows}")
        found = torch.empty(len(numbers), width, dtype=table.dtype, device="cpu")
        size = width * table.itemsize
        for place, number in zip(found.view(torch.uint8).numpy(), numbers, strict=True):
            if os.preadv(self._file, [place], self._offset + number * size) != size:
                raise OSError("the file of the model's weights has become shorter")
        return found


class _Mapping(NamedTuple):
    path: str
    inode: int
    offset: int
    """Of a tensor in the file."""
    addresses: range
    """All that is mapped in one piece with it."""


class FilePages:
    """Pages of tensors that are read from files one after the other. Where a file is mapped is asked once for all
    of its tensors: that takes 1 to 2 ms, since a process that runs a model has hundreds of mappings.
    """

    def __init__(self) -> None:
        self._found: tuple[torch.Tensor, range] | None = None
        """What was mapped around a tensor, which keeps it so: its place cannot become that of other memory."""

    def forget(self, tensor: torch.Tensor) -> None:
        """Let a mapped file's pages that hold nothing but this tensor count as memory in use no longer; whoever
        still has the tensor reads them again. Does nothing to memory that is no file's, or a GPU's.

        Args:
            tensor: never written to.
        """
        if tensor.device.type != "cpu" or not tensor.is_contiguous():
            return
        if _span(tensor)[1] > 0 and self._is_mapped(tensor):
            _advise(tensor, mmap.MADV_DONTNEED)

    def _is_mapped(self, tensor: torch.Tensor) -> bool:
        if self._found is None or not _is_inside(tensor, self._found[1]):
            mapping = _mapping_of(tensor)
            if mapping is None:
                return False
            self._found = tensor, mapping.addresses
        return True


def _mapping_of(tensor: torch.Tensor) -> _Mapping | None:
    """The file that a tensor is mapped from, by the kernel's account; None if there is none."""
    if sys.platform != "linux" or tensor.device.type != "cpu" or not tensor.nbytes or not tensor.is_contiguous():
        return None
    try:
        lines = Path("/proc/self/maps").read_text(errors="replace").splitlines()
    except OSError:
        return None
    for line in lines:
        addresses = range(*(int(each, 16) for each in line.partition(" ")[0].split("-")))
        if _is_inside(tensor, addresses):
            _, _, offset, _, inode, *path = line.split(maxsplit=5)
            if inode == "0":
                return None
            return _Mapping(path[0], int(inode), int(offset, 16) + tensor.data_ptr() - addresses.start, addresses)
    return None


def _is_inside(tensor: torch.Tensor, addresses: range) -> bool:
    return addresses.start <= tensor.data_ptr() and tensor.data_ptr() + tensor.nbytes <= addresses.stop


def _opened(mapping: _Mapping) -> int | None:
    """The file, if it is still the one: its descriptor."""
    try:
        file = os.open(mapping.path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return None
    if os.fstat(file).st_ino == mapping.inode:
        return file
    os.close(file)
    return None


def prefer_small_pages(tensor: torch.Tensor) -> None:
    """Take pages for new memory as it is written, not 2 MiB at a time.

    Args:
        tensor: on the CPU, not written to so far.
    """
    if sys.platform == "linux" and tensor.device.type == "cpu":
        _advise(tensor, _SMALL_PAGES)


def _advise(tensor: torch.Tensor, advice: int) -> None:
    start, size = _span(tensor)
    if size > 0:
        _libc().madvise(ctypes.c_void_p(start), ctypes.c_size_t(size), advice)


def _span(tensor: torch.Tensor) -> tuple[int, int]:
    """Where its whole pages begin, and how many bytes they are."""
    start = -(-tensor.data_ptr() // _PAGE) * _PAGE
    return start, (tensor.data_ptr() + tensor.nbytes) // _PAGE * _PAGE - start


@cache
def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None)
