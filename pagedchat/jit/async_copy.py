"""What a stream of a GPU is told besides launches: a copy out of pinned memory, and when one stream waits for
another.

The driver's own functions are called, as for launches (`kernel`), with numbers for what they take. Torch's ways
take longer: for each copy it has the driver note when the pinned memory may be given to somebody else, and the
current stream is another one for a while. Here memory is the business of whoever keeps it.
"""

import ctypes
from functools import cache
from typing import Any

from pagedchat.errors import KernelError
from pagedchat.jit.driver import describe_status


def copy_to_device(there: int, source: int, num_bytes: int, stream: int) -> None:
    """Queue a copy out of pinned memory.

    Args:
        there: address on the device.
        source: of the pinned memory, which stays as it is until the copy is done.
        num_bytes: of both.
        stream: handle of the stream.

    Raises:
        KernelError: the driver refuses.
    """
    _call("cuMemcpyHtoDAsync_v2", there, source, num_bytes, stream)


def record_event(event: int, stream: int) -> None:
    """Have an event happen when all that is queued on a stream by now is done.

    Args:
        event: its handle, as torch has it in `cuda_event` once it was recorded.
        stream: handle of the stream.

    Raises:
        KernelError: the driver refuses.
    """
    _call("cuEventRecord", event, stream)


def wait_for_event(stream: int, event: int) -> None:
    """Have what is queued on a stream from now on wait for an event.

    Args:
        stream: handle of the stream.
        event: as of `record_event`.

    Raises:
        KernelError: the driver refuses.
    """
    _call("cuStreamWaitEvent", stream, event, 0)


_ARGUMENTS = {
    "cuMemcpyHtoDAsync_v2": (ctypes.c_uint64, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p),
    "cuEventRecord": (ctypes.c_void_p, ctypes.c_void_p),
    "cuStreamWaitEvent": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint),
}


def _call(name: str, *args: int) -> None:
    status = _function(name)(*args)
    if status:
        raise KernelError(f"The CUDA driver refused {name}: {describe_status(status)}.")


@cache
def _function(name: str) -> Any:
    """With the interpreter lock held, as launches are."""
    function = getattr(ctypes.PyDLL("libcuda.so.1"), name)
    function.argtypes = _ARGUMENTS[name]
    function.restype = ctypes.c_int
    return function
