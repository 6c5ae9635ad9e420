"""Panes, tabs and header; pictures of them: after a wanted change `pytest tests/tui --snapshot-update`."""

import msgspec
import pytest
from textual import events

from pagedchat.cache_events import SequenceForked
from pagedchat.chat.session import Notice
from pagedchat.events import LoadProgress
from pagedchat.view.chats.layout import MIN_SIZE
from tests.fakes_tui import READY, prefill, report
from tests.tui.whole_app import WIDE, drawn, pane, panes, settle, stream_two


async def test_typing_needs_no_focus(make_app):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        app.screen.set_focus(None)
        await pilot.press("h", "i")
        assert pane(app, 1).composer.text == "hi"


async def test_narrow_terminal_has_one_pane_and_tabs(make_app):
    app = make_app(sessions=3)
    async with app.run_test(size=(80, 24)) as pilot:
        await settle(pilot)
        assert len(panes(app)) == 1
        assert "○ 1 new chat  ○ 2 new chat  ○ 3 new chat" in drawn(app.chats._tabs)
        await pilot.click("ChatTabs", offset=(20, 0))
        assert pane(app, 2).composer.has_focus
        await pilot.resize_terminal(*WIDE)
        await pilot.pause()
        assert len(panes(app)) == 3
        assert not app.chats._tabs.display


async def test_header_shows_the_engine_s_figures(make_app, link):
    app = make_app()
    async with app.run_test(size=(160, 40)) as pilot:
        link.say(READY, prefill(1, 0, 3, step=7))
        await settle(pilot)
        header = drawn(app.chats._header)
        assert "opt-125m  fp16 cuda:0" in header
        assert "free 253/256" in header
        assert "step 7" in header
        assert "ctx 44/2048 · 10 in 3 blk" in drawn(pane(app, 1))


async def test_header_tells_of_the_kernels(make_app, link):
    app = make_app()
    async with app.run_test(size=(160, 40)) as pilot:
        link.say(msgspec.structs.replace(READY, attention_backend="cuda"))
        await settle(pilot)
        assert "fp16 cuda:0  CUDA kernels" in drawn(app.chats._header)


@pytest.mark.parametrize("width", [80, 120])
async def test_what_runs_on_what_is_said_at_every_width(make_app, link, width):
    app = make_app()
    async with app.run_test(size=(width, 40)) as pilot:
        await settle(pilot)
        link.say(msgspec.structs.replace(READY, device="CPU, 2 threads"), prefill(1, 0, 30, step=719))
        link.say(report(720, [SequenceForked(1, 2, "parked")], in_use=30, table_entries=60, shared=30))
        await settle(pilot)
        header = drawn(app.chats._header)
        assert "fp16 CPU, 2 threads" in header
        assert "free 226/256" in header
        assert " tok/s" in header


async def test_the_composer_is_seen_in_the_smallest_pane_with_a_notice(make_app, link):
    app = make_app(sessions=2)
    async with app.run_test(size=MIN_SIZE) as pilot:
        link.say(LoadProgress("weights", "Reading weights", 3, 10))
        app.desk.get(1).notify(
            Notice("Reopened: its next prompt computes these turns anew, but for a beginning.", "")
        )
        await pilot.press("h", "i")
        await settle(pilot)
        assert "› hi" in drawn(app.screen)


async def test_parts_of_a_pane_that_say_nothing_yet_come_with_what_they_say(make_app, link):
    app = make_app(sessions=2)
    app.desk.get(2).notify(Notice("The context is full.", "/new goes on.", error=True))
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        quiet, told = pane(app, 1), pane(app, 2)
        assert [type(part).__name__ for part in quiet.children] == ["Transcript", "Horizontal"]
        assert "The context is full. /new goes on." in drawn(told)
        assert told.query_one(".notice").has_class("-shown", "-error")
        app.desk.get(1).notify(Notice("Reopened.", "", error=False))
        app.desk.get(2).dismiss()
        await settle(pilot)
        assert "Reopened." in drawn(quiet)
        assert not quiet.query_one(".notice").has_class("-error")
        assert not told.query_one(".notice").display
        assert (quiet.has_class("-told"), told.has_class("-told")) == (True, False)


async def test_a_size_that_is_known_places_no_pane_again(make_app, monkeypatch):
    app = make_app(sessions=2)
    async with app.run_test(size=(120, 40)) as pilot:
        await settle(pilot)
        placed = []
        monkeypatch.setattr(app.chats, "place_panes", lambda: placed.append(app.size.width))
        app.chats.post_message(events.Resize(app.size, app.size))
        await pilot.pause()
        await pilot.resize_terminal(100, 40)
        await pilot.pause(1 / 30)
        assert set(placed) == {100}


def test_two_panes_stream(snap_compare, make_still_app, link):
    async def run_before(pilot):
        await stream_two(pilot, link)

    assert snap_compare(make_still_app(), terminal_size=(120, 40), run_before=run_before)


def test_narrow_with_tabs(snap_compare, make_still_app, link):
    async def run_before(pilot):
        await stream_two(pilot, link)

    assert snap_compare(make_still_app(3), terminal_size=(80, 24), run_before=run_before)


async def test_figures_that_wait_for_their_turn_are_those_of_then(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=(160, 40)) as pilot:
        await pilot.pause()
        waiting = list(app.chats.parts())  # given out before the engine is ready
        link.say(READY, prefill(1, 0, 3, step=7))
        await settle(pilot)
        for part in waiting:
            part.draw()
        await pilot.pause(1 / 60)
        assert "ctx 44/2048 · 10 in 3 blk" in drawn(pane(app, 1))
