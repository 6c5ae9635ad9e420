"""Playing a recording at the speed at which it was made."""

from pathlib import Path

import pytest

from pagedchat.trace.reader import open_trace
from pagedchat.trace.recording import Recording
from pagedchat.trace.saving import save_recording
from pagedchat.view.engine_view import EngineView
from pagedchat.view.past.playback import MAX_GAP, Playback
from pagedchat.view.past.time_travel import TimeTravel
from tests.trace.recorded import RecordedEngine


@pytest.fixture
def recording(tmp_path: Path) -> Recording:
    """Of a file with 90 steps, one every 0.05 s."""
    run = RecordedEngine(num_blocks=96)
    run.ask(1, 100)
    run.run(90)
    recording = run.recorder.recording
    assert recording is not None
    save_recording(recording, tmp_path / "run.trace")
    return open_trace(tmp_path / "run.trace")


def playback_from(recording: Recording, step: int) -> Playback:
    travel = TimeTravel(EngineView(), lambda: recording, has_live=False)
    travel.goto(step)
    playback = Playback(travel)
    playback.toggle()
    return playback


def test_playing_keeps_to_the_recorded_clock(recording: Recording) -> None:
    playback = playback_from(recording, 0)
    positions = []
    while playback.playing:
        playback.advance(0.1)
        positions.append(playback._travel.position)
    assert positions[:4] == [3, 5, 7, 9]
    assert positions[-1] == 90
    assert len(positions) == pytest.approx(90 * 0.05 / 0.1, abs=2)
    assert not playback.advance(1.0)


def test_playing_at_the_end_begins_anew(recording: Recording) -> None:
    playback = playback_from(recording, 90)
    assert (playback.playing, playback._travel.position) == (True, 0)


def test_long_pauses_are_shortened() -> None:
    run = RecordedEngine(num_blocks=64)
    run.ask(1, 20)
    run.run(5)
    run.now += 3600
    run.run(5)
    recording = run.recorder.recording
    assert recording is not None
    playback = playback_from(recording, 5)
    assert not playback.advance(MAX_GAP * 0.9)
    assert playback.advance(MAX_GAP * 0.2)
    assert playback._travel.position >= 6
