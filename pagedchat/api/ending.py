"""How an engine of this process ends: freed, or found out to be wrong. Knows the core, no requests."""

import os
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any
from weakref import ref

from pagedchat.engine.core import EngineCore
from pagedchat.engine.output import ModelRunnerOutput, SchedulerOutput
from pagedchat.errors import EngineStateError, IntegrityError

if TYPE_CHECKING:
    from pagedchat.runtime.loading.loaded import LoadedModel


class _NoRunner:
    """In the place of a runner that has been let go."""

    def execute(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        raise closed()

    def check(self) -> None:
        raise closed()


def free(
    core: EngineCore,
    loaded: "ref[LoadedModel]",
    release: Callable[[Callable[[], None]], None],
    process: int,
) -> None:
    """Let go of the runner, and with it of the model and its cache.

    Args:
        core: has the runner.
        loaded: whose runner it is; where somebody else still has that, there is nothing to be given back.
        release: see `LoadedModel.release`.
        process: whose engine it is; one forked from it has nothing to free, and may not touch the GPU.
    """
    if os.getpid() != process:
        return
    drop = partial(_let_go, core)
    if loaded() is None:
        release(drop)
    else:
        drop()


def _let_go(core: EngineCore) -> None:
    core.runner = _NoRunner()
    core.scheduler.drafts.let_go()


def closed() -> EngineStateError:
    """What every call of a closed engine is told."""
    return EngineStateError("This engine is closed.", "Make another one.")


def integrity_error(violation: str, dump: dict[str, Any]) -> IntegrityError:
    """What every call is told from the step on in which the books were found to disagree."""
    error = IntegrityError(
        f"The engine's books disagree: {violation}. This is a defect of pagedchat, and no reply of this engine can "
        "be trusted any more: close it, make another one, and please report the error's `dump`."
    )
    error.dump = dump
    return error
