"""The GPU's products, made ready in the background while weights are being read.

The first product of a process makes cuBLAS's handle and workspace and loads its kernels, a tenth of a second in
which weights can be on their way. Whatever goes wrong here goes wrong again in the model, which has words for it.
"""

import contextlib
from threading import Thread

import torch
from torch.nn import functional

_ROWS = (8, 64, 2048)
"""Of the products that are tried: the library has kernels for few rows and for many."""
_WIDTH = 768


def wake_products(device: torch.device, dtype: torch.dtype) -> Thread | None:
    """Begin to multiply small matrices of zeros; None where the device is not a GPU.

    Args:
        device: of the model.
        dtype: of its weights.

    Returns:
        The thread that does it: to be joined before memory is measured.
    """
    if device.type != "cuda":
        return None
    thread = Thread(target=_multiply, args=(device, dtype), name="wake-products", daemon=True)
    thread.start()
    return thread


def _multiply(device: torch.device, dtype: torch.dtype) -> None:
    with contextlib.suppress(RuntimeError), torch.inference_mode():
        weight = torch.zeros(_WIDTH, _WIDTH, dtype=dtype, device=device)
        for num_rows in _ROWS:
            rows = torch.zeros(num_rows, _WIDTH, dtype=dtype, device=device)
            functional.linear(rows, weight)
            functional.linear(rows, weight, weight[0])
        torch.cuda.synchronize(device)
