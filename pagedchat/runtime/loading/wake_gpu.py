"""A GPU made ready in the background: its driver and context while Python is busy importing torch, the library
of its products while weights are being read.

A context takes some hundred milliseconds, all of them in the driver and without the interpreter's lock. What
makes it knows ctypes alone, since anything more would have to be imported first. The first product of a process
makes cuBLAS's handle and workspace and loads its kernels, a tenth of a second in which weights can be on their
way. Whatever goes wrong here goes wrong again in torch or in the model, which have words for it.
"""

import contextlib
import ctypes
from importlib.util import find_spec
from pathlib import Path
from threading import Thread
from typing import TYPE_CHECKING

from pagedchat.config import Device

if TYPE_CHECKING:
    import torch

_FIRST_GPU = 0
"""Torch's own default; `CUDA_VISIBLE_DEVICES` decides which one that is, for the driver as for torch."""
_ROWS = (8, 64, 2048)
"""Of the products that are tried: the library has kernels for few rows and for many."""
_WIDTH = 768


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


def wake_products(device: "torch.device", dtype: "torch.dtype") -> Thread | None:
    """Begin to multiply small matrices of zeros, torch being there; None where the device is not a GPU.

    Args:
        device: of the model.
        dtype: of its weights.

    Returns:
        The thread that does it: to be joined before memory is measured.
    """
    if device.type != "cuda":
        return None
    # No daemon, unlike the other one: the interpreter must not end while a thread of its own is inside torch.
    thread = Thread(target=_multiply, args=(device, dtype), name="wake-products", daemon=False)
    thread.start()
    return thread


def _multiply(device: "torch.device", dtype: "torch.dtype") -> None:
    import torch  # noqa: PLC0415 - seconds of imports, done by now
    from torch.nn import functional  # noqa: PLC0415

    with contextlib.suppress(RuntimeError), torch.inference_mode():
        weight = torch.zeros(_WIDTH, _WIDTH, dtype=dtype, device=device)
        for num_rows in _ROWS:
            rows = torch.zeros(num_rows, _WIDTH, dtype=dtype, device=device)
            functional.linear(rows, weight)
            functional.linear(rows, weight, weight[0])
        torch.cuda.synchronize(device)
