"""Kernels by name: built and loaded on first use, then found in a dictionary in well under a microsecond.

This is what ops import.
"""

import threading

from pagedchat.errors import KernelError
from pagedchat.jit.builder import KernelBuilder, default_builder
from pagedchat.jit.driver import gpu
from pagedchat.jit.kernel import Kernel
from pagedchat.jit.variant import Constant, Variant

__all__ = ["Kernel", "KernelStore", "f32", "get_kernel", "i32"]

i32 = int
"""Marks an argument as an integer scalar; its width is the kernel's own."""
f32 = float
"""Makes a floating-point argument of any number: a plain int would be taken for an integer."""


class KernelStore:
    """Loaded kernels by name, constants and device; each is built and loaded once. Any thread may use it.

    Args:
        builder: where the cubins come from.
    """

    def __init__(self, builder: KernelBuilder) -> None:
        self._builder = builder
        self._found: dict[tuple[object, ...], Kernel] = {}
        self._loaded: dict[tuple[Variant, str, int], Kernel] = {}
        self._lock = threading.Lock()

    def get(self, stem: str, device_index: int, entry: str | None = None, **constants: Constant) -> Kernel:
        """The kernel `entry` (`stem` by default) of `kernels/{stem}.cu`, compiled with `constants`.

        Raises:
            KernelError: no driver, no such device, no compiler, no such kernel or entry point.
            KernelCompileError: it does not compile.
        """
        key = (stem, device_index, entry, tuple(constants), tuple(constants.values()))
        kernel = self._found.get(key)
        if kernel is None:
            kernel = self._load(Variant.of(stem, **constants), entry or stem, device_index)
            self._found[key] = kernel
        return kernel

    def _load(self, variant: Variant, entry: str, device_index: int) -> Kernel:
        with self._lock:
            kernel = self._loaded.get((variant, entry, device_index))
            if kernel is None:
                build = self._builder.build(variant, gpu(device_index).architecture)
                if build.cubin is None:
                    raise build.error or KernelError(f"Kernel {variant} was not compiled.")
                kernel = Kernel(build.cubin.code, entry, device_index)
                self._loaded[variant, entry, device_index] = kernel
            return kernel


get_kernel = KernelStore(default_builder).get
"""`get_kernel(stem, device_index, entry=None, **constants) -> Kernel` for the package's kernels."""
