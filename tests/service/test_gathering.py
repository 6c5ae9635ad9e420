"""An engine at rest waits for those who ask together, and for nobody else."""

import pytest

from pagedchat import events as ev
from pagedchat.service import commands as cmd
from pagedchat.service.gathering import LONGEST, Gathering
from pagedchat.service.loop import Received
from tests.fakes import FakeClock
from tests.service.engine_rig import EngineRig
from tests.service.test_programs import add


def test_what_is_told_of_again_is_awaited_no_longer_than_the_first_ones() -> None:
    clock = FakeClock(7.0)
    gathering = Gathering(clock)
    assert gathering.seconds(1) == 0.0
    gathering.hear(5)
    clock.advance(LONGEST / 2)
    gathering.hear(9)
    assert gathering.seconds(1) == pytest.approx(LONGEST / 2)
    clock.advance(LONGEST)
    assert gathering.seconds(1) == 0.0
    gathering.hear(4)  # though nobody has said that those before have come
    assert gathering.seconds(1) == pytest.approx(LONGEST)
    gathering.hear(0)
    gathering.hear(1)
    assert gathering.seconds(1) == pytest.approx(LONGEST)


def sizes(rig: EngineRig) -> list[int]:
    """Of the batches that were run."""
    rig.publisher.flush()
    return [len(report.batch) for steps in rig.of(ev.Steps) for report in steps.reports if report.batch]


def turn(rig: EngineRig, command: cmd.AnyCommand | None = None) -> float | None:
    return rig.loop.turn(None if command is None else Received(command, rig.clock()))


def test_requests_that_are_read_together_have_their_first_step_together() -> None:
    rig = EngineRig()
    for number in range(4):
        turn(rig, add(number, f"{number} is asked", max_tokens=2))
    turn(rig, cmd.Coming(3))
    assert turn(rig) == pytest.approx(LONGEST)
    rig.clock.advance(LONGEST / 2)
    for number in range(4, 7):
        turn(rig, add(number, f"{number} is asked", max_tokens=2))
        assert turn(rig) == (pytest.approx(LONGEST / 2) if number < 5 else 0.0)
    turn(rig, cmd.Coming(0))
    assert turn(rig) == 0.0
    assert sizes(rig) == [6, 7, 1]


def test_many_do_not_wait_for_half_as_many() -> None:
    rig = EngineRig()
    for number in range(6):
        turn(rig, add(number, f"{number} is asked", max_tokens=2))
    turn(rig, cmd.Coming(4))
    assert turn(rig) == pytest.approx(LONGEST)
    turn(rig, cmd.Coming(3))
    assert turn(rig) == 0.0
    assert sizes(rig) == [6]


def test_who_does_not_come_is_not_awaited_for_long_and_nobody_is_while_others_run() -> None:
    rig = EngineRig()
    turn(rig, add(1))
    turn(rig, cmd.Coming(3))
    turn(rig)
    rig.clock.advance(LONGEST)
    assert turn(rig) == 0.0
    assert sizes(rig) == [1]
    turn(rig, cmd.Coming(0))
    turn(rig, add(2, "another one"))
    turn(rig, cmd.Coming(3))
    assert turn(rig) == 0.0
    assert sizes(rig) == [1, 2]


def test_a_pause_holds_although_nobody_else_comes() -> None:
    rig = EngineRig()
    turn(rig, cmd.Pause())
    turn(rig, add(1))
    turn(rig, cmd.Coming(3))
    turn(rig)
    assert sizes(rig) == []
    turn(rig, cmd.Resume())
    assert turn(rig) == pytest.approx(LONGEST)
