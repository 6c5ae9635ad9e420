"""The panes on a server's engine, with a link that is the test."""

import pytest

from pagedchat import events as ev
from pagedchat.cache_events import ANOTHERS
from pagedchat.engine import keyframe
from pagedchat.engine.mirror import CacheMirror
from tests.fakes_tui import READY, finished, prefill
from tests.tui.whole_app import WIDE, drawn, pane, settle, write

WHERE = "127.0.0.1:8000"


@pytest.fixture
def make_attached(make_app):
    return lambda **options: make_app(attached=WHERE, **options)


def state_of(*reports: ev.Steps) -> ev.CacheKeyframe:
    mirror = CacheMirror(READY.num_blocks, READY.block_size, 0)
    for steps in reports:
        for report in steps.reports:
            mirror.apply(report)
    return ev.CacheKeyframe(keyframe.encode(mirror))


def banner(app) -> str:
    return app.chats._banner.render().plain


async def test_the_header_says_where_it_is_attached_and_the_cache_is_there_at_once(make_attached, link):
    app = make_attached(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(
            ev.Attachment(WHERE), READY, state_of(prefill(1, 0, 3, step=7), prefill(ANOTHERS + 5, 3, 2, step=9))
        )
        await settle(pilot)
        header = drawn(app.chats._header)
        assert f"@ {WHERE}" in header
        assert "nothing shared, copied or evicted since this terminal attached" in drawn(app.chats._ticker)
        assert "free 251/256" in header
        assert app.view.step == 9
        assert app.view.name(ANOTHERS + 5) == "another client"
        assert app.time_travel.recording.first == 2
        link.say(prefill(2, 5, 1, step=10))
        await settle(pilot)
        assert app.view.mirror.num_reports == 3


@pytest.mark.parametrize("line", ["/model other", "/model other --beside"])
async def test_what_the_server_decides_is_said(make_attached, link, line):
    app = make_attached(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(ev.Attachment(WHERE), READY)
        await settle(pilot)
        await write(pilot, line)
        await pilot.press("enter")
        await settle(pilot)
        assert f"The server at {WHERE} decides which model runs." in drawn(pane(app, 1))
        assert (link.switched_to, link.others) == ([], [])


async def test_restart_is_the_servers_but_a_connection_is_made_anew(make_attached, link):
    app = make_attached(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(ev.Attachment(WHERE), READY)
        await settle(pilot)
        await pilot.press("f12")
        await settle(pilot)
        assert link.num_restarts == 0
        link.say(ev.Attachment(WHERE, "it does not answer"))
        await settle(pilot)
        assert f"No connection to {WHERE}: it does not answer" in banner(app)
        await pilot.press("f12")
        await settle(pilot)
        assert link.num_restarts == 1
        link.say(ev.Attachment(WHERE))
        await settle(pilot)
        assert banner(app) == ""


async def test_a_connection_that_is_lost_ends_no_reply(make_attached, link):
    app = make_attached(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(ev.Attachment(WHERE), READY)
        await pilot.press("a", "enter")
        [generate] = link.generates()
        assert generate.chat_id == app.desk.get(1).chat_id
        link.reply(generate, "the boat", finish=False)
        link.say(ev.Attachment(WHERE, "it does not answer"), ev.Attachment(WHERE))
        kept = ev.ReplyKept(1, generate.request_id, generate.chat_id, [("user", "a")], "the boat left", False)
        link.say(READY, kept, ev.RequestStarted(1, generate.request_id, 3, 0))
        link.say(ev.TextDelta(1, generate.request_id, "the boat left", 3), finished(generate, 3))
        await settle(pilot)
        assert [entry.turn.text for entry in app.desk.get(1).entries] == ["a", "the boat left"]


async def test_what_a_dead_terminal_left_gets_a_pane(make_attached, link):
    app = make_attached(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        kept = ev.ReplyKept(2, 1 << 29, 77, [("user", "tell me")], "once upon", False)
        link.say(ev.Attachment(WHERE), READY, kept)
        link.say(ev.RequestStarted(2, 1 << 29, 3, 0), ev.TextDelta(2, 1 << 29, "once upon", 2))
        await settle(pilot)
        assert "once upon" in drawn(pane(app, 2))
        assert app.desk.get(2).chat_id == 77
        assert app.desk.get(2).busy


@pytest.mark.parametrize(("key", "closes"), [("enter", False), ("c", True)])
async def test_leaving_keeps_the_chats_there_unless_they_are_to_be_closed(make_attached, link, key, closes):
    app = make_attached(sessions=1)
    link.closes_chats = False
    async with app.run_test(size=WIDE) as pilot:
        link.say(ev.Attachment(WHERE), READY)
        await pilot.press("a", "enter")
        link.reply(link.generates()[0], "the boat", finish=False)
        await settle(pilot)
        await pilot.press("ctrl+q")
        await settle(pilot)
        question = "\n".join(str(static.render()) for static in app.screen.query("Static"))
        assert f"Leave {WHERE}?" in question
        assert "A reply is being written, and will be." in question
        await pilot.press("escape")
        await settle(pilot)
        assert not link.closed
        await pilot.press("ctrl+q", key)
        await settle(pilot)
    assert (link.closed, link.closes_chats) == (True, closes)


async def test_an_empty_terminal_leaves_without_a_question(make_attached, link):
    app = make_attached(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(ev.Attachment(WHERE), READY)
        await settle(pilot)
        await pilot.press("ctrl+q")
        await settle(pilot)
    assert link.closed


async def test_a_server_that_contradicts_itself_is_heard_no_more_until_it_begins_anew(make_attached, link):
    app = make_attached(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(ev.Attachment(WHERE), READY, prefill(1, 300, 3))
        await settle(pilot)
        assert "makes no sense" in banner(app)
        link.say(READY, state_of(prefill(1, 0, 3)))
        await settle(pilot)
        assert banner(app) == ""
        assert app.view.mirror.num_reports == 1
