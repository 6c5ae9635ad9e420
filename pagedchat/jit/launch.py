"""Kernels by name: built and loaded on first use, then found in a dictionary in well under a microsecond.

This is what ops import. What they would launch can be found out without launching it (`rehearse`), so that kernels
are compiled side by side and before anybody waits for them.
"""

import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial

from pagedchat.errors import KernelError
from pagedchat.jit.build_ahead import BuildAhead
from pagedchat.jit.builder import KernelBuilder, default_builder
from pagedchat.jit.driver import gpu, primary_context
from pagedchat.jit.kernel import Kernel
from pagedchat.jit.rehearsed_kernel import RehearsedKernel
from pagedchat.jit.variant import Constant, Variant

__all__ = [
    "Kernel",
    "KernelStore",
    "NotBuiltError",
    "build_ahead",
    "built_only",
    "f32",
    "get_kernel",
    "i32",
    "rehearse",
    "rehearses",
]

i32 = int
"""Marks an argument as an integer scalar; its width is the kernel's own."""
f32 = float
"""Makes a floating-point argument of any number: a plain int would be taken for an integer."""


class NotBuiltError(KernelError):
    """A kernel that would have to be built first, while nobody has the time for that."""

    def __init__(self, variant: Variant) -> None:
        super().__init__(f"Kernel {variant} is not built yet.")
        self.variant = variant


class _Mode(threading.local):
    """Of the thread that looks at it."""

    wanted: set[Variant] | None = None
    """What was asked for so far in a rehearsal; None while there is none."""
    built_only: bool = False
    """Whether there is no time to build any."""


class KernelStore:
    """Loaded kernels by name, constants and device; each is built and loaded once. Any thread may use it.

    Args:
        builder: where the cubins come from.
    """

    def __init__(self, builder: KernelBuilder) -> None:
        self._builder = builder
        self._found: dict[tuple[object, ...], Kernel] = {}
        self._loaded: dict[tuple[Variant, str, int], Kernel] = {}
        self._entries: defaultdict[Variant, set[str]] = defaultdict(set)
        """Entry points that were asked for and not there."""
        self._lock = threading.Lock()
        self._mode = _Mode()

    def get(self, stem: str, device_index: int, entry: str | None = None, **constants: Constant) -> Kernel:
        """The kernel `entry` (`stem` by default) of `{stem}.cu`, compiled with `constants`.

        Raises:
            KernelError: no driver, no such device, no compiler, no such kernel or entry point.
            KernelCompileError: it does not compile.
            NotBuiltError: it would have to be built, in a `built_only`.
        """
        wanted = self._mode.wanted
        if wanted is not None:
            variant = Variant.of(stem, **constants)
            wanted.add(variant)
            self._entries[variant].add(entry or stem)
            return RehearsedKernel()
        key = (stem, device_index, entry, tuple(constants), tuple(constants.values()))
        kernel = self._found.get(key)
        if kernel is None:
            kernel = self._load(Variant.of(stem, **constants), entry or stem, device_index)
            self._found[key] = kernel
        return kernel

    @contextmanager
    def rehearse(self) -> Iterator[set[Variant]]:
        """Kernels that this thread gets in the `with` do nothing, and are neither built nor loaded.

        Yields:
            The variants that were asked for; it grows.
        """
        outer, self._mode.wanted = self._mode.wanted, set()
        try:
            yield self._mode.wanted
        finally:
            self._mode.wanted = outer

    @property
    def rehearses(self) -> bool:
        """Whether this thread is in a `rehearse`."""
        return self._mode.wanted is not None

    @contextmanager
    def built_only(self) -> Iterator[None]:
        """In the `with` no kernel is built for this thread: `get` raises NotBuiltError where one would be."""
        outer, self._mode.built_only = self._mode.built_only, True
        try:
            yield
        finally:
            self._mode.built_only = outer

    def build_ahead(self, variants: Iterable[Variant], device_index: int, *, quietly: bool = False) -> BuildAhead:
        """Begin to build what `rehearse` found, in the background, and to load it; `quietly` as in `BuildAhead`.

        Raises:
            KernelError: no driver, no such device.
        """
        load = partial(self._load_entries, device_index)
        return BuildAhead(self._builder, variants, gpu(device_index).architecture, quietly=quietly, load=load)

    def _load_entries(self, device_index: int, variant: Variant) -> None:
        """What was asked for of a variant that is built, in a thread that need not have a context."""
        with primary_context(device_index):
            for entry in tuple(self._entries[variant]):
                self._load(variant, entry, device_index)

    def _load(self, variant: Variant, entry: str, device_index: int) -> Kernel:
        with self._lock:
            kernel = self._loaded.get((variant, entry, device_index))
            if kernel is None:
                architecture = gpu(device_index).architecture
                if self._mode.built_only and not self._builder.has(variant, architecture):
                    self._entries[variant].add(entry)
                    raise NotBuiltError(variant)
                build = self._builder.build(variant, architecture)
                if build.cubin is None:
                    raise build.error or KernelError(f"Kernel {variant} was not compiled.")
                kernel = Kernel(build.cubin.code, entry, device_index)
                self._loaded[variant, entry, device_index] = kernel
            return kernel


_store = KernelStore(default_builder)

get_kernel = _store.get
"""`get_kernel(stem, device_index, entry=None, **constants) -> Kernel` for the package's kernels."""

rehearse = _store.rehearse
"""`with rehearse() as wanted: ...` for the package's kernels, see `KernelStore.rehearse`."""


def rehearses() -> bool:
    """Whether this thread rehearses, so that of things that launch the same kernels one will do."""
    return _store.rehearses


built_only = _store.built_only
"""`with built_only(): ...` for the package's kernels, see `KernelStore.built_only`."""

build_ahead = _store.build_ahead
"""`build_ahead(variants, device_index, quietly=False) -> BuildAhead` of the package's kernels."""
