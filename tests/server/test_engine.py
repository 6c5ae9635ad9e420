"""Whether there is an engine, from its events."""

from pagedchat.events import EngineDied, EngineFailed, IntegrityBroken, LoadProgress
from pagedchat.server.engine import EngineState
from tests.service.fake_engine import ready_info


def test_the_state_follows_the_engine() -> None:
    state = EngineState()
    assert state.trouble == "The engine is starting."
    state.fold(LoadProgress("weights", "reading x"))
    assert state.trouble == "The model is being loaded: reading x."
    state.fold(ready_info())
    assert state.trouble == ""
    assert state.info == state.known == ready_info()


def test_an_engine_that_ends_is_told_and_what_it_was_is_kept() -> None:
    state = EngineState()
    state.fold(ready_info())
    state.fold(EngineDied(-9, "", restarting=True))
    assert state.trouble == "The engine ended unexpectedly; another one is being started."
    assert state.info is None
    assert state.known == ready_info()
    state.fold(EngineDied(-9, "", restarting=False))
    assert state.trouble == "The engine ended unexpectedly; it is not started again."
    state.fold(EngineFailed("No such model.", "Give another."))
    assert state.trouble == "The engine cannot start: No such model."
    state.fold(ready_info())
    state.fold(IntegrityBroken(3, "two owners of block 5", ""))
    assert state.trouble.endswith("no reply can be trusted: two owners of block 5")
    state.fold(ready_info())
    assert state.trouble == ""
