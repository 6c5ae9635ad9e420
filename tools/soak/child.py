"""The engine process's loader under a soak: the usual one; and on a signal the process counts what it holds.

The counts go into the file that `PAGEDCHAT_SOAK_TABLES` names.
"""

import gc
import json
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from types import FrameType

from pagedchat.config import EngineConfig
from pagedchat.runtime.loading.build import load_model
from pagedchat.runtime.loading.loaded import LoadedModel, Progress
from tools.soak.tables import table_sizes

LOADER = "tools.soak.child:load"
VARIABLE = "PAGEDCHAT_SOAK_TABLES"
SIGNAL = signal.SIGUSR1


def load(config: EngineConfig, progress: Progress) -> LoadedModel:
    """Called by the engine process in place of what usually loads a model."""
    signal.signal(SIGNAL, _count)
    return load_model(config, progress)


def _count(_: int, frame: FrameType | None) -> None:
    gc.collect()
    place = Path(os.environ[VARIABLE])
    fresh = place.with_suffix(".tmp")
    fresh.write_text(json.dumps(table_sizes(_locals(frame))), encoding="utf-8")
    fresh.replace(place)


def _locals(frame: FrameType | None) -> Iterator[object]:
    """What the functions under way hold: the loop, the publisher, the model."""
    while frame is not None:
        yield from frame.f_locals.values()
        frame = frame.f_back
