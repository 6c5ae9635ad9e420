"""The phases of a reply, over reports of the real engine with a clock of the test's."""

from dataclasses import astuple

import msgspec
import pytest

from pagedchat.events import StepReport
from pagedchat.metrics.phases import PhaseClock
from pagedchat.step_batch import DecodeBatch
from tests.scripted_reports import STEP_SECONDS, ScriptedEngine


def test_reply_waits_prefills_and_decodes() -> None:
    engine = ScriptedEngine(num_blocks=64, max_num_batched_tokens=16)
    engine.ask(1, 40, max_tokens=4)
    clock = PhaseClock()
    engine.flush()
    clock.fold(engine.reports[-1])
    finished = []
    for _ in range(6):
        clock.fold(engine.run())
        finished += clock.finished
    (phases,) = finished
    assert phases.queued == pytest.approx(STEP_SECONDS - engine.reports[-1].timings.total, abs=1e-3)
    assert phases.queued + phases.prefill == pytest.approx(3 * STEP_SECONDS)  # 40 tokens, 16 a step
    assert phases.decode == pytest.approx(3 * STEP_SECONDS)
    assert phases.inference == phases.prefill + phases.decode


def test_gaps_between_tokens_are_counted_together() -> None:
    engine = ScriptedEngine(num_blocks=64)
    engine.ask(1, 8)
    engine.ask(2, 8)
    clock = PhaseClock()
    clock.fold(engine.run())
    assert clock.gaps == {}  # the first token has none before it
    clock.fold(engine.run())
    ((gap, times),) = clock.gaps.items()
    assert gap == pytest.approx(STEP_SECONDS)
    assert times == 2


def test_reply_stopped_and_asked_again_between_two_steps_is_two_replies() -> None:
    engine = ScriptedEngine(num_blocks=64)
    engine.ask(1, 8)
    clock = PhaseClock()
    for _ in range(3):
        clock.fold(engine.run())
    engine.core.stop(1)
    engine.ask(1, [5, 6])
    clock.fold(engine.run())
    assert len(clock.finished) == 1
    assert clock.gaps == {}


def test_fork_in_the_middle_of_a_reply_goes_on_with_its_marks() -> None:
    engine = ScriptedEngine(num_blocks=64)
    engine.ask(1, 8, max_tokens=4)
    clock = PhaseClock()
    clock.fold(engine.run())
    engine.core.fork(1, 2)
    clock.fold(engine.run())
    assert sum(clock.gaps.values()) == 2


def test_reply_without_a_token_has_no_phases() -> None:
    engine = ScriptedEngine(num_blocks=64)
    engine.ask(1, 8)
    engine.core.stop(1)
    engine.flush()
    clock = PhaseClock()
    clock.fold(engine.reports[-1])
    assert clock.finished == []


def test_sequences_that_decode_together_are_told_as_each_for_itself() -> None:
    engine = ScriptedEngine(num_blocks=64)
    for seq_id, max_tokens in ((1, 30), (2, 4), (3, 40)):
        engine.ask(seq_id, 8, max_tokens=max_tokens)
    together, apart = PhaseClock(), PhaseClock()
    num_shared, before = 0, None
    for step in range(40):
        if step == 6:
            engine.core.fork(1, 4)
        if step == 8:
            engine.core.stop(3)
            engine.ask(3, [5, 6], max_tokens=15)
        if step == 10:
            engine.ask(5, 8, max_tokens=6)
        report = engine.run()
        together.fold(report)
        apart.fold(with_batch_of_its_own(report))
        assert together.gaps == apart.gaps
        assert sorted(map(astuple, together.finished)) == sorted(map(astuple, apart.finished))
        if isinstance(report.batch, DecodeBatch):
            num_shared += report.batch.seq_ids is before
            before = report.batch.seq_ids
    assert num_shared > 5


def with_batch_of_its_own(report: StepReport) -> StepReport:
    """Which shares no list with another one."""
    if not isinstance(report.batch, DecodeBatch):
        return report
    batch = DecodeBatch(report.batch.seq_ids.copy(), report.batch.token_ids)
    return msgspec.structs.replace(report, batch=batch)
