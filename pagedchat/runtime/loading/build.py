"""Where the engine process and the offline API get their model. Light to import: torch comes with `load_model`."""

import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING

from pagedchat.config import EngineConfig
from pagedchat.errors import DeviceError, PagedChatError, is_out_of_memory
from pagedchat.events import LoadProgress
from pagedchat.garbage import freeze_once, no_collections
from pagedchat.ops.cpu.kernels import LateKernelError, prepare_in_background
from pagedchat.runtime.loading.cpu_process import give_back_freed_buffers, models, tune_for_cpu
from pagedchat.runtime.loading.loaded import LoadedModel, Progress
from pagedchat.runtime.loading.wake_gpu import wake_gpu

if TYPE_CHECKING:
    from pagedchat.ops.ranks.company import Company


def load_model(
    config: EngineConfig,
    progress: Progress = lambda _: None,
    *,
    streams: bool = True,
    join_ranks: "Callable[[], Company] | None" = None,
) -> LoadedModel:
    """Find, download if need be, and load the model; size the cache; try both out.

    Args:
        config: which model, on what device, with how much memory.
        progress: told how it goes.
        streams: whether somebody reads replies as they come; if not, steps on a CPU hold more tokens by default.
        join_ranks: finds the other ranks, where this process has a part of the model; called once torch is there.

    Raises:
        ModelError: the model cannot be found, read or run.
        DeviceError: the device is missing or has too little memory.
        InvalidValueError: a setting that this model does not allow.
    """
    try:
        return _load(config, progress, streams, join_ranks)
    except PagedChatError:
        raise
    except Exception as error:
        if not is_out_of_memory(error):
            raise
        raise DeviceError(
            "Memory ran out while the model was being loaded.",
            "Free some memory, lower --num-blocks and --swap-space, or choose a smaller model.",
        ) from error


def _load(
    config: EngineConfig, progress: Progress, streams: bool, join_ranks: "Callable[[], Company] | None"
) -> LoadedModel:
    began = time.perf_counter()
    tune_for_cpu()
    progress(LoadProgress("import", "Loading PyTorch"))
    if join_ranks is None and wake_gpu(config.model.device) is None:  # then it will be the CPU
        prepare_in_background()
    with no_collections():
        from pagedchat.runtime.loading.assemble import assemble  # noqa: PLC0415 - seconds of imports, after saying so

    try:
        company = None if join_ranks is None else join_ranks()
        loaded: LoadedModel | None = None
        # Ranks go through all this together: none of them begins again.
        with suppress(*([LateKernelError] if company is None else [])):
            loaded = assemble(config, progress, began, streams, company)
        if loaded is None:  # torch computes all
            give_back_freed_buffers()
            loaded = assemble(config, progress, began, streams, company)
    except BaseException:
        give_back_freed_buffers()
        raise
    models.add(loaded.runner)
    freeze_once()
    return loaded
