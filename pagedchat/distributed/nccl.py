"""What ranks on GPUs of their own say to each other by NCCL, and how they part. Knows no model.

NCCL's end has rules of its own. It waits until the captured steps that call it are gone, it locks out calls
meanwhile, and a kernel of its that waits for a rank that is gone ends by that end alone. So a thread begins it,
which nobody waits for before those steps are gone; from then on a call is an error.
"""

import threading
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

import torch
import torch.distributed

from pagedchat.errors import DeviceError

dist: Any = torch.distributed
"""Its stubs lack half of what is there."""

_TIMEOUT = timedelta(days=1)
"""Of one call. Who does not answer at all is found out by `Workers`."""
_LONGEST_CALL = 2.0
"""Seconds for a call to return; one that takes longer waits for somebody who is gone."""


class Nccl:
    """All ranks of a model.

    Args:
        store: where they find each other, for as long as this lives.
        rank, size: which one of how many.
    """

    def __init__(self, store: Any, rank: int, size: int) -> None:
        options = dist.ProcessGroupNCCL.Options()
        options._timeout = _TIMEOUT
        self._group: Any = dist.ProcessGroupNCCL(store, rank, size, options)
        self._size = size
        self._calls = threading.Lock()
        self._closing = threading.Lock()
        """Who watches the ranks may begin it, and who ends the engine, at the same time."""
        self._leaving: threading.Thread | None = None

    def sum(self, rows: torch.Tensor) -> torch.Tensor:
        """`rows`, which are the sum of what all have from now on.

        Raises:
            DeviceError: a rank is gone.
        """
        self._call(lambda group: group.allreduce([rows]))
        return rows

    def side_by_side(self, columns: torch.Tensor) -> torch.Tensor:
        """What all have, one beside the other: `[num_rows, width]` -> `[num_rows, size * width]`.

        Raises:
            DeviceError: a rank is gone.
        """
        gathered = columns.new_empty(self._size, *columns.shape)
        self._call(lambda group: group._allgather_base(gathered, columns.contiguous()))
        return gathered.transpose(0, 1).flatten(1)

    def close(self) -> None:
        """Begin to leave the others, who may be gone: whoever waits for them in this process does so no longer."""
        with self._closing:
            if self._leaving is None:
                self._leaving = threading.Thread(target=self._leave, name="leaving-nccl", daemon=True)
                self._leaving.start()

    def wait_closed(self, seconds: float) -> bool:
        """Whether what `close` has begun ends in time; only if captured steps that call this are gone."""
        with self._closing:
            leaving = self._leaving
        if leaving is None:
            return False
        leaving.join(seconds)
        return not leaving.is_alive()

    def _call(self, call: Callable[[Any], Any]) -> None:
        with self._calls:
            if self._leaving is not None:
                raise DeviceError(
                    "A rank is gone, and with it a part of the model.", "The engine must start again."
                )
            call(self._group).wait()

    def _leave(self) -> None:
        if self._calls.acquire(timeout=_LONGEST_CALL):  # nobody calls any more
            self._calls.release()
        with suppress(Exception):
            self._group.abort()
        self._group = None  # and with it threads of its own
