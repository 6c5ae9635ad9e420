"""The tour's guide and stage on scripted reports: what a step waits for, what it says, what is put back."""

import msgspec
import pytest

from pagedchat.cache_events import PrefixHit, SequenceForked, SequencePreempted, SequenceScheduled
from pagedchat.chat.session import ChatSession
from pagedchat.engine.core import EngineCore
from pagedchat.events import EngineDied, RunState, StepReport
from pagedchat.service.commands import AnyCommand, Generate, Pause, Resume, SetLimit, SetPace
from pagedchat.view.chats.desk import ChatDesk
from pagedchat.view.options import UiOptions
from pagedchat.view.tour.guide import PATIENCE, STEPS, TourGuide
from pagedchat.view.tour.pressure_steps import _come_back as come_back
from pagedchat.view.tour.script import Script, TourStep, first_event, until
from pagedchat.view.tour.stage import PACE, POOL, SPARE, Stage
from tests.scripted_reports import ScriptedEngine


class Tour:
    """A guide through two steps: a fork of sequence 1, then the end of all replies."""

    def __init__(self) -> None:
        self.engine = ScriptedEngine(num_blocks=8)
        self.core: EngineCore = self.engine.core
        self.sent: list[AnyCommand] = []
        self.closed: list[ChatSession] = []
        self.now = 0.0
        self.desk = ChatDesk(self.sent.append, UiOptions())
        self.desk.context_limit = 600
        steps = [TourStep("Fork", "", "a fork", forks), TourStep("Rest", "", "the end", rests)]
        self.guide = TourGuide(self.engine.view, self.stage(), lambda: self.now, steps)

    def stage(self) -> Stage:
        return Stage(self.engine.view, self.desk, self.sent.append, lambda *_: None, self.closed.append)


def forks(stage: Stage) -> Script:
    forked = yield from first_event(SequenceForked, lambda event: event.seq_id == 1)
    return f"{stage.name(forked.child_id)} of {stage.name(forked.seq_id)}, {stage.in_use} in use"


def rests(stage: Stage) -> Script:
    yield from until(lambda: not stage.mirror.last or stage.mirror.last.queues.running == 0)
    return "all at rest"


@pytest.fixture
def tour() -> Tour:
    tour = Tour()
    tour.engine.ask(1, 5, max_tokens=4)
    tour.engine.run()
    tour.guide.begin()
    return tour


def test_a_step_says_what_it_found_once_the_engine_has_reported_it(tour: Tour) -> None:
    tour.guide.look()
    assert tour.guide.state_text == "Watch …"
    tour.engine.core.fork(1, 2)
    tour.engine.run()
    tour.guide.look()
    assert tour.guide.state_text == "seq 2 of seq 1, 2 in use"
    assert tour.guide.next()
    tour.guide.look()
    assert tour.guide.state_text == "Watch …"
    tour.engine.run(6)
    tour.guide.look()
    assert (tour.guide.state_text, tour.guide.next()) == ("all at rest", False)
    tour.guide.back()
    assert tour.guide.state_text == "seq 2 of seq 1, 2 in use"


def test_what_was_reported_before_a_step_began_is_not_taken_for_its_doing() -> None:
    tour = Tour()
    tour.engine.ask(1, 5)
    tour.engine.run()
    tour.engine.core.fork(1, 2)
    tour.engine.run()
    tour.guide.begin()
    tour.guide.look()
    assert tour.guide.found == ["", ""]


def test_long_waiting_and_a_dead_engine_are_said(tour: Tour) -> None:
    tour.now = PATIENCE + 1
    assert tour.guide.state_text == "Still waiting for a fork. Enter goes on without it."
    tour.engine.view.apply(EngineDied(-9, "", restarting=True))
    tour.guide.look()
    assert tour.guide.state_text == "The engine is not running; the step begins anew when it is."


def test_a_stage_asks_in_chats_of_its_own_and_puts_everything_back() -> None:
    tour = Tour()
    tour.engine.view.apply(RunState(paused=True, pace=0.0, limit=6))
    stage = tour.stage()
    stage.begin()
    chat = stage.open()
    stage.ask(chat)
    asked = tour.sent[-1]
    assert isinstance(asked, Generate)
    assert asked.overrides.max_tokens == 40
    assert sum(len(turn.text.split()) for turn in asked.turns) >= 2 * 16
    assert (stage.chats, stage.busy, stage.is_mine(chat.session_id)) == ([chat], True, True)
    stage.limit(3)
    assert tour.sent[-1] == SetLimit(3)
    tour.sent.clear()
    stage.restore()
    assert tour.closed == [chat]
    assert tour.sent[-3:] == [SetLimit(6), SetPace(0.0), Pause()]


def test_the_tour_runs_the_engine_slowly(tour: Tour) -> None:
    assert tour.sent[:2] == [Resume(), SetPace(PACE)]
    assert len({step.title for step in STEPS}) == len(STEPS) == 8


def test_the_tour_brings_a_small_pool_of_its_own_and_puts_the_large_one_back() -> None:
    sent: list[AnyCommand] = []
    engine = ScriptedEngine(num_blocks=14_563)
    stage = Stage(engine.view, ChatDesk(sent.append, UiOptions()), sent.append, lambda *_: None, lambda _: None)
    stage.begin()
    assert sent[0] == SetLimit(POOL)
    stage.limit(7)
    stage.limit(None)
    assert sent[-2:] == [SetLimit(7), SetLimit(POOL)]
    stage.restore()
    assert sent[-2] == SetLimit(None)


def test_the_tour_s_pool_leaves_the_user_s_chats_their_blocks() -> None:
    sent: list[AnyCommand] = []
    engine = ScriptedEngine(num_blocks=14_563, model_len=20_000)
    engine.ask(1, 16 * 300)
    engine.run(4)
    stage = Stage(engine.view, ChatDesk(sent.append, UiOptions()), sent.append, lambda *_: None, lambda _: None)
    stage.begin()
    assert sent[0] == SetLimit(stage.in_use + SPARE)
    assert stage.in_use >= 300


def run_tour_step(engine: ScriptedEngine, stage: Stage, script: Script, reports: list[StepReport]) -> str:
    """Hand these reports to a script that has begun; what it says."""
    for report in reports:
        stage.note(report)
        try:
            script.send(report)
        except StopIteration as shown:
            return shown.value
    return ""


def test_a_chat_that_is_back_in_the_very_step_in_which_it_gave_way_is_not_waited_for() -> None:
    tour = Tour()
    stage = tour.stage()
    chat = stage.open()
    tour.engine.ask(chat.session_id, 40, max_tokens=2)
    tour.engine.run(2)
    stage.open()
    script = come_back(stage)
    next(script)
    rest = [
        SequencePreempted(chat.session_id, "recompute", 41, 9, "waiting", 32, 3, "running"),
        PrefixHit(chat.session_id, [0, 1], 32),
    ]
    report = msgspec.structs.replace(tour.engine.reports[-1], events=[*rest, SequenceScheduled(chat.session_id)])
    text = run_tour_step(tour.engine, stage, script, [report])
    assert "Of the 41 tokens that it had computed 32 were found in the cache, and 9 had to be computed" in text
