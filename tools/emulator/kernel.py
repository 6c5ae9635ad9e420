"""A kernel on the CPU, launched as `pagedchat.jit.kernel.Kernel` is; pointers are addresses of CPU memory."""

import ctypes
import threading
from collections.abc import Sequence
from pathlib import Path

from pagedchat.errors import KernelError
from pagedchat.jit.arguments import Argument, Frame, Layout
from pagedchat.jit.kernel import Size
from pagedchat.jit.variant import Variant
from tools.emulator.errors import KernelFaultError
from tools.emulator.library import load_kernel

SHARED_LIMIT = 227 << 10
"""Bytes of shared memory of a thread block on sm_90."""
_MAX_GRID = (1 << 31) - 1, 65_535, 65_535
"""Thread blocks in each dimension."""
_MAX_PARAMETERS = 64
_one_at_a_time = threading.Lock()


class EmulatedKernel:
    """One entry point of one variant.

    Args:
        variant: file and constants.
        entry: the file's name by default.
        folder: with the kernel files; the project's by default.
        seed: of the order in which warps run and copies land; 0 is in order and nobody is slow.

    Raises:
        KernelError: this machine cannot do it, or there is no such file or entry point.
        KernelCompileError: the compiler refuses.
    """

    def __init__(
        self, variant: Variant, entry: str | None = None, folder: Path | None = None, seed: int = 1
    ) -> None:
        self.entry = entry or variant.stem
        self.seed = seed
        self.num_launches = 0
        try:
            library = load_kernel(variant, folder)
            self._launch = getattr(library, f"emulated_launch_{self.entry}")
            self._cluster = getattr(library, f"emulated_cluster_{self.entry}")()
        except (OSError, AttributeError) as error:
            raise KernelError(f"There is no kernel {self.entry} in {variant}: {error}.") from None
        self._launch.restype = ctypes.c_char_p
        sizes = (ctypes.c_int * _MAX_PARAMETERS)()
        count = getattr(library, f"emulated_sizes_{self.entry}")(sizes)
        self._parameters = [(0, sizes[i]) for i in range(count)]
        self._shared_limit = 48 << 10

    def allow_shared(self, num_bytes: int) -> None:
        """Let launches have up to `num_bytes` of dynamic shared memory.

        Raises:
            KernelError: a GPU has less.
        """
        if num_bytes > SHARED_LIMIT:
            raise KernelError(f"Kernel {self.entry} wants {num_bytes} bytes of dynamic shared memory.")
        self._shared_limit = max(self._shared_limit, num_bytes)

    def prefer_shared(self) -> None:
        """Nothing: a CPU does not divide its memory."""

    def active_clusters(self, _cluster: int, _block_threads: int, _shared_bytes: int = 0) -> int:
        """As many as anybody wants."""
        return 1 << 20

    def launch(
        self,
        grid: Size,
        block: Size,
        args: Sequence[Argument],
        *,
        stream: int = 0,
        shared_bytes: int = 0,
        overlap: bool = False,
        cooperative: bool = False,
        cluster: int = 1,
    ) -> None:
        """Run it to its end. An empty grid does nothing.

        Args:
            grid: thread blocks; up to three dimensions.
            block: threads of a thread block; up to three dimensions.
            args: one value for each parameter of the kernel.
            stream: not used.
            shared_bytes: dynamic shared memory; more than 48 KiB need `allow_shared` once.
            overlap: not used, launches come one after another.
            cooperative: all thread blocks run at the same time, otherwise a few.
            cluster: thread blocks of a cluster along x, of a kernel that does not say so itself.

        Raises:
            KernelFaultError: the kernel did what it may not, or its threads wait for each other for ever.
            KernelError: the grid is larger than a GPU's, or the arguments do not fit the kernel's parameters.
        """
        sizes = [(n, 1, 1) if isinstance(n, int) else (*n, 1, 1)[:3] for n in (grid, block)]
        if not all(sizes[0]):
            return
        if any(size > most for size, most in zip(sizes[0], _MAX_GRID, strict=True)):
            raise KernelError(f"Kernel {self.entry} has a grid of {sizes[0]}, which no GPU takes.")
        if shared_bytes > self._shared_limit:
            raise KernelError(f"Kernel {self.entry} was not allowed {shared_bytes} bytes of shared memory.")
        frame = Frame(Layout(self.entry, self._parameters, args))
        frame.pack(frame.buffer, 0, *sizes[0], *sizes[1], shared_bytes, stream, 0, 0, *args)
        cluster = max(cluster, self._cluster)
        shape = (ctypes.c_uint * 10)(*sizes[0], *sizes[1], cluster, shared_bytes, cooperative, self.seed)
        with _one_at_a_time:
            fault = self._launch(ctypes.c_void_p(frame.parameters), shape)
        self.num_launches += 1
        if fault is not None:
            raise KernelFaultError(f"Kernel {self.entry}: {fault.decode()}.")
