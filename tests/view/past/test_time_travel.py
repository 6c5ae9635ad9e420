"""Going back over a recording: the same state as when it was the present, and where each move leads."""

import pytest

from pagedchat.trace.format import TraceError
from pagedchat.trace.reader import open_trace
from pagedchat.view.past.chat_texts import past_text
from pagedchat.view.past.time_travel import TimeTravel
from pagedchat.view.state.engine import EngineState
from tests.engine.checks import copied
from tests.trace.recorded import RecordedEngine, bare, random_run


def travel_over(run: RecordedEngine) -> TimeTravel:
    return TimeTravel(run.view, lambda: run.recorder.recording)


@pytest.fixture(scope="module")
def long_run() -> RecordedEngine:
    """Four chats of which two are forks, 1,050 steps."""
    run = RecordedEngine(num_blocks=400, max_num_batched_tokens=256)
    run.view.labels = {1: "1 tale", 2: "2 code"}
    run.ask(1, 40, max_tokens=700)
    run.ask(2, 90, max_tokens=600)
    run.run(300)
    run.core.fork(1, 3)
    run.run(400)
    run.ask(2, 30, max_tokens=400)
    run.run(350)
    return run


@pytest.fixture
def travel(long_run: RecordedEngine) -> TimeTravel:
    long_run.view.show_live()
    return travel_over(long_run)


def tables(state: EngineState) -> dict[int, tuple[str, list[int], int]]:
    return {
        seq_id: (seq.status, seq.block_table, seq.num_computed) for seq_id, seq in state.mirror.sequences.items()
    }


def test_every_way_to_a_step_gives_the_same_state(long_run: RecordedEngine, travel: TimeTravel) -> None:
    for step in (600, 599, 598, 610, 611, 340, 339, 1049, 1048, 1000, 0, 1, 300, 301):
        travel.goto(step)
        past = travel.view.past
        assert past is not None
        position = sum(report.step <= step for report in long_run.reports)
        assert bare(copied(past.mirror)) == long_run.mirrors[position], step
        assert (past.step, travel.position) == (step, step)


def test_the_past_is_drawn_like_the_present_was(long_run: RecordedEngine, travel: TimeTravel) -> None:
    then = EngineState(long_run.view.info, long_run.view.name, token_texts=long_run.view.token_texts)
    for report in long_run.reports[:701]:
        then.fold(report)
    for first in (701, 690, 1000, 400):
        travel.goto(min(first, then.step + 200))
        travel.goto(then.step)
        past = travel.view.past
        recent = list(past.lines)[-300:]
        assert [str(line).split("  ")[0] for line in recent] == [
            str(line).split("  ")[0] for line in list(then.lines)[-300:]
        ]
        assert [column.marks for column in list(past.columns.columns)[-250:]] == [
            column.marks for column in list(then.columns.columns)[-250:]
        ]
        assert past.tokens_per_second == pytest.approx(then.tokens_per_second, rel=1e-3)


def test_a_fork_is_marked_only_once_it_has_happened(travel: TimeTravel) -> None:
    travel.goto(310)
    travel.goto(299)
    assert all(3 not in column.marks for column in travel.view.past.columns.columns)
    travel.goto(301)
    assert any(column.marks.get(3) == "f" for column in travel.view.past.columns.columns)


def test_moves_by_steps(travel: TimeTravel) -> None:
    assert (travel.first, travel.last, travel.position) == (0, 1050, None)
    travel.back()
    assert travel.position == 1049
    travel.back(10)
    travel.forward(3)
    assert travel.position == 1042
    travel.forward(8)
    assert travel.position == 1050
    travel.forward()
    assert (travel.position, travel.view.past) == (None, None)
    travel.forward()
    assert travel.position is None
    travel.back(5000)
    assert (travel.position, travel.view.step) == (0, 0)
    travel.back()
    assert travel.position == 0
    travel.live()
    assert travel.view.shown is travel.view.live


def test_moves_by_events(travel: TimeTravel) -> None:
    travel.goto(600)
    travel.previous_event()
    assert travel.position == 301
    travel.previous_event()
    assert travel.position == 1
    with pytest.raises(TraceError, match=r"No event is recorded before step 1\. Steps 0 to 1050 are recorded\."):
        travel.previous_event()
    travel.next_event()
    assert travel.position == 301
    travel.goto(1050)
    with pytest.raises(TraceError, match="No event is recorded after step 1050"):
        travel.next_event()
    travel.live()
    travel.previous_event()
    assert 301 < travel.position < 1050


