"""What happens to a model when its engine ends."""

import os
from collections.abc import Callable
from weakref import ref

import pytest

from pagedchat.api.ending import free
from pagedchat.engine.core import EngineCore
from pagedchat.engine.output import DraftVerifier, ModelRunnerOutput, SchedulerOutput
from pagedchat.engine.sampling_params import SamplingParams
from pagedchat.engine.sequence import Sequence
from pagedchat.errors import EngineStateError
from tests.api.fakes_llm import FakeLoadedModel
from tests.fakes import FakeModelRunner


def core_on(loaded: FakeLoadedModel) -> EngineCore:
    return EngineCore(loaded.limits, loaded.runner)


def not_called(_drop: Callable[[], None]) -> None:
    pytest.fail("it was released")


def test_the_last_owner_releases_what_was_loaded() -> None:
    loaded, released = FakeLoadedModel(), []
    core, runner, model = core_on(loaded), ref(loaded.runner), ref(loaded)
    del loaded

    def release(drop: Callable[[], None]) -> None:
        assert runner() is not None
        drop()
        released.append(runner())

    free(core, model, release, os.getpid())  # type: ignore[arg-type]
    assert released == [None]
    core.extend(core.open(), [5], SamplingParams())
    with pytest.raises(EngineStateError, match="closed"):
        core.step()


class VerifyingRunner(FakeModelRunner):
    """One that knows drafts."""

    def most_rows(self, sequences: list[Sequence], longest: int, wanted: int) -> int:
        return wanted

    def verify(self, batch: SchedulerOutput) -> ModelRunnerOutput:
        return self.execute(batch)


def test_one_that_verifies_drafts_is_let_go_too() -> None:
    loaded = FakeLoadedModel(VerifyingRunner())
    assert isinstance(loaded.runner, DraftVerifier)
    core, runner, model = core_on(loaded), ref(loaded.runner), ref(loaded)
    del loaded
    free(core, model, lambda drop: drop(), os.getpid())  # type: ignore[arg-type]
    assert runner() is None


def test_what_somebody_else_has_is_only_let_go() -> None:
    loaded = FakeLoadedModel()
    core = core_on(loaded)
    free(core, ref(loaded), not_called, os.getpid())  # type: ignore[arg-type]
    assert core.runner is not loaded.runner


def test_a_forked_process_lets_go_of_nothing() -> None:
    loaded = FakeLoadedModel()
    core = core_on(loaded)
    free(core, ref(loaded), not_called, -1)  # type: ignore[arg-type]
    assert core.runner is loaded.runner
