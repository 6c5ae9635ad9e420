"""The CUDA driver: the GPUs that are there, their contexts, and code loaded into them. Compiles nothing.

Everything happens in a device's primary context, the one torch works in, so its memory and streams can be used.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import Any

from pagedchat.errors import KernelError
from pagedchat.jit.architecture import architecture_of
from pagedchat.jit.packages import packages_missing

_PORTABLE_CLUSTER = 8
"""Thread blocks of a cluster that every GPU with clusters has; larger ones have to be asked for."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """What the driver says of one device."""

    index: int
    name: str
    compute_capability: tuple[int, int]
    memory_bytes: int
    num_multiprocessors: int
    shared_bytes: int
    """The most shared memory that one thread block can have."""

    @property
    def architecture(self) -> str:
        """What kernels are compiled for: `"sm_90"`."""
        return architecture_of(*self.compute_capability)


def driver_version() -> str:
    """The newest CUDA that the driver knows: `"13.0"`.

    Raises:
        KernelError: there is no driver.
    """
    (version,) = _call("cuDriverGetVersion")
    return f"{version // 1000}.{version % 1000 // 10}"


def num_gpus() -> int:
    """How many GPUs the driver shows.

    Raises:
        KernelError: there is no driver.
    """
    (count,) = _call("cuDeviceGetCount")
    return int(count)


@cache
def gpu(index: int) -> Gpu:
    """The facts of device `index`.

    Raises:
        KernelError: there is no driver or no such device.
    """
    (device,) = _call("cuDeviceGet", index)
    (name,) = _call("cuDeviceGetName", 256, device)
    (memory,) = _call("cuDeviceTotalMem", device)

    def attribute(suffix: str) -> int:
        code = getattr(_driver().CUdevice_attribute, f"CU_DEVICE_ATTRIBUTE_{suffix}")
        return int(_call("cuDeviceGetAttribute", code, device)[0])

    return Gpu(
        index=index,
        name=name.partition(b"\0")[0].decode(),
        compute_capability=(attribute("COMPUTE_CAPABILITY_MAJOR"), attribute("COMPUTE_CAPABILITY_MINOR")),
        memory_bytes=int(memory),
        num_multiprocessors=attribute("MULTIPROCESSOR_COUNT"),
        shared_bytes=attribute("MAX_SHARED_MEMORY_PER_BLOCK_OPTIN"),
    )


@contextmanager
def primary_context(index: int) -> Iterator[None]:
    """Make the primary context of device `index` current in this thread, and what was current before again after.

    Raises:
        KernelError: there is no driver or no such device, or the device refuses.
    """
    _call("cuCtxPushCurrent", _retained_context(index))
    try:
        yield
    finally:
        _call("cuCtxPopCurrent")


class Function:
    """An entry point loaded into one device's primary context."""

    def __init__(self, code: bytes, entry: str, device_index: int) -> None:
        """Load the cubin.

        Raises:
            KernelError: the driver refuses the cubin, or it has no such entry point.
        """
        self.entry = entry
        self.device_index = device_index
        with primary_context(device_index):
            (self._module,) = _call("cuModuleLoadData", code)
            try:
                (self._handle,) = _call("cuModuleGetFunction", self._module, entry.encode())
            except KernelError:
                _call("cuModuleUnload", self._module)
                raise KernelError(f"The cubin has no kernel {entry}.") from None
        self.handle = int(self._handle)
        """Address of the `CUfunction`."""

    def attribute(self, suffix: str) -> int:
        """`CU_FUNC_ATTRIBUTE_{suffix}`, for example `"NUM_REGS"`."""
        (value,) = _call("cuFuncGetAttribute", _function_attribute(suffix), self._handle)
        return int(value)

    def set_attribute(self, suffix: str, value: int) -> None:
        """Set `CU_FUNC_ATTRIBUTE_{suffix}`.

        Raises:
            KernelError: the device cannot do that.
        """
        _call("cuFuncSetAttribute", self._handle, _function_attribute(suffix), value)

    def parameters(self) -> list[tuple[int, int]]:
        """`(offset, bytes)` of every parameter, as the driver says; `cubin_parameters` is the quiet way to know."""
        layout: list[tuple[int, int]] = []
        while True:
            status, offset, size = _driver().cuFuncGetParamInfo(self._handle, len(layout))
            if int(status) != 0:  # past the last one
                return layout
            layout.append((int(offset), int(size)))

    def active_thread_blocks(self, block_threads: int, shared_bytes: int = 0) -> int:
        """Thread blocks of that size that fit on one multiprocessor at a time."""
        (count,) = _call("cuOccupancyMaxActiveBlocksPerMultiprocessor", self._handle, block_threads, shared_bytes)
        return int(count)

    def active_clusters(self, cluster: int, block_threads: int, shared_bytes: int = 0) -> int:
        """Clusters of `cluster` such thread blocks that fit on the device at a time; 0: it has none so large."""
        driver = _driver()
        dimension = driver.CUlaunchAttribute()
        dimension.id = driver.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION
        size = dimension.value.clusterDim
        size.x, size.y, size.z = cluster, 1, 1
        config = driver.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = cluster, 1, 1
        config.blockDimX, config.blockDimY, config.blockDimZ = block_threads, 1, 1
        config.sharedMemBytes = shared_bytes
        config.attrs, config.numAttrs = [dimension], 1
        try:
            if cluster > _PORTABLE_CLUSTER:
                self.set_attribute("NON_PORTABLE_CLUSTER_SIZE_ALLOWED", 1)
            with primary_context(self.device_index):
                (count,) = _call("cuOccupancyMaxActiveClusters", self._handle, config)
        except KernelError:
            return 0
        return int(count)


def describe_status(status: int) -> str:
    """The driver's words for an error number."""
    driver = _driver()
    _, name = driver.cuGetErrorName(driver.CUresult(status))
    _, text = driver.cuGetErrorString(driver.CUresult(status))
    return f"{name.decode()}: {text.decode()}"


@cache
def _retained_context(index: int) -> Any:
    (device,) = _call("cuDeviceGet", index)
    (context,) = _call("cuDevicePrimaryCtxRetain", device)
    return context


def _function_attribute(suffix: str) -> Any:
    return getattr(_driver().CUfunction_attribute, f"CU_FUNC_ATTRIBUTE_{suffix}")


def _call(name: str, *args: Any) -> tuple[Any, ...]:
    """A driver function's results without its status, which must be success."""
    status, *results = getattr(_driver(), name)(*args)
    if int(status) != 0:
        raise KernelError(f"The CUDA driver refused {name}: {describe_status(int(status))}.")
    return tuple(results)


@cache
def _driver() -> Any:
    """The bindings, initialised.

    Raises:
        KernelError: they are not installed, there is no driver, or it does not start.
    """
    try:
        from cuda.bindings import driver  # noqa: PLC0415 - a macOS has none
    except ImportError:
        raise packages_missing() from None
    try:
        (status,) = driver.cuInit(0)
    except RuntimeError:  # newer bindings raise a kind of their own, a subclass
        raise KernelError("There is no NVIDIA driver.", "Check with nvidia-smi, or use --device cpu.") from None
    if int(status) != 0:
        _, name = driver.cuGetErrorName(status)
        raise KernelError(f"The NVIDIA driver does not start: {name.decode()}.", "Check with nvidia-smi.")
    return driver
