"""What is recorded is what comes back: reports, caches at every position, texts, labels."""

import os
import random

import pytest

from pagedchat.events import CacheKeyframe, EngineDied, RunState, Steps, TokenTexts
from pagedchat.trace.format import TraceError
from pagedchat.trace.notable import event_after, event_before, is_notable
from pagedchat.trace.reader import open_trace
from pagedchat.trace.recorder import Recorder
from pagedchat.trace.saving import save_recording
from tests.scripted_reports import ScriptedEngine
from tests.trace.recorded import RecordedEngine, bare, random_run, same_report


@pytest.fixture(scope="module")
def run() -> RecordedEngine:
    return random_run()


def test_the_live_recording_gives_every_report_and_every_cache(run: RecordedEngine) -> None:
    recording = run.recorder.recording
    assert recording is not None
    assert recording.end == len(run.reports) > 700
    assert len(recording.chunks) > 5
    assert all(map(same_report, run.reports, recording.reports(0, recording.end)))
    for position, mirror in enumerate(run.mirrors):
        assert bare(recording.mirror_at(position)) == mirror, position


def test_a_finished_file_gives_the_same(tmp_path) -> None:
    path = tmp_path / "run.trace"
    run = random_run(path, moves=900, seed=2)
    run.recorder.close()
    recording = open_trace(path)
    assert (recording.ended, recording.damage) == (True, "")
    assert recording.start.info == run.view.info
    assert all(map(same_report, run.reports, recording.reports(0, recording.end)))
    positions = random.Random(0).sample(range(len(run.mirrors)), 60)
    for position in (0, recording.end, *positions):
        assert bare(recording.mirror_at(position)) == run.mirrors[position], position
    assert recording.token_texts == {7: b" w7"}
    assert recording.labels_at(recording.end) == {1: "1 tale", 2: "2 code"}


def test_a_saved_recording_is_the_whole_of_it_so_far(run: RecordedEngine, tmp_path) -> None:
    live = run.recorder.recording
    path = tmp_path / "saved.trace"
    size = save_recording(live, path)
    assert size == path.stat().st_size
    saved = open_trace(path)
    assert (saved.ended, saved.end, saved.last_step, saved.damage) == (True, live.end, live.last_step, "")
    assert all(map(same_report, live.reports(0, live.end), saved.reports(0, saved.end)))
    assert bare(saved.mirror_at(saved.end)) == run.mirrors[-1]
    assert saved.token_texts == live.token_texts
    assert saved.labels_at(saved.end) == live.labels_at(live.end)


def test_nobody_else_may_read_a_trace(run: RecordedEngine, tmp_path) -> None:
    before = os.umask(0)
    try:
        save_recording(run.recorder.recording, tmp_path / "saved.trace")
        Recorder(tmp_path / "run.trace").close()
    finally:
        os.umask(before)
    assert {path.stat().st_mode & 0o777 for path in tmp_path.iterdir()} == {0o600}


def test_a_file_is_never_written_over(run: RecordedEngine, tmp_path) -> None:
    path = tmp_path / "mine.txt"
    path.write_text("notes")
    for make in (lambda: Recorder(path), lambda: save_recording(run.recorder.recording, path)):
        with pytest.raises(TraceError, match=r"exists already\. Choose another file"):
            make()
    assert path.read_text() == "notes"
    with pytest.raises(TraceError, match="cannot be written: No such file or directory"):
        Recorder(tmp_path / "no" / "folder.trace")


def test_steps_and_positions(run: RecordedEngine) -> None:
    recording = run.recorder.recording
    for step in (0, 1, 17, 200, recording.last_step - 3, recording.last_step, recording.last_step + 9):
        expected = sum(report.step <= step for report in run.reports)
        assert recording.position_of(step) == expected, step
    for position in (1, 90, recording.end):
        assert recording.step_at(position) == run.reports[position - 1].step
    assert recording.step_at(0) == recording.first_step == 0
    with pytest.raises(TraceError, match="not in the recording"):
        recording.report(recording.end + 1)


def test_events_are_found_in_both_directions(run: RecordedEngine) -> None:
    recording = run.recorder.recording
    notable = [at + 1 for at, report in enumerate(run.reports) if is_notable(report)]
    assert 10 < len(notable) < len(run.reports)
    for position in range(0, recording.end + 1, 7):
        assert event_after(recording, position) == next((at for at in notable if at > position), None)
        assert event_before(recording, position) == next((at for at in reversed(notable) if at < position), None)


def test_the_oldest_half_is_dropped_when_there_is_no_room() -> None:
    run = random_run(moves=3000, seed=3, max_scratch=40_000)
    recording = run.recorder.recording
    assert 0 < recording.first < recording.end == len(run.reports)
    assert recording.first_step == run.reports[recording.first - 1].step
    for position in (recording.first, recording.first + 1, recording.end):
        assert bare(recording.mirror_at(position)) == run.mirrors[position], position
    assert recording.position_of(0) == recording.first
    with pytest.raises(TraceError, match="not in the recording"):
        recording.mirror_at(recording.first - 1)
    assert event_before(recording, recording.first + 1) is None


