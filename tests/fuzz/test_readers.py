"""Whatever others wrote is read, or refused in words, within bounds: what `python -m tools.fuzz` does, briefly."""

from time import sleep

import pytest

from tools.fuzz import (
    chat_files,
    checkpoints,
    checks,
    command_line,
    cpu_kernels,
    forms,
    gguf_files,
    gguf_parts,
    histories,
    hub_models,
    parameters,
    programs,
    screening,
    servers,
    serving,
    slash_commands,
    templates,
    traces,
    wire,
)
from tools.fuzz.bounds import TooMuchError, bounded
from tools.fuzz.target import Target

EXAMPLES = {
    "events": 20, "forms": 60,
    "commands": 20, "traces": 20, "keyframes": 40, "histories, bytes": 20, "histories, values": 20,
    "screened heads": 8,
}  # fmt: skip
"""Of those that take longest; the others get more."""
TARGETS = [
    target
    for module in (
        wire,
        traces,
        command_line,
        slash_commands,
        templates,
        checkpoints,
        gguf_files,
        gguf_parts,
        hub_models,
        checks,
        chat_files,
        cpu_kernels,
        forms,
        histories,
        parameters,
        programs,
        screening,
        servers,
        serving,
    )
    for target in module.TARGETS
]


@pytest.mark.parametrize("target", TARGETS, ids=lambda target: target.name.replace(" ", "-"))
def test_hostile_input_is_read_or_refused(target: Target) -> None:
    target.hold(EXAMPLES.get(target.name, 40))


def test_an_example_has_bounds_of_time_and_memory() -> None:
    def forever() -> None:
        while True:
            pass

    def asleep() -> None:
        while True:
            sleep(0.01)

    with pytest.raises(TooMuchError, match="takes longer"), bounded(seconds=0.05):
        forever()
    with pytest.raises(TooMuchError, match="waits longer"), bounded(seconds=0.05):
        asleep()
    with pytest.raises(TooMuchError, match="MiB"), bounded(mebibytes=-1):
        pass
