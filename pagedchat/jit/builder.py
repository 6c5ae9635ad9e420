"""Variants -> cubins, from memory, from disk or from the compiler; several at once on all cores.

The engine prepares all kernels of a model with `build_all` before its first step, so that no step waits for NVRTC.
"""

import os
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import Future, ThreadPoolExecutor, as_completed
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from pagedchat.errors import KernelCompileError, KernelError
from pagedchat.jit.cache import KernelCache, cache_key
from pagedchat.jit.compiler import Cubin, compile_kernel
from pagedchat.jit.source import KernelSource, read_source
from pagedchat.jit.toolchain import Toolchain, find_toolchain
from pagedchat.jit.variant import Variant
from pagedchat.resources import resource_dir


@dataclass(frozen=True, slots=True)
class Build:
    """What became of one variant: a cubin, or the reason why not."""

    variant: Variant
    architecture: str
    cubin: Cubin | None
    error: KernelCompileError | None = None
    cached: bool = False
    """Whether the compiler had nothing to do."""


Progress = Callable[[int, int, Build], None]
"""Told after each variant: how many are done, of how many, and which one it was."""


class KernelBuilder:
    """Builds from one folder of kernels into one cache. Safe to use from several threads.

    Args:
        folder: the kernels; those of the package by default.
        cache: where cubins are kept; the user's cache folder by default.
        anywhere: whether what was made of the same text in another folder will do: to see that it compiles, or to
            read the code, but not to profile it, since the cubin's line table names that folder.
    """

    def __init__(
        self, folder: Path | None = None, cache: KernelCache | None = None, *, anywhere: bool = False
    ) -> None:
        self._folder = folder
        self._anywhere = anywhere
        self.cache = cache or KernelCache()
        self._lock = threading.Lock()
        self._toolchain: Toolchain | None = None
        self._built: dict[tuple[Variant, str], Cubin] = {}
        self._in_work: defaultdict[tuple[Variant, str], threading.Lock] = defaultdict(threading.Lock)
        self._reading = threading.Lock()
        self._sources: dict[str, KernelSource] = {}
        self._headers: dict[str, str] = {}

    @cached_property
    def folder(self) -> Path:
        """Where the kernels lie."""
        return self._folder or resource_dir("kernels")

    @property
    def toolchain(self) -> Toolchain:
        """The compiler and the headers.

        Raises:
            KernelError: there are none.
        """
        with self._lock:
            self._toolchain = self._toolchain or find_toolchain()
            return self._toolchain

    def build(self, variant: Variant, architecture: str) -> Build:
        """The cubin of `variant`; the compiler's refusal is a value, too, since others may still succeed.

        Raises:
            KernelError: there is no compiler, no such kernel, or the file cannot be read.
        """
        with self._lock:
            in_work = self._in_work[variant, architecture]
        with in_work:  # who comes while another thread compiles it takes what that one makes
            known = self._built.get((variant, architecture))
            if known is not None:
                return Build(variant, architecture, known, cached=True)
            build = self._from_disk_or_compiler(variant, architecture)
            if build.cubin is not None:
                self._built[variant, architecture] = build.cubin
            return build

    def has(self, variant: Variant, architecture: str) -> bool:
        """Whether `build` would have the cubin at once, without disk and compiler."""
        return (variant, architecture) in self._built

    def build_all(
        self, wanted: Iterable[tuple[Variant, str]], progress: Progress | None = None, workers: int | None = None
    ) -> list[Build]:
        """Build `(variant, architecture)` pairs on `workers` threads (one a core); results in the same order.

        What waits for a thread when the program ends is not begun, and fails.

        Raises:
            KernelError: there is no compiler, no such kernel, or the file cannot be read.
        """
        _ = self.toolchain  # found once, and missing before any thread starts
        with ThreadPoolExecutor(workers or num_cores()) as pool:
            futures = [pool.submit(self._build_in_time, *pair) for pair in wanted]
            try:
                _report(futures, progress)
                return [future.result() for future in futures]
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _build_in_time(self, variant: Variant, architecture: str) -> Build:
        if not threading.main_thread().is_alive():
            raise KernelError("The program is ending; no kernel is compiled any more.")
        return self.build(variant, architecture)

    def _from_disk_or_compiler(self, variant: Variant, architecture: str) -> Build:
        toolchain = self.toolchain
        with self._reading:  # one at a time: it is work for Python, in which others want their turns
            source = self._source(variant.stem)
            known_as = replace(source, path=Path(source.path.name)) if self._anywhere else source
            key = cache_key(known_as, variant, architecture, toolchain)
        if cubin := self.cache.get(key):
            return Build(variant, architecture, cubin, cached=True)
        try:
            cubin = compile_kernel(source, variant, architecture, toolchain)
        except KernelCompileError as error:
            return Build(variant, architecture, None, error)
        self.cache.put(key, cubin)
        return Build(variant, architecture, cubin)

    def _source(self, stem: str) -> KernelSource:
        """Read once, since one file makes many variants."""
        if stem not in self._sources:
            try:
                self._sources[stem] = read_source(self.folder, stem, self._headers)
            except (OSError, UnicodeDecodeError) as error:
                raise KernelError(f"Kernel file {self.folder / stem}.cu cannot be read: {error}.") from None
        return self._sources[stem]


def compile_all(variants: Iterable[Variant], architecture: str, progress: Progress | None = None) -> list[Build]:
    """Build the package's kernels for one architecture, several at once.

    Raises:
        KernelError: there is no compiler, no such kernel, or the file cannot be read.
        KernelCompileError: one does not compile.
    """
    builds = default_builder.build_all([(variant, architecture) for variant in variants], progress)
    for build in builds:
        if build.error:
            raise build.error
    return builds


def _report(futures: list[Future[Build]], progress: Progress | None) -> None:
    if progress is None:
        return
    for done, future in enumerate(as_completed(futures), start=1):
        progress(done, len(futures), future.result())


def num_cores() -> int:
    """Cores that this process may use; a container often has fewer than the machine."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


default_builder = KernelBuilder()
"""For the package's kernels and the user's cache folder; what it needs it looks for on first use."""