def test_a_shortened_recording_is_saved_from_where_it_begins(tmp_path) -> None:
    run = random_run(moves=3000, seed=3, max_scratch=40_000)
    live = run.recorder.recording
    save_recording(live, tmp_path / "late.trace")
    saved = open_trace(tmp_path / "late.trace")
    assert (saved.first, saved.first_step, saved.end) == (live.first, live.first_step, live.end)
    for position in (saved.first, saved.first + 200, saved.end):
        assert bare(saved.mirror_at(position)) == run.mirrors[position], position
    assert saved.labels_at(saved.first) == run.view.labels


def test_labels_are_forgotten_with_the_reports_that_they_are_for() -> None:
    run = RecordedEngine(num_blocks=64, max_scratch=20_000)
    names = [f"1 tale {number}" for number in range(150)]
    run.ask(1, 20)
    for name in names:
        run.view.labels = {1: name}
        run.run(2)
    recording = run.recorder.recording
    told = [recording.labels_at(at)[1] for at in range(recording.first, recording.end + 1)]
    assert recording.first > 0
    assert sorted(set(told), key=names.index) == names[names.index(told[0]) :]
    assert len(recording.labels) == len(set(told)), "what was said before `first` is not kept"


def test_labels_change_in_the_middle(tmp_path) -> None:
    run = RecordedEngine(tmp_path / "run.trace", num_blocks=64)
    run.view.labels = {1: "1 new chat"}
    run.ask(1, 20)
    run.run(5)
    run.view.labels = {1: "1 tale"}
    run.run(5)
    run.recorder.close()
    recording = open_trace(tmp_path / "run.trace")
    assert [recording.labels_at(at).get(1) for at in (0, 5, 6, 10)] == ["1 new chat", "1 tale", "1 tale", "1 tale"]


def test_a_new_engine_begins_a_new_recording(tmp_path) -> None:
    run = RecordedEngine(tmp_path / "run.trace", num_blocks=64)
    run.ask(1, 20)
    run.run(5)
    run.recorder.apply(EngineDied(1, "", True), None, {})
    second = ScriptedEngine(num_blocks=32)
    run.recorder.apply(second.view.info, None, {})
    second.ask(1, 9)
    run.recorder.apply(Steps([second.run(3)]), second.view.mirror, {})
    run.recorder.close()
    assert open_trace(tmp_path / "run.trace").last_step == 5
    later = open_trace(tmp_path / "run.2.trace")
    assert (later.start.info.num_blocks, later.last_step, later.ended) == (32, 3, True)


def test_reports_reach_a_named_file_while_the_engine_runs(tmp_path) -> None:
    now = 0.0
    recorder = Recorder(tmp_path / "run.trace", clock=lambda: now)
    engine = ScriptedEngine(num_blocks=64)
    recorder.apply(engine.view.info, None, {})
    engine.ask(1, 20)
    recorder.apply(Steps([engine.run(1)]), engine.view.mirror, {})
    recorder.keep_up()
    assert open_trace(tmp_path / "run.trace").end == 0
    now = 2.5
    recorder.keep_up()
    cut = open_trace(tmp_path / "run.trace")
    assert (cut.end, cut.ended, cut.damage) == (1, False, "The file was cut after step 1.")


def test_a_full_disk_ends_the_recording_and_nothing_else(tmp_path, monkeypatch) -> None:
    run = RecordedEngine(tmp_path / "run.trace", num_blocks=64)
    run.ask(1, 20)

    def full(*_: object) -> int:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("os.write", full)
    run.run(150)
    monkeypatch.undo()
    assert str(run.recorder.problem) == (
        f"{tmp_path / 'run.trace'} cannot be written: No space left on device. The chats go on."
    )
    run.run(3)
    assert bare(run.recorder.recording.mirror_at(100)) == run.mirrors[100]
    run.recorder.close()


def test_what_is_no_part_of_a_trace_is_ignored() -> None:
    recorder = Recorder()
    recorder.apply(RunState(True), None, {})
    recorder.apply(Steps([]), None, {})
    recorder.keep_up()
    recorder.close()
    assert (recorder.recording, recorder.problem) == (None, None)


def test_a_recording_may_begin_in_the_middle_of_a_run(run: RecordedEngine, tmp_path) -> None:
    recorder = Recorder(tmp_path / "joined.trace", joins=True)
    whole, middle, info = run.recorder.recording, 100, run.view.info
    assert whole is not None
    assert info is not None
    mirror = whole.mirror_at(middle)
    recorder.apply(info, None, {})
    recorder.apply(TokenTexts([5], [b"five"]), None, {})
    recorder.apply(CacheKeyframe(b""), mirror, {})
    for report in whole.reports(middle, 300):
        mirror.apply(report)
        recorder.apply(Steps([report]), mirror, {1: "tale"})
    recorder.close()
    assert recorder.recording is not None
    for recording in (recorder.recording, open_trace(tmp_path / "joined.trace")):
        assert (recording.first, recording.end) == (middle, 300)
        assert recording.first_step == whole.step_at(middle)
        assert recording.token_texts[5] == b"five"
        for position in (middle, middle + 1, 300):
            assert bare(recording.mirror_at(position)) == run.mirrors[position]
