"""Tensors between pages that nobody may touch: what a kernel reads or writes beside one becomes a fault.

Knows torch and memory, nothing of kernels: `tools.emulator.kernel` reports what happens in a launch.
"""

import ctypes
import mmap
from enum import Enum
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode

from tools.emulator.errors import KernelFaultError

_PAGE = mmap.PAGESIZE
_ALIGNMENT = 16
"""Of a tensor's first byte, in bytes: what kernels read at a time. A GPU's allocator gives more."""
_UNWRITTEN = 0xFF
"""Of every byte that nobody has written: NaN in all types of floats, -1 in integers."""
_NO_ACCESS = 0
_c_library = ctypes.CDLL(None, use_errno=True)


class Side(Enum):
    """Where a tensor ends at a page that nobody may touch; the other end has up to a page of bytes to watch."""

    BEFORE = 0
    """At its first byte."""
    BEHIND = 1
    """At its last byte, but for what alignment takes."""


class FencedTensors(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Within it every tensor that torch makes gets such memory, and begins as NaN if it is empty.

    Memory lives until the end at least: a launch is told addresses, not who owns them.

    Args:
        side: of the fence.

    Raises:
        KernelFaultError: at the end, if bytes beside a tensor were written.
    """

    def __init__(self, side: Side) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._side = side
        self._plots: list[_Plot] = []

    def __torch_dispatch__(
        self, op: Any, types: object, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        """What `op` makes, moved; views and what it has only written stay where they are."""
        made = op(*args, **(kwargs or {}))
        if op is torch.ops.aten.lift_fresh.default:  # how `torch.tensor` ends
            return self._moved(made, is_empty=False)
        is_empty = "empty" in op.overloadpacket.__name__
        is_new = [returned.alias_info is None for returned in op._schema.returns]
        if isinstance(made, torch.Tensor):
            return self._moved(made, is_empty) if is_new[0] else made
        if isinstance(made, tuple):
            parts = zip(made, is_new, strict=True)
            return tuple(self._moved(part, is_empty) if new else part for part, new in parts)
        return made

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)  # type: ignore[no-untyped-call]
        plots, self._plots = self._plots, []
        if error[0] is not None:
            return
        for plot in plots:
            if not plot.is_intact():
                raise KernelFaultError(f"Memory beside a tensor of {plot.num_bytes} bytes was written.")

    def _moved(self, tensor: Any, is_empty: bool) -> Any:
        if not isinstance(tensor, torch.Tensor) or tensor.numel() == 0:
            return tensor
        storage = tensor.untyped_storage()
        plot = _Plot(storage.nbytes(), self._side)
        self._plots.append(plot)
        if not is_empty:
            plot.contents.untyped_storage().copy_(storage)
        place = tensor.new_empty(0)
        offset = tensor.storage_offset()
        return place.set_(plot.contents.untyped_storage(), offset, tensor.size(), tensor.stride())


class _Plot:
    """Some bytes between two pages that nobody may touch.

    Args:
        num_bytes: at least one.
        side: where they end at such a page.
    """

    def __init__(self, num_bytes: int, side: Side) -> None:
        self.num_bytes = num_bytes
        room = -(-num_bytes // _PAGE) * _PAGE
        memory = mmap.mmap(-1, room + 2 * _PAGE)
        begin = ctypes.addressof(ctypes.c_char.from_buffer(memory))
        for page in (begin, begin + _PAGE + room):
            if _c_library.mprotect(ctypes.c_void_p(page), ctypes.c_size_t(_PAGE), _NO_ACCESS):
                raise OSError(ctypes.get_errno(), "mprotect")
        all_bytes = torch.frombuffer(memory, dtype=torch.uint8, count=room, offset=_PAGE).fill_(_UNWRITTEN)
        first = (room - num_bytes) // _ALIGNMENT * _ALIGNMENT if side is Side.BEHIND else 0
        self.contents = torch.frombuffer(memory, dtype=torch.uint8, count=num_bytes, offset=_PAGE + first)
        self._beside = (all_bytes[:first], all_bytes[first + num_bytes :])

    def is_intact(self) -> bool:
        """Whether nobody has written beside them."""
        return all(bool((side == _UNWRITTEN).all()) for side in self._beside)
