"""When what is queued by now is done: an event of the current stream, which the driver is told to record by number.
Torch makes an object of the stream first, each time, which takes several times as long. Knows no steps.
"""

import torch

from pagedchat.jit.async_copy import record_event
from pagedchat.ops.common.launch import current_stream


class Done:
    """One event, recorded again and again.

    Args:
        device: a GPU.
    """

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._event.record(torch.cuda.current_stream(device))  # from now on it has a handle
        self._handle: int = self._event.cuda_event

    def record(self) -> None:
        """It happens when all that is queued on the current stream by now is done."""
        record_event(self._handle, current_stream(self._device))

    def synchronize(self) -> None:
        """Wait for it."""
        self._event.synchronize()
