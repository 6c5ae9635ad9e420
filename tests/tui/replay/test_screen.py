"""A recording on the screen without an engine: where it begins, how it moves and plays, what it leaves alone."""

from pathlib import Path

import pytest
from textual.app import App

from pagedchat.trace.format import TraceError
from pagedchat.trace.reader import open_trace
from pagedchat.trace.recording import Recording
from pagedchat.trace.saving import save_recording
from pagedchat.tui.replay.app import ReplayApp
from pagedchat.tui.replay.screen import ReplayScreen
from tests.trace.recorded import RecordedEngine
from tests.tui.whole_app import toasts

STORY = [b"Once", b" upon", b" a", b" time", b",", b" the", b" boat", b" left", b" before", b" dawn", b".", b"\n"]


@pytest.fixture(scope="module")
def trace(tmp_path_factory) -> Path:
    """Two chats and a fork, 90 steps."""
    run = RecordedEngine(num_blocks=96, max_num_batched_tokens=128)
    run.view.labels = {1: "1 tale", 2: "2 tale»a", 3: "3 code"}
    run.ask(1, 100)
    run.run(12)
    run.ask(3, 40, max_tokens=30)
    run.run(6)
    run.core.fork(1, 2)
    run.run(72)
    recording = run.recorder.recording
    assert recording is not None
    recording.token_texts = {token: STORY[token % len(STORY)] for token in (7, *range(1000, 4000))}
    path = tmp_path_factory.mktemp("trace") / "run.trace"
    save_recording(recording, path)
    return path


@pytest.fixture
def recording(trace: Path) -> Recording:
    return open_trace(trace)


def replay_of(app: ReplayApp) -> ReplayScreen:
    screen = app.screen
    assert isinstance(screen, ReplayScreen)
    return screen


async def test_it_begins_at_the_end_or_where_it_is_told(recording: Recording) -> None:
    for step, expected in ((None, 90), (30, 30), (0, 0)):
        app = ReplayApp(recording, step)
        async with app.run_test(size=(120, 40)):
            assert replay_of(app).travel.position == expected
    with pytest.raises(TraceError, match=r"Step 91 is beyond the end\. Steps 0 to 90 are recorded\."):
        ReplayApp(recording, 91)


async def test_keys_move_through_the_recording(recording: Recording) -> None:
    app = ReplayApp(recording)
    async with app.run_test(size=(120, 40)) as pilot:
        travel = replay_of(app).travel
        for key, expected in ((",", 89), (",", 88), (".", 89), ("[", 42), ("[", 19), ("0", 0), ("]", 1), ("$", 90)):
            await pilot.press(key)
            await pilot.pause()
            assert travel.position == expected, key
        assert travel.view.live is None


async def test_space_plays_and_stops(recording: Recording) -> None:
    now = 100.0
    app: App[None] = App()
    async with app.run_test(size=(120, 40)) as pilot:
        screen = ReplayScreen(recording, 10, clock=lambda: now)
        await app.push_screen(screen)
        await pilot.pause()
        assert str(screen.panel.timeline.border_subtitle).startswith("space plays or holds")
        await pilot.press("space")
        now += 0.501
        screen._tick()
        assert (screen.travel.position, screen.playback.playing) == (20, True)
        await pilot.press("space")
        now += 1.0
        screen._tick()
        assert (screen.travel.position, screen.playback.playing) == (20, False)
        await pilot.press("space", ",")
        await pilot.pause()
        assert (screen.travel.position, screen.playback.playing) == (19, False)


async def test_a_space_that_is_typed_is_a_space(recording: Recording) -> None:
    app = ReplayApp(recording)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("/", *"a b")
        await pilot.pause()
        assert not replay_of(app).playback.playing
        assert getattr(app.focused, "value", None) == "a b"


async def test_engine_keys_do_nothing(recording: Recording) -> None:
    app = ReplayApp(recording)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("w", ".", "l", "j")
        await pilot.pause()
        assert replay_of(app).travel.position == 90


async def test_chats_beside_or_instead_of_the_inspector(recording: Recording) -> None:
    app = ReplayApp(recording)
    async with app.run_test(size=(140, 40)) as pilot:
        screen = replay_of(app)
        await pilot.pause()
        assert screen._chats.region.width < screen.panel.region.width
        await pilot.resize_terminal(90, 30)
        await pilot.pause()
        assert (screen._chats.display, screen.panel.display) == (False, True)
        await pilot.press("f2")
        await pilot.pause()
        assert (screen._chats.display, screen.panel.display) == (True, False)
        assert "1 tale  running  " in screen._chats.render().plain


@pytest.fixture
def cut(trace: Path, tmp_path) -> Recording:
    (tmp_path / "cut.trace").write_bytes(trace.read_bytes()[:-20])
    return open_trace(tmp_path / "cut.trace")


async def test_a_cut_recording_says_so(cut: Recording) -> None:
    app = ReplayApp(cut)
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.pause()
        assert toasts(app) == ["The file was cut after step 90."]


async def test_leaving_ends_the_replay_or_goes_back(trace: Path) -> None:
    app = ReplayApp(open_trace(trace))
    async with app.run_test(size=(120, 40)) as pilot:
        await pilot.press("q")
        await pilot.pause()
    assert app.return_code == 0

    host: App[None] = App()
    async with host.run_test(size=(120, 40)) as pilot:
        await host.push_screen(ReplayScreen.open(trace))
        await pilot.press("escape")
        await pilot.pause()
        assert not isinstance(host.screen, ReplayScreen)


def test_the_replay_at_a_step(recording: Recording, snap_compare) -> None:
    assert snap_compare(ReplayApp(recording, 60), terminal_size=(140, 40))


def test_the_replay_in_ascii(recording: Recording, snap_compare) -> None:
    assert snap_compare(ReplayApp(recording, 20, ascii_only=True), terminal_size=(100, 30))
