"""Tensor maps of the emulator, in place of `pagedchat.jit.tensor_map`; runtime/ptx_copies.cpp reads them."""

import struct

_MAP = struct.Struct("<7Q72x")
_ELEMENT_BYTES = 2


def emulated_tensor_map(
    address: int, num_rows: int, width: int, tile_rows: int, _element: str, tile_columns: int = 64
) -> bytes:
    """What `tensor_map` makes of the same."""
    return _MAP.pack(address, width, num_rows, width * _ELEMENT_BYTES, tile_columns, tile_rows, _ELEMENT_BYTES)
