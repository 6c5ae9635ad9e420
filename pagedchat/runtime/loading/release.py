"""What a model took, given back to the machine when nobody has it any more.

Knows the allocators, which keep what is freed for a next time; who has a model is for others to know.
"""

import logging
from collections.abc import Callable
from typing import Any
from weakref import ref

import torch

from pagedchat.errors import first_line
from pagedchat.garbage import search_everything
from pagedchat.runtime.loading.cpu_process import give_back_freed_buffers

log = logging.getLogger(__name__)


def release(device: torch.device, runner: "ref[Any]", drop: Callable[[], None]) -> None:
    """Drop a model, and give back what that frees; see `LoadedModel.release`.

    Args:
        device: where it is.
        runner: has the model, the cache and the captured steps.
        drop: what its last owner does to let go of it.
    """
    # A step that was begun ahead still writes to what is to be freed.
    on_gpu = device.type == "cuda" and _has_ended_all(device)
    drop()
    if runner() is not None:
        search_everything()  # somebody else has it, or it has become part of a cycle
    if on_gpu:
        _empty_gpu_allocators(device)
    give_back_freed_buffers()


def _has_ended_all(device: torch.device) -> bool:
    """Whether a GPU has done what it was given; one that is lost to this process gives nothing back either."""
    try:
        torch.cuda.synchronize(device)
    except RuntimeError as error:
        log.warning("The memory of %s is free when this process ends: %s", device, first_line(error))
        return False
    return True


def _empty_gpu_allocators(device: torch.device) -> None:
    """Of device memory and of pinned memory; by private functions, which not every torch has, where there is no
    other way."""
    with torch.cuda.device(device):
        for name in ("_cuda_clearCublasWorkspaces", "_host_emptyCache"):
            empty = getattr(torch._C, name, None)
            if empty is not None:
                empty()
        torch.cuda.empty_cache()
