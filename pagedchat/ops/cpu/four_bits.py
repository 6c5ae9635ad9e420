"""Groups of floats into 4 bits by a kernel: out of any thread, without the pool."""

import ctypes

import torch


class FitFourBits:
    """See `quantize.FourBits`.

    Args:
        address: of the kernel.
    """

    def __init__(self, address: int) -> None:
        self._run = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int64, ctypes.c_int64)(address)

    def __call__(self, groups: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """`[num_groups, group_size]`, float32."""
        groups = groups.contiguous()
        num_groups, group_size = groups.shape
        digits = torch.empty(num_groups, group_size // 2, dtype=torch.uint8)
        scales, minimums = (torch.empty(num_groups, 1, dtype=torch.float16) for _ in range(2))
        addresses = (each.data_ptr() for each in (digits, scales, minimums))
        arguments = (ctypes.c_int64 * 5)(groups.data_ptr(), group_size, *addresses)
        self._run(ctypes.addressof(arguments), 0, num_groups)
        return scales, minimums, digits
