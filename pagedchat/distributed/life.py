"""No process of ours outlives the one it is for. Knows the system, no ranks."""

import ctypes
import os
import signal
import sys

_PR_SET_PDEATHSIG = 1


def end_with_parent(parent: int) -> None:
    """Have the system kill this process, even a stopped one, when the thread that has started it ends.

    That is for what can be stopped or stuck; whoever can, hears of its parent's end from their pipe. Only Linux
    knows this; elsewhere nothing happens.

    Args:
        parent: the process that has started this one; if it is gone by now, this one ends at once.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(1)
