"""Where the engine process and the offline API get their model. Light to import: torch comes with `load_model`."""

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pagedchat.config import EngineConfig
from pagedchat.engine.limits import EngineLimits
from pagedchat.engine.output import ModelRunner
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.events import EngineReady, LoadProgress
from pagedchat.garbage import freeze_once, no_collections
from pagedchat.runtime.loading.cpu_process import tune_for_cpu
from pagedchat.runtime.loading.wake_gpu import wake_gpu

if TYPE_CHECKING:
    from tokenizers import Tokenizer

Progress = Callable[[LoadProgress], None]


def nothing_more() -> bool:
    """Nothing is to be prepared."""
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class LoadedModel:
    """All that an engine is built from."""

    runner: ModelRunner
    limits: EngineLimits
    info: EngineReady
    tokenizer: "Tokenizer | None"
    """None with `skip_tokenizer_init`."""
    chat_template: str | None
    """The checkpoint's own, in Jinja; None for a base model."""
    special_tokens: dict[str, str]
    """`{"bos_token": "<s>", ...}`, for the template."""
    sampling_defaults: SamplingParams
    """From the model's generation_config.json."""
    prepare_more: Callable[[], bool] = nothing_more
    """For times without requests: makes ready one more thing that later ones may use, in a tenth of a second or so,
    and says whether there is another. Not to be called during a step."""


def load_model(config: EngineConfig, progress: Progress = lambda _: None, *, streams: bool = True) -> LoadedModel:
    """Find, download if need be, and load the model; size the cache; try both out.

    Args:
        config: which model, on what device, with how much memory.
        progress: told how it goes.
        streams: whether somebody reads replies as they come; if not, steps on a CPU hold more tokens by default.

    Raises:
        ModelError: the model cannot be found, read or run.
        DeviceError: the device is missing or has too little memory.
        InvalidValueError: a setting that this model does not allow.
    """
    began = time.perf_counter()
    tune_for_cpu()
    progress(LoadProgress("import", "Loading PyTorch"))
    wake_gpu(config.model.device)
    with no_collections():
        from pagedchat.runtime.loading.assemble import assemble  # noqa: PLC0415 - seconds of imports, after saying so

    loaded = assemble(config, progress, began, streams)
    freeze_once()
    return loaded
