"""A loader for the engine process that loads a model as users do, and counts its steps.

Until it is told to go on, the engine takes its time between two steps: nobody measures before the screen shows what
it is to show. Knows neither screens nor terminals.
"""

import time
from collections.abc import Callable

from pagedchat.bench.ui.script import Script, StepCounter, inherited_script
from pagedchat.config import EngineConfig
from pagedchat.engine.output import ModelRunner, ModelRunnerOutput, SchedulerOutput
from pagedchat.events import LoadProgress
from pagedchat.runtime.loading.build import load_model
from pagedchat.runtime.loading.loaded import LoadedModel

REAL_LOADER = "pagedchat.bench.ui.real_engine:load"
HELD_SECONDS = 0.02
"""Between two steps until then."""
_SHORTEST = 256


def load(config: EngineConfig, progress: Callable[[LoadProgress], None]) -> LoadedModel:
    """Called by the engine process in place of what reads a checkpoint."""
    script = inherited_script()
    loaded = load_model(config, progress)
    _prepare(loaded.runner, script, loaded.info.max_model_len)
    _count_steps(loaded.runner, StepCounter(script.step_count), StepCounter(script.go))
    return loaded


def _prepare(runner: ModelRunner, script: Script, model_len: int) -> None:
    """What decodes of all chats take, of any length: none is captured while somebody measures."""
    decodes = getattr(runner, "decodes", None)
    length = _SHORTEST
    while decodes is not None and length < 2 * model_len:
        decodes.prepare(script.num_chats, min(length, model_len))
        length *= 2


def _count_steps(runner: ModelRunner, counter: StepCounter, go: StepCounter) -> None:
    execute = runner.execute
    held = True

    def counted(batch: SchedulerOutput) -> ModelRunnerOutput:
        nonlocal held
        if held:
            held = go.value == 0
            time.sleep(HELD_SECONDS)
        counter.add()
        return execute(batch)

    runner.execute = counted  # type: ignore[method-assign]
