"""What of CUDA is on this machine, and which CPU kernels. What is missing becomes a sentence, never an error."""

import platform
import re
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from pagedchat import __version__
from pagedchat.errors import KernelError
from pagedchat.jit import driver
from pagedchat.jit.cache import KernelCache
from pagedchat.jit.cpu.target import host_target
from pagedchat.jit.cpu.threads import num_compute_threads
from pagedchat.jit.driver import Gpu
from pagedchat.jit.toolchain import Toolchain, find_toolchain
from pagedchat.ops.cpu.kernels import objection

_DRIVER_FILE = Path("/proc/driver/nvidia/version")
_PACKAGES = ("cuda-python", "cuda-bindings", "cuda-core", "nvidia-cuda-nvrtc", "nvidia-cuda-runtime")


@dataclass(frozen=True, slots=True)
class Machine:
    """Each thing that was looked for, or why it is not there."""

    pagedchat: str
    system: str
    python: str
    driver: str | None
    """The driver's own version, where it says it: `"580.82.07"`."""
    cuda: str | None
    """The newest CUDA that the driver knows."""
    gpus: tuple[Gpu, ...]
    no_gpu: str
    """Why there is no GPU; empty if there is one."""
    packages: dict[str, str | None]
    """Versions of CUDA's Python packages; None: not installed."""
    toolchain: Toolchain | None
    no_toolchain: str
    """What is missing to compile kernels, and what to do; empty if nothing is."""
    cache_folder: Path
    cache_entries: int
    cache_bytes: int
    no_cache: str
    """Why the cache folder is not used, to go after "since"; empty where it is."""
    cpu: str
    """What CPU kernels are made for; empty where there are none."""
    no_cpu: str
    """Why there are none, to go after "since"; empty where there are."""


@dataclass(frozen=True, slots=True)
class Torch:
    """The torch that runs the models."""

    version: str | None
    """None: it cannot be imported."""
    cuda: str | None
    """The CUDA it was built for; None: for none."""
    sees_gpu: bool
    problem: str = ""
    """Why it cannot be imported."""


def look_at_machine(cache: KernelCache) -> Machine:
    """Ask the driver, the packages and the cache; takes a fraction of a second, or some where
    CPU kernels are not compiled yet."""
    cuda, gpus, no_gpu = _look_for_gpus()
    toolchain, no_toolchain = _look_for_toolchain()
    entries, num_bytes = cache.size()
    return Machine(
        pagedchat=__version__,
        system=f"{platform.system()} {platform.machine()}",
        python=platform.python_version(),
        driver=_driver_release(),
        cuda=cuda,
        gpus=gpus,
        no_gpu=no_gpu,
        packages={name: _package_version(name) for name in _PACKAGES},
        toolchain=toolchain,
        no_toolchain=no_toolchain,
        cache_folder=cache.folder,
        cache_entries=entries,
        cache_bytes=num_bytes,
        no_cache=cache.objection,
        **_look_for_cpu_kernels(),
    )


def look_at_torch() -> Torch:
    """Import torch, which takes seconds, and ask it for a GPU."""
    try:
        import torch  # noqa: PLC0415 - loaded for the doctor alone
    except (ImportError, OSError) as error:  # OSError: a library that it was linked with is missing
        return Torch(None, None, False, str(error))
    return Torch(str(torch.__version__), torch.version.cuda, torch.cuda.is_available())


def first_gpu() -> Gpu | None:
    """The one that models run on; None where there is none."""
    _, gpus, _ = _look_for_gpus()
    return gpus[0] if gpus else None


def _look_for_gpus() -> tuple[str | None, tuple[Gpu, ...], str]:
    try:
        cuda = driver.driver_version()
        gpus = tuple(driver.gpu(index) for index in range(driver.num_gpus()))
    except KernelError as error:
        return None, (), error.message
    return cuda, gpus, "" if gpus else "The driver shows no GPU."


def _look_for_cpu_kernels() -> dict[str, str]:
    target, no_kernels = host_target(), objection()
    if isinstance(target, str) or no_kernels:
        return {"cpu": "", "no_cpu": no_kernels}
    threads = num_compute_threads()
    count = "1 thread" if threads == 1 else f"{threads} threads"
    return {"cpu": f"{target.instruction_sets} ({target.name}), LLVM {target.llvm}, {count}", "no_cpu": ""}


def _look_for_toolchain() -> tuple[Toolchain | None, str]:
    try:
        return find_toolchain(), ""
    except KernelError as error:
        return None, str(error)


def _driver_release() -> str | None:
    try:
        match = re.search(r"\b\d{3}\.\d+(?:\.\d+)?\b", _DRIVER_FILE.read_text(encoding="utf-8"))
    except OSError:
        return None
    return match[0] if match else None


def _package_version(name: str) -> str | None:
    try:
        return version(name)
    except PackageNotFoundError:
        return None