def test_a_step_out_of_range_is_told_with_the_range(travel: TimeTravel) -> None:
    with pytest.raises(TraceError, match=r"Step 9000 is beyond the end\. Steps 0 to 1050 are recorded\."):
        travel.goto(9000)
    with pytest.raises(TraceError, match=r"Step -1 is before the beginning\."):
        travel.goto(-1)
    assert travel.position is None


def test_a_dropped_beginning_is_told() -> None:
    run = random_run(moves=3000, seed=3, max_scratch=40_000)
    travel = travel_over(run)
    assert travel.first > 10
    with pytest.raises(TraceError, match=r"Step 1 is not recorded any more\."):
        travel.goto(1)
    travel.goto(travel.first)
    assert travel.view.mirror.num_reports >= run.recorder.recording.first
    travel.forward()
    assert travel.position == travel.view.step == travel.first + 1


def test_before_the_engine_is_ready_there_is_nothing(tmp_path) -> None:
    run = RecordedEngine(num_blocks=4)
    travel = TimeTravel(run.view, lambda: None)
    assert not travel.is_recorded
    for move in (travel.back, lambda: travel.goto(0), lambda: travel.save(tmp_path / "x")):
        with pytest.raises(TraceError, match="Nothing has been recorded yet"):
            move()


def test_the_engine_goes_on_while_the_past_is_shown() -> None:
    run = RecordedEngine(num_blocks=64)
    travel = travel_over(run)
    run.ask(1, 20)
    run.run(40)
    travel.goto(30)
    assert travel.seconds_ago == pytest.approx(0.5)
    run.run(10)
    assert (travel.last, run.view.step, run.view.live.step) == (50, 30, 50)
    assert travel.seconds_ago == pytest.approx(1.0)
    run.now += 90
    assert travel.seconds_ago == pytest.approx(91.0), "it lies further back, though no step has run"
    travel.forward(5)
    assert run.view.step == 35
    travel.live()
    assert (run.view.step, travel.seconds_ago) == (50, 0.0)


def test_the_last_step_lies_back_for_as_long_as_nothing_has_run() -> None:
    run = RecordedEngine(num_blocks=64)
    travel = travel_over(run)
    run.ask(1, 20)
    run.run(4)
    run.now += 30
    travel.goto(4)
    assert travel.seconds_ago == pytest.approx(30.0)
    replay = TimeTravel(run.view, lambda: run.recorder.recording, has_live=False)
    replay.goto(2)
    assert replay.seconds_ago == pytest.approx(0.1), "in a replay the end stands for the present"


def test_a_new_engine_has_a_past_of_its_own() -> None:
    first, second = RecordedEngine(num_blocks=64), RecordedEngine(num_blocks=32)
    recordings = [first.recorder.recording]
    travel = TimeTravel(first.view, lambda: recordings[-1])
    for run in (first, second):
        run.ask(1, 20)
        run.run(20)
    travel.goto(5)
    assert first.view.mirror.num_blocks == 64
    recordings.append(second.recorder.recording)
    travel.goto(5)
    assert first.view.mirror.num_blocks == 32


def test_save_and_replay(long_run: RecordedEngine, travel: TimeTravel, tmp_path) -> None:
    size = travel.save(tmp_path / "run.trace")
    assert size == (tmp_path / "run.trace").stat().st_size
    recording = open_trace(tmp_path / "run.trace")
    replay = TimeTravel(type(travel.view)(), lambda: recording, has_live=False)
    replay.live()
    assert replay.position == 1050
    replay.forward()
    assert replay.position == 1050
    assert bare(replay.view.mirror) == long_run.mirrors[-1]


# --- names and texts ----------------------------------------------------------------------------------


def test_names_and_text_as_they_were() -> None:
    run = RecordedEngine(num_blocks=64)
    travel = travel_over(run)
    run.view.labels = {1: "1 new chat"}
    run.ask(1, [3, 4, 5])
    run.run(10)
    run.view.labels = {1: "1 tale\x1b[31m"}
    run.run(10)
    run.view.token_texts = {3: b"Na", 4: b"\xc3", 5: b"\xafve", 7: b" [b]\x1b[2J"}
    assert past_text(run.view, 1) is None
    travel.goto(2)
    assert run.view.name(1) == "1 new chat"
    assert past_text(run.view, 1) == "Naïve [b]\x1b[2J [b]\x1b[2J"
    assert past_text(run.view, 2) is None
    assert any("1 new chat" in str(line) for line in run.view.lines)
    travel.goto(20)
    assert run.view.name(1) == "1 tale"
    run.view.token_texts = {3: b"Na"}
    assert past_text(run.view, 1).startswith("Na\ufffd\ufffd\ufffd")
