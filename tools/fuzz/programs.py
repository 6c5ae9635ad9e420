"""Requests of programs: whatever comes over the wire, the engine goes on, and nothing is held at the end."""

import logging
from collections.abc import Iterator
from contextlib import contextmanager

from hypothesis import strategies as st

from pagedchat import events as ev
from pagedchat.engine.limits import EngineLimits
from pagedchat.service.commands import AbortRequests, AddRequest, Coming, ProgramCommand
from pagedchat.service.wire import FrameWriter, command_reader
from tests.service.engine_rig import EngineRig
from tools.fuzz.bent_trees import any_of
from tools.fuzz.structs import values_of
from tools.fuzz.target import Target

_LIMITS = EngineLimits(num_blocks=30, block_size=4, model_len=64, vocab_size=260, eos_token_ids=frozenset({1}))
_USUAL = [
    AddRequest(1, "Hello"), AddRequest(2, [70, 71, 72]), AddRequest(3, [70] * 40), AbortRequests([1, 2]), Coming(3),
]  # fmt: skip
_COMMANDS = st.lists(values_of(ProgramCommand | Coming) | any_of(_USUAL), min_size=1, max_size=6)


@contextmanager
def _quiet() -> Iterator[None]:
    """The engine says of every defect where it was; others in this process hear it again afterwards."""
    log = logging.getLogger("pagedchat.engine")
    log.disabled = True
    try:
        yield
    finally:
        log.disabled = False


def _check(commands: list[ProgramCommand | Coming]) -> None:
    with _quiet():
        _drive(commands)


def _drive(commands: list[ProgramCommand | Coming]) -> None:
    rig = EngineRig(limits=_LIMITS)
    writer, reader = FrameWriter(), command_reader()
    numbers = set()
    for command in commands:
        [heard] = reader.feed(bytes(writer.frame(command)))
        assert heard == command or "nan" in str(command)
        rig.send(heard)  # type: ignore[arg-type]  # no configuration
        match command:
            case AbortRequests(request_ids):
                numbers |= set(request_ids)
            case Coming():
                pass
            case _:
                numbers.add(command.request_id)
        if rig.loop.may_step:
            rig.step()
    for _ in range(10):
        if rig.loop.may_step:
            rig.step()
    rig.send(AbortRequests(list(numbers)))
    rig.publisher.flush()
    assert rig.core.sequences == {}
    assert len(rig.loop.programs) == 0
    rig.core.check_integrity()
    for event in rig.events:
        assert bytes(writer.frame(event))
        if isinstance(event, ev.RequestRefused):
            assert event.message


TARGETS = (Target("programs", _COMMANDS, _check),)
