"""The program around its engine: it starts, loads, fails, dies, and ends."""

import asyncio
import gc
import os
import tempfile
from pathlib import Path

from pagedchat.cache_events import BlockPinned
from pagedchat.events import EngineDied, EngineFailed, EngineNotice, LoadProgress, RunState
from pagedchat.garbage import no_collections
from pagedchat.metrics import runtime_folder
from pagedchat.metrics.stats_socket import ask_stats
from pagedchat.tui.chat.engine_status import StatusBanner
from pagedchat.tui.kit.front_screens import ConfirmScreen
from tests.fakes_tui import READY, prefill, report
from tests.tui.whole_app import WIDE, draw, drawn, pane, settle, toasts, write


async def test_engine_starts_after_the_first_frame(make_app, link):
    app = make_app()
    assert not link.started
    async with app.run_test(size=WIDE) as pilot:
        await settle(pilot)
        assert link.started


async def test_garbage_is_searched_for_after_the_first_frame(make_app, link):
    app = make_app()
    with no_collections():
        async with app.run_test(size=WIDE) as pilot:
            await settle(pilot)
            assert gc.isenabled()


async def test_loading_is_shown_and_prompts_may_be_written(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(LoadProgress("weights", "Reading weights", 120 * 1024**2, 240 * 1024**2, "B"))
        await settle(pilot)
        banner = drawn(app.screen.query_one(StatusBanner))
        assert "Reading weights" in banner
        assert "120 MiB of 240 MiB" in banner
        await pilot.press("a", "enter")
        assert len(link.generates()) == 1
        link.say(READY)
        await settle(pilot)
        assert not app.screen.query_one(StatusBanner).display


def test_loading(snap_compare, make_still_app, link):
    async def run_before(pilot):
        link.say(LoadProgress("weights", "Reading weights", 120 * 1024**2, 240 * 1024**2, "B"))
        await draw(pilot)

    assert snap_compare(make_still_app(), terminal_size=(120, 40), run_before=run_before)


async def test_failed_start_is_explained_and_ends_with_an_error_status(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(EngineFailed("There is no model 'x/y' on the hub.", "Check the name."))
        await settle(pilot)
        banner = drawn(app.screen.query_one(StatusBanner))
        assert "There is no model 'x/y' on the hub." in banner
        assert "Check the name." in banner
        await pilot.press("ctrl+q")
        await pilot.pause()
    assert app.return_code == 1
    assert link.closed


def test_failed(snap_compare, make_still_app, link):
    async def run_before(pilot):
        link.say(EngineFailed("There is no model 'x/y' on the hub.", "Check the name, or give a folder."))
        await draw(pilot)

    assert snap_compare(make_still_app(), terminal_size=(120, 40), run_before=run_before)


async def test_dead_engine_keeps_the_chats(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY, prefill(1, 0, 2))
        await pilot.press("a", "enter")
        link.reply(link.generates()[0], "half", finish=False)
        await settle(pilot)
        link.say(EngineDied(-9, "", True))
        await settle(pilot)
        assert "The engine ended (SIGKILL, killed)" in drawn(app.screen.query_one(StatusBanner))
        assert "interrupted" in drawn(pane(app, 1).transcript)
        link.say(READY)
        await settle(pilot)
        assert not app.screen.query_one(StatusBanner).display
        await pilot.press("b", "enter")
        assert [turn.text for turn in link.generates()[-1].turns] == ["a", "half", "b"]


async def test_engine_that_ends_too_often_is_started_again_by_a_key(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await pilot.press("a", "enter")
        link.reply(link.generates()[0], "half", finish=False)
        await pilot.press("b", "enter")  # queued
        link.say(EngineDied(-9, "", False))
        await settle(pilot)
        banner = drawn(app.screen.query_one(StatusBanner))
        assert "it ends too often; F12 starts it again, ^Q quits" in banner
        assert app.focused.text == "b"  # what was not asked yet is to be sent again
        await pilot.press("f12")
        await settle(pilot)
        assert link.num_restarts == 1
        assert "Starting the engine" in drawn(app.screen.query_one(StatusBanner))
        link.say(READY)
        await settle(pilot)
        assert not app.screen.query_one(StatusBanner).display
        await pilot.press("enter")
        assert [turn.text for turn in link.generates()[-1].turns] == ["a", "half", "b"]


async def test_engine_that_could_not_start_is_tried_again(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(EngineFailed("The disk is full.", "Make room."))
        await settle(pilot)
        assert "F12 tries again" in drawn(app.screen.query_one(StatusBanner))
        await write(pilot, "/restart")
        await pilot.press("enter")
        await settle(pilot)
        assert link.num_restarts == 1
        assert app.failure is None
        assert "Starting the engine" in drawn(app.screen.query_one(StatusBanner))


async def test_engine_that_runs_is_not_restarted_without_a_question(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await settle(pilot)
        await pilot.press("f12", "escape")
        assert link.num_restarts == 0
        await pilot.press("f12", "enter")
        await settle(pilot)
        assert link.num_restarts == 1


async def test_what_the_next_engine_has_of_the_last_one_is_said(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY, prefill(1, 0, 3), report(2, [BlockPinned(0)], in_use=3), RunState(True, 0.5, 40))
        link.say(EngineDied(-9, "", True), READY, RunState(paused=False), EngineNotice("Limit 40."))
        await settle(pilot)
        said = toasts(app)
        assert said == [
            "The engine runs again. As before, it is paused, a step takes at least 500 ms and the limit is 40. "
            "1 pin went with the old engine's blocks.",
            "Limit 40.",
        ]


async def test_quit_asks_while_replies_are_written(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("a", "enter", "ctrl+q")
        assert isinstance(app.screen, ConfirmScreen)
        await pilot.press("escape")
        assert app.is_running
        await pilot.press("ctrl+q", "enter")
        await pilot.pause()
    assert link.closed
    assert app.return_code == 0


async def test_quit_at_once_when_nothing_runs(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("ctrl+q")
        await pilot.pause()
    assert link.closed


async def test_a_program_left_as_it_starts_leaves_no_work_undone(make_app, recwarn):
    app = make_app()
    async with app.run_test():
        app._start_engine()
        app.workers.cancel_all()  # before any of them had a turn
    del app
    gc.collect()
    assert [str(warning.message) for warning in recwarn] == []


async def test_figures_are_given_to_whoever_asks(make_app, link, monkeypatch):
    with tempfile.TemporaryDirectory(prefix="pc") as folder:
        monkeypatch.setattr(runtime_folder, "_candidates", lambda: [Path(folder) / "run"])
        app = make_app()
        async with app.run_test(size=WIDE) as pilot:
            link.say(READY, prefill(1, 0, 3))
            await settle(pilot)
            while not runtime_folder.running():
                await pilot.pause(0.01)
            socket = runtime_folder.running()[os.getpid()]
            answer = await asyncio.to_thread(ask_stats, socket)
            assert socket.stat().st_mode & 0o777 == 0o600
        assert answer["engine"]["num_blocks"] == 256
        assert [chat["session_id"] for chat in answer["chats"]] == [1, 2]
        assert answer["pool"]["in_use"] == 3
        assert not runtime_folder.running()


async def test_where_metrics_are_served_is_said(make_app):
    app = make_app(metrics_url="http://127.0.0.1:9100/metrics")
    async with app.run_test(size=WIDE) as pilot:
        await settle(pilot)
        assert toasts(app) == ["Metrics: http://127.0.0.1:9100/metrics"]


async def test_how_long_the_past_lies_back_is_drawn_anew_though_nothing_runs(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY, prefill(1, 0, 3))
        await settle(pilot)
        now = app.clock() + 10
        app.clock = lambda: now
        list(app._changed_parts())  # what its own turns had not taken yet
        assert list(app._changed_parts()) == []
        app.view.show_past(app.view.live.copy())
        now += 10
        assert list(app._changed_parts())
