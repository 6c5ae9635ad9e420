"""A kernel on a device: what it takes, and launching it with as little host time as Python allows.

A decode step launches several kernels a layer, so what happens in Python for each of them counts. The driver's
launch function is called through ctypes with one struct that is packed in place, configuration and arguments alike:
per launch that is one `struct.pack_into` and one call with four arguments, a microsecond on top of the driver's own
three.
"""

import ctypes
import struct
from collections.abc import Sequence
from functools import cache
from typing import Any

from pagedchat.errors import KernelError
from pagedchat.jit.arguments import Argument, Frame, Layout, misfit
from pagedchat.jit.driver import Function, describe_status, gpu, primary_context
from pagedchat.jit.parameters import cubin_parameters

Size = int | tuple[int, ...]
"""Of a grid or a thread block; up to three dimensions."""

_NEEDS_CONTEXT = frozenset({201, 400})
"""CUDA_ERROR_INVALID_CONTEXT and _INVALID_HANDLE: this thread has no context, or that of another device."""


class Kernel:
    """One entry point of one variant on one device."""

    def __init__(self, code: bytes, entry: str, device_index: int) -> None:
        """Load it.

        Raises:
            KernelError: the driver refuses the cubin, or it has no such entry point.
        """
        self._function = Function(code, entry, device_index)
        self._launch_function = _launch_function()
        self._parameters = cubin_parameters(code, entry) or self._function.parameters()
        self._layout: Layout | None = None
        self._frames: list[Frame] = []
        self._shared_limit = 48 * 1024
        self._prefers_shared = False
        self._active_clusters: dict[tuple[int, int, int], int] = {}
        self.entry = entry
        self.num_registers = self._function.attribute("NUM_REGS")
        self.shared_bytes = self._function.attribute("SHARED_SIZE_BYTES")
        """Static shared memory of a thread block."""
        self.local_bytes = self._function.attribute("LOCAL_SIZE_BYTES")
        """Local memory of a thread: stack and spilled registers."""
        self.max_threads = self._function.attribute("MAX_THREADS_PER_BLOCK")

    def launch(
        self,
        grid: Size,
        block: Size,
        args: Sequence[Argument],
        *,
        stream: int,
        shared_bytes: int = 0,
        overlap: bool = False,
        cooperative: bool = False,
        cluster: int = 1,
    ) -> None:
        """Launch; returns before the kernel has run. An empty grid does nothing.

        Args:
            grid: thread blocks; up to three dimensions.
            block: threads of a thread block; up to three dimensions.
            args: one value for each parameter of the kernel; a pointer is an int.
            stream: handle of the stream.
            shared_bytes: dynamic shared memory; more than 48 KiB need `allow_shared` once.
            overlap: may start before the previous kernel of the stream ends; the kernel waits by itself
                (`griddepcontrol.wait`, sm_90) before it reads what that one writes.
            cooperative: all thread blocks run at the same time, or none; not together with `overlap`.
            cluster: thread blocks along x that run at the same time and reach each other's shared memory (sm_90),
                of a kernel that does not say so itself; more than eight only after `active_clusters` was asked.

        Raises:
            KernelError: the driver refuses, or the arguments do not fit the kernel's parameters.
        """
        gx, gy, gz = (grid, 1, 1) if isinstance(grid, int) else (*grid, 1, 1)[:3]
        bx, by, bz = (block, 1, 1) if isinstance(block, int) else (*block, 1, 1)[:3]
        if not (gx and gy and gz):
            return
        try:
            frame = self._frames.pop()  # of this launch alone: another thread may launch the same kernel
        except IndexError:
            frame = self._new_frame(args)
        try:
            attribute = frame.cooperative if cooperative else frame.attributes
            num_attributes = int(overlap or cooperative)
            if cluster > 1:
                attribute, num_attributes = frame.in_clusters(cluster), 1 + int(overlap)
            frame.pack(
                frame.buffer, 0, gx, gy, gz, bx, by, bz, shared_bytes, stream, attribute, num_attributes, *args
            )
            status = self._launch_function(frame.config, self._function.handle, frame.parameters, None)
            if status:
                self._recover(status, frame)
        except struct.error as error:
            raise misfit(self.entry, frame.layout, args, error) from None
        except KernelError as error:
            given = f"grid {(gx, gy, gz)}, thread block {(bx, by, bz)}, {shared_bytes} bytes of shared memory"
            raise KernelError(f"Kernel {self.entry} cannot be launched with {given}: {error.message}") from None
        finally:
            self._frames.append(frame)

    def allow_shared(self, num_bytes: int) -> None:
        """Let launches have up to `num_bytes` of dynamic shared memory; cheap when they already may.

        Raises:
            KernelError: the device has less.
        """
        if num_bytes <= self._shared_limit:
            return
        try:
            self._function.set_attribute("MAX_DYNAMIC_SHARED_SIZE_BYTES", num_bytes)
        except KernelError:
            most = gpu(self._function.device_index).shared_bytes - self.shared_bytes
            raise KernelError(
                f"Kernel {self.entry} wants {num_bytes} bytes of dynamic shared memory; the GPU has {most} for it."
            ) from None
        self._shared_limit = num_bytes

    def prefer_shared(self) -> None:
        """Have multiprocessors make all the memory they can shared memory; cheap when they already do.

        A multiprocessor divides its memory between shared memory and L1 cache as a kernel needs it, but only while
        it is idle. So kernels that are to overlap ask for the same division, even where one alone needs less.
        """
        if not self._prefers_shared:
            self._function.set_attribute("PREFERRED_SHARED_MEMORY_CARVEOUT", 100)
            self._prefers_shared = True

    def active_thread_blocks(self, block_threads: int, shared_bytes: int = 0) -> int:
        """Thread blocks of that size that fit on one multiprocessor at a time."""
        return self._function.active_thread_blocks(block_threads, shared_bytes)

    def active_clusters(self, cluster: int, block_threads: int, shared_bytes: int = 0) -> int:
        """Clusters of `cluster` such thread blocks that fit on the device at a time; see `allow_shared`."""
        key = cluster, block_threads, shared_bytes
        if key not in self._active_clusters:
            self._active_clusters[key] = self._function.active_clusters(*key)
        return self._active_clusters[key]

    def _new_frame(self, args: Sequence[Argument]) -> Frame:
        if self._layout is None:
            self._layout = Layout(self.entry, self._parameters, args)
        return Frame(self._layout)

    def _recover(self, status: int, frame: Frame) -> None:
        """Launch once more in the device's own context where this thread had another one or none."""
        if status in _NEEDS_CONTEXT:
            with primary_context(self._function.device_index):
                status = self._launch_function(frame.config, self._function.handle, frame.parameters, None)
        if status:
            raise KernelError(f"{describe_status(status)}.")


@cache
def _launch_function() -> Any:
    """`cuLaunchKernelEx(config, function, parameters, extra)`, called with the interpreter lock held.

    Letting go of it for these two microseconds would hand it to any busy thread for milliseconds, at every launch.
    """
    function = ctypes.PyDLL("libcuda.so.1").cuLaunchKernelEx
    function.argtypes = [ctypes.c_void_p] * 4
    function.restype = ctypes.c_int
    return function
