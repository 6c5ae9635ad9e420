"""Memory of one GPU that other processes of the host write to, through CUDA IPC. Knows what is in it not at all."""

import ctypes
import weakref
from typing import Any

from pagedchat.jit.driver import _call, _driver, primary_context

HANDLE_BYTES = 64
"""Of what one process tells another."""


class PeerMemory:
    """Memory of this process's, all of whose bits are set, until nobody has this object any more.

    Args:
        num_bytes: how much; a multiple of 4.
        device_index: where.

    Raises:
        KernelError: no driver, no memory.
    """

    def __init__(self, num_bytes: int, device_index: int) -> None:
        with primary_context(device_index):
            (address,) = _call("cuMemAlloc", num_bytes)
            _call("cuMemsetD32", address, 0xFFFFFFFF, num_bytes // 4)
            _call("cuCtxSynchronize")
            (handle,) = _call("cuIpcGetMemHandle", address)
        self.address = int(address)
        self.handle = ctypes.string_at(handle.getPtr(), HANDLE_BYTES)
        """For `open_peer_memory`, in another process."""
        self._free = weakref.finalize(self, _in_context, device_index, "cuMemFree", address)
        self._free.atexit = False


class OpenedMemory:
    """That of another process, which may be on another GPU, until nobody has this object any more.

    Args:
        handle: of a `PeerMemory`.
        device_index: from where it is reached.

    Raises:
        KernelError: the GPUs do not reach each other, or the process is gone.
    """

    def __init__(self, handle: bytes, device_index: int) -> None:
        given = _driver().CUipcMemHandle()
        ctypes.memmove(given.getPtr(), handle, HANDLE_BYTES)
        flags = _driver().CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
        with primary_context(device_index):
            (address,) = _call("cuIpcOpenMemHandle", given, flags.value)
        self.address = int(address)
        self._close = weakref.finalize(self, _in_context, device_index, "cuIpcCloseMemHandle", address)
        self._close.atexit = False


def _in_context(device_index: int, name: str, address: Any) -> None:
    with primary_context(device_index):
        _call(name, address)
