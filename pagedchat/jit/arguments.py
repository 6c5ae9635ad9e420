"""The memory that a launch is described in: its configuration and the kernel's arguments, packed in place.

Knows the driver's structs and how a kernel's parameters lie; launches nothing.
"""

import ctypes
import struct
from collections.abc import Sequence

from pagedchat.errors import KernelError

Argument = int | float | bytes
"""A device pointer or integer, a floating-point number, or a struct passed by value."""

_CONFIG = "IIIIIIIxxxxQQQ"
"""`CUlaunchConfig`: grid (3), thread block (3), dynamic shared memory, stream, attributes, how many attributes."""
_OVERLAP_ATTRIBUTE = struct.pack("IxxxxI60x", 6, 1)
"""`CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION` = 1 as a `CUlaunchAttribute`."""
_CLUSTER = struct.Struct("IxxxxIII52x")
"""`CU_LAUNCH_ATTRIBUTE_CLUSTER_DIMENSION`: 4, and thread blocks of a cluster (3)."""
_COOPERATIVE_ATTRIBUTE = struct.pack("IxxxxI60x", 2, 1)
"""`CU_LAUNCH_ATTRIBUTE_COOPERATIVE` = 1, likewise."""


class Layout:
    """How arguments are packed: sizes as the compiler laid them out, integer or float as the first launch says."""

    def __init__(self, entry: str, parameters: list[tuple[int, int]], args: Sequence[Argument]) -> None:
        if len(args) != len(parameters):
            raise KernelError(f"Kernel {entry} takes {len(parameters)} arguments, got {len(args)}.")
        self.format = f"={_CONFIG}"
        self.offsets: list[int] = []
        for position, (arg, (_, size)) in enumerate(zip(args, parameters, strict=True)):
            self.offsets.append(struct.calcsize(self.format))
            self.format += _code(entry, position, arg, size)


class Frame:
    """Memory for one launch at a time: its `CUlaunchConfig`, the arguments behind it, and pointers to them."""

    def __init__(self, layout: Layout) -> None:
        self.layout = layout
        packer = struct.Struct(layout.format)
        self.pack = packer.pack_into
        self.buffer = ctypes.create_string_buffer(packer.size)
        self._overlap = ctypes.create_string_buffer(_OVERLAP_ATTRIBUTE, len(_OVERLAP_ATTRIBUTE))
        self.config = ctypes.addressof(self.buffer)
        self.attributes = ctypes.addressof(self._overlap)
        self._cooperative = ctypes.create_string_buffer(_COOPERATIVE_ATTRIBUTE, len(_COOPERATIVE_ATTRIBUTE))
        self.cooperative = ctypes.addressof(self._cooperative)
        self._clustered = ctypes.create_string_buffer(bytes(_CLUSTER.size) + _OVERLAP_ATTRIBUTE)
        addresses = [self.config + offset for offset in layout.offsets]
        self._pointers = (ctypes.c_void_p * max(1, len(addresses)))(*addresses)
        self.parameters = ctypes.addressof(self._pointers)

    def in_clusters(self, cluster: int) -> int:
        """Two attributes: clusters of so many thread blocks along x, and overlap, which may be left out."""
        _CLUSTER.pack_into(self._clustered, 0, 4, cluster, 1, 1)
        return ctypes.addressof(self._clustered)


def _code(entry: str, position: int, arg: Argument, size: int) -> str:
    """The `struct` code of an argument for a parameter of `size` bytes."""
    if isinstance(arg, bytes) and len(arg) == size:
        return f"{size}s"
    codes = {4: "f", 8: "d"} if isinstance(arg, float) else {1: "b", 2: "h", 4: "i", 8: "q"}
    if isinstance(arg, (int, float)) and size in codes:
        return codes[size]
    raise KernelError(f"Kernel {entry}: argument {position} is {arg!r}, expected a value of {size} bytes.")


def misfit(entry: str, layout: Layout, args: Sequence[Argument], error: struct.error) -> KernelError:
    """Why the arguments of a later launch do not go where those of the first one went."""
    if len(args) != len(layout.offsets):
        return KernelError(f"Kernel {entry} takes {len(layout.offsets)} arguments, got {len(args)}.")
    return KernelError(f"Kernel {entry} does not take {tuple(args)!r}: {error}.")
