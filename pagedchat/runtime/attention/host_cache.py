"""Where swapped blocks wait: host memory that the GPU can read and write by itself.

Pinning takes about a third of a second a gigabyte, so it happens in a thread of its own, as soon as it is known
that there will be swapping, and whoever needs the memory first waits for the rest.
"""

import logging
import weakref
from threading import Thread
from typing import Any

import torch

log = logging.getLogger(__name__)


class HostCache:
    """A tensor in host memory, pinned when it is first needed or asked for.

    Args:
        size: its shape.
        dtype: its element type.
        device: the GPU that will read and write it; for a CPU nothing is pinned.
    """

    def __init__(self, size: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        self._memory = torch.empty(size, dtype=dtype)
        self._device = device
        self._pinning: Thread | None = None

    def prepare(self) -> None:
        """Begin to pin in the background, if that has not been done."""
        if self._pinning is None:
            self._pinning = Thread(target=self._pin, name="pin-host-cache", daemon=True)
            self._pinning.start()

    @property
    def tensor(self) -> torch.Tensor:
        """The memory; waits until it is pinned."""
        self.prepare()
        if self._pinning is not None:
            self._pinning.join()
        return self._memory

    def _pin(self) -> None:
        """Register the pages with the driver; where it refuses (a memlock limit, say), swaps are slow but work.

        Torch's own `pin_memory` would round the size up to a power of two.
        """
        if self._device.type != "cuda" or self._memory.numel() == 0:
            return
        # While the driver registers pages, other threads wait in it. Pages that exist already take it less time.
        self._memory.zero_()
        with torch.cuda.device(self._device):
            error = int(_cudart().cudaHostRegister(self._memory.data_ptr(), self._memory.nbytes, 0))
        if error:
            log.warning("Host memory for swapping could not be pinned (CUDA error %d); swaps are slower.", error)
            return
        # The finalizer holds the tensor: the pages outlive their registration. At exit the driver cleans up.
        weakref.finalize(self, _unpin, self._memory, self._device).atexit = False


def _unpin(memory: torch.Tensor, device: torch.device) -> None:
    torch.cuda.synchronize(device)
    _cudart().cudaHostUnregister(memory.data_ptr())


def _cudart() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]
