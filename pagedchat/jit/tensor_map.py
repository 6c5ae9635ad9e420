"""Tensor maps: how copies of tiles find a matrix in a GPU's memory (sm_90). Knows no kernel, launches nothing."""

import ctypes
from functools import cache
from typing import Any

from pagedchat.errors import KernelError
from pagedchat.jit.driver import describe_status

_MAP_BYTES, _ALIGNMENT = 128, 64
_ELEMENT_BYTES = 2
_ELEMENTS = {"float16": 6, "bfloat16": 9}
"""CU_TENSOR_MAP_DATA_TYPE_FLOAT16 and _BFLOAT16."""
_SWIZZLES = {32: 2, 64: 3}
"""By elements of a tile's row: CU_TENSOR_MAP_SWIZZLE_64B and _128B, which are `swizzled` of wgmma.cuh."""
_PROMOTION_256, _PLAIN = 3, 0
"""CU_TENSOR_MAP_L2_PROMOTION_L2_256B; no interleave, zeros beside the matrix."""


def tensor_map(
    address: int, num_rows: int, width: int, tile_rows: int, element: str, tile_columns: int = 64
) -> bytes:
    """The map of a matrix, as a kernel takes it by value.

    Args:
        address: of the matrix, a multiple of 16.
        num_rows: of the matrix.
        width: of a row in elements, a multiple of 8; rows follow each other.
        tile_rows: of a tile, at most 256.
        element: `"float16"` or `"bfloat16"`.
        tile_columns: elements of a tile's row, 64 or 32, whose 16-byte pieces change places.

    Raises:
        KernelError: the driver cannot make one of that.
    """
    memory = ctypes.create_string_buffer(_MAP_BYTES + _ALIGNMENT)
    start = -ctypes.addressof(memory) % _ALIGNMENT
    status = _encode()(
        ctypes.addressof(memory) + start,
        _ELEMENTS[element],
        2,
        address,
        (ctypes.c_uint64 * 2)(width, num_rows),
        (ctypes.c_uint64 * 1)(width * _ELEMENT_BYTES),
        (ctypes.c_uint32 * 2)(tile_columns, tile_rows),
        (ctypes.c_uint32 * 2)(1, 1),
        _PLAIN,
        _SWIZZLES[tile_columns],
        _PROMOTION_256,
        _PLAIN,
    )
    if status:
        sizes = f"{num_rows} rows of {width} {element} at {address:#x} in tiles of {tile_rows} rows"
        raise KernelError(f"The CUDA driver makes no tensor map of {sizes}: {describe_status(status)}.")
    return memory.raw[start : start + _MAP_BYTES]


@cache
def _encode() -> Any:
    """`cuTensorMapEncodeTiled`, which asks no device."""
    function = ctypes.PyDLL("libcuda.so.1").cuTensorMapEncodeTiled
    number, pointer = ctypes.c_int, ctypes.c_void_p
    function.argtypes = [pointer, number, ctypes.c_uint32, pointer, *[pointer] * 4, *[number] * 4]
    function.restype = ctypes.c_int
    return function
