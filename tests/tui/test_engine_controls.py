"""What is asked of the engine becomes commands, and nothing is asked where there is none."""

import pytest

from pagedchat.errors import PagedChatError
from pagedchat.events import RunState
from pagedchat.service.commands import (
    AnyCommand,
    Evict,
    FlushCache,
    Pause,
    Pin,
    Resume,
    SetLimit,
    SetPace,
    StepOnce,
    Unpin,
)
from pagedchat.tui.engine_controls import EngineControls
from pagedchat.view.engine_view import EngineView
from tests.fakes_tui import READY


@pytest.fixture
def sent() -> list[AnyCommand]:
    return []


@pytest.fixture
def engine(sent: list[AnyCommand]) -> EngineControls:
    view = EngineView()
    view.apply(READY)
    return EngineControls(view, sent.append)


def test_wishes_become_commands(engine: EngineControls, sent: list[AnyCommand]) -> None:
    engine.pause()
    engine.run()
    engine.set_pace(0.5)
    engine.limit(40)
    engine.limit(None)
    engine.pin(7)
    engine.unpin(7)
    engine.unpin(None)
    engine.evict(8)
    engine.flush()
    assert sent == [
        Pause(), Resume(), SetPace(0.5), SetLimit(40), SetLimit(None), Pin(7), Unpin(7), Unpin(None), Evict(8),
        FlushCache(),
    ]  # fmt: skip


def test_a_scheduler_that_runs_is_paused_before_it_steps(engine: EngineControls, sent: list[AnyCommand]) -> None:
    engine.step(3)
    assert sent == [Pause(), StepOnce(3)]


def test_a_paused_scheduler_steps_or_runs_on(sent: list[AnyCommand]) -> None:
    view = EngineView()
    view.apply(READY)
    view.apply(RunState(True))
    engine = EngineControls(view, sent.append)
    engine.step()
    engine.toggle_pause()
    assert sent == [StepOnce(1), Resume()]


def test_without_an_engine_nothing_is_sent(sent: list[AnyCommand]) -> None:
    engine = EngineControls(EngineView(), sent.append)
    for ask in (engine.live, engine.toggle_pause, engine.step, engine.flush):
        with pytest.raises(PagedChatError, match="The engine is not running"):
            ask()
    assert sent == []
