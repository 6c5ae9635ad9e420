"""The GPU's driver and context, made ready in the background while Python is busy importing torch.

A context takes some hundred milliseconds, all of them in the driver and without the interpreter's lock. Knows
ctypes alone, since anything more would have to be imported first. Whatever goes wrong here goes wrong again in
torch, which has words for it.
"""

import ctypes
from importlib.util import find_spec
from pathlib import Path
from threading import Thread

from pagedchat.config import Device

_FIRST_GPU = 0
"""Torch's own default; `CUDA_VISIBLE_DEVICES` decides which one that is, for the driver as for torch."""


def wake_gpu(wanted: Device) -> Thread | None:
    """Begin to make the context that torch will work in; a GPU that it will not use is left alone.

    Args:
        wanted: the device that the user asked for.

    Returns:
        The thread that does it; None where there is nothing to do.
    """
    if wanted == "cpu" or not _torch_knows_cuda():
        return None
    thread = Thread(target=_retain_context, name="wake-gpu", daemon=True)
    thread.start()
    return thread


def _torch_knows_cuda() -> bool:
    """Whether the installed torch is one for GPUs; found out without importing it."""
    spec = find_spec("torch")
    return spec is not None and spec.origin is not None and (_libraries(spec.origin) / "libtorch_cuda.so").is_file()


def _libraries(origin: str) -> Path:
    return Path(origin).parent / "lib"


def _retain_context() -> None:
    """Of the device's primary context, which the process then has until its end."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return
    device, context = ctypes.c_int(), ctypes.c_void_p()
    if driver.cuInit(0) == 0 and driver.cuDeviceGet(ctypes.byref(device), _FIRST_GPU) == 0:
        driver.cuDevicePrimaryCtxRetain(ctypes.byref(context), device)
