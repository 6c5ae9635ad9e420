"""Tensor maps of the emulator, in place of `pagedchat.jit.tensor_map`; runtime/ptx_copies.cpp reads them."""

import struct

_MAP = struct.Struct("<7Q72x")
_TILE_BYTES, _ELEMENT_BYTES = 128, 2


def emulated_tensor_map(address: int, num_rows: int, width: int, tile_rows: int, _element: str) -> bytes:
    """What `tensor_map` makes of the same."""
    row_bytes = width * _ELEMENT_BYTES
    columns = _TILE_BYTES // _ELEMENT_BYTES
    return _MAP.pack(address, width, num_rows, row_bytes, columns, tile_rows, _ELEMENT_BYTES)
