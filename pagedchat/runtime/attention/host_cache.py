"""Where swapped blocks wait: host memory that the GPU can read and write by itself.

Pinning takes about a third of a second a gigabyte, so it happens in a thread of its own, as soon as it is known
that there will be swapping, and whoever needs the memory first waits for the rest.

The end of the program waits for that thread: one that the interpreter cuts off inside the driver's library takes
the process with it. So it looks up between pieces whether anybody still wants the memory.
"""

import logging
import weakref
from threading import Thread, main_thread
from typing import Any

import torch

log = logging.getLogger(__name__)

_PIECE_BYTES = 64 << 20
"""Of memory that is touched at a time: some 20 ms."""


class HostCache:
    """A tensor in host memory, pinned when it is first needed or asked for, and given back with this object.

    Args:
        size: its shape.
        dtype: its element type.
        device: the GPU that will read and write it; for a CPU nothing is pinned.
    """

    def __init__(self, size: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> None:
        self._memory = torch.empty(size, dtype=dtype)
        self._device = device
        self._pinning: _Pinning | None = None

    def prepare(self) -> None:
        """Begin to pin in the background, if that has not been done."""
        if self._pinning is None:
            self._pinning = _Pinning(self._memory, self._device)
            # At exit the driver cleans up.
            weakref.finalize(self, self._pinning.give_up).atexit = False
            self._pinning.start()

    @property
    def tensor(self) -> torch.Tensor:
        """The memory; waits until it is pinned."""
        self.prepare()
        if self._pinning is not None:
            self._pinning.join()
        return self._memory


class _Pinning(Thread):
    """Registers the pages of `memory` with the driver; where it refuses (a memlock limit, say), swaps are slow but
    work. Knows nothing of who asked for it, and so keeps nobody alive.

    Torch's own `pin_memory` would round the size up to a power of two.
    """

    def __init__(self, memory: torch.Tensor, device: torch.device) -> None:
        super().__init__(name="pin-host-cache", daemon=False)
        self._memory = memory
        self._device = device
        self._is_unwanted = False
        self._registered: list[torch.Tensor] = []
        """The memory while it is registered: who takes it out, which one thread alone can, ends that."""

    def give_up(self) -> None:
        """Nobody wants the memory any more. Waits for nothing, as it may run anywhere."""
        self._is_unwanted = True
        self._unregister()

    def run(self) -> None:
        if self._device.type != "cuda" or self._memory.numel() == 0:
            return
        # While the driver registers pages, other threads wait in it. Pages that exist already take it less time.
        for piece in self._memory.view(-1).split(_PIECE_BYTES // self._memory.element_size()):  # type: ignore[no-untyped-call]
            if self._is_over():
                return
            with torch.inference_mode():  # as who has made the memory may have been
                piece.zero_()
        if self._is_over():
            return
        with torch.cuda.device(self._device):
            error = int(_cudart().cudaHostRegister(self._memory.data_ptr(), self._memory.nbytes, 0))
        if error:
            log.warning("Host memory for swapping could not be pinned (CUDA error %d); swaps are slower.", error)
            return
        self._registered.append(self._memory)
        if self._is_unwanted:
            self._unregister()

    def _is_over(self) -> bool:
        return self._is_unwanted or not main_thread().is_alive()

    def _unregister(self) -> None:
        try:
            memory = self._registered.pop()
        except IndexError:  # it was not registered, or somebody else sees to it
            return
        torch.cuda.synchronize(self._device)
        _cudart().cudaHostUnregister(memory.data_ptr())


def _cudart() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]
