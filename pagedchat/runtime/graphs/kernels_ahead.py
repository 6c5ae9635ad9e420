"""The kernels of steps that will be captured: found by a rehearsal, and built while others do something else."""

from collections.abc import Callable, Iterable
from contextlib import suppress

import torch

from pagedchat.errors import PagedChatError
from pagedchat.jit.build_ahead import BuildAhead
from pagedchat.jit.launch import build_ahead, rehearse
from pagedchat.runtime.graphs.decode.steps import Step


@torch.inference_mode()
def build_kernels_of(steps: Iterable[Callable[[], Step]], device: torch.device) -> BuildAhead | None:
    """Begin to build them in the background; None where there are no kernels.

    Args:
        steps: each is made and run once without its kernels, on the current stream: products by a library are
            made of whatever is in memory. One that cannot be made is passed over: who captures it is told why.
        device: where they run.
    """
    if device.type != "cuda":
        return None
    with rehearse() as wanted:
        for make in steps:
            with suppress(RuntimeError, PagedChatError):
                make()()
    return build_ahead(wanted, device.index)
