"""What keys do with chats: stop, fork, ask again, open, close, zoom, copy."""

import gc
import weakref

from pagedchat.events import TextDelta
from pagedchat.service.commands import Close, Fork, Stop
from pagedchat.tui.kit.front_screens import ConfirmScreen
from tests.fakes_tui import READY, finished, prefill
from tests.tui.whole_app import WIDE, drawn, pane, panes, settle


async def test_escape_stops_and_keeps_the_text(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await pilot.press("a", "enter")
        link.reply(link.generates()[0], "half a", finish=False)
        await settle(pilot)
        await pilot.press("escape")
        assert link.sent[-1] == Stop(1)
        link.say(finished(link.generates()[0], reason="abort"))
        await settle(pilot)
        assert "half a" in drawn(pane(app, 1).transcript)
        assert "stopped" in drawn(pane(app, 1).transcript)
        await pilot.press("escape", "escape")
        assert app.is_running


async def test_fork_opens_a_pane_to_the_right_with_the_same_turns(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY, prefill(1, 0, 3))
        await pilot.press("a", "enter")
        link.reply(link.generates()[0], "the boat left", finish=False)
        await settle(pilot)
        await pilot.press("f9")
        await settle(pilot)
        assert link.sent[-2] == Fork(1, 3, 2)
        assert [item.session.session_id for item in panes(app)] == [1, 3, 2]
        text = drawn(pane(app, 3).transcript)
        assert "» from 1 a at turn 1" in text
        assert "the boat left" in text
        link.say(TextDelta(3, 2, " and came back", 6))
        await settle(pilot)
        assert "and came back" in drawn(pane(app, 3).transcript)
        assert "and came back" not in drawn(pane(app, 1).transcript)


async def test_regenerate_asks_the_same_turns_again(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await pilot.press("a", "enter")
        link.reply(link.generates()[0], "one")
        await settle(pilot)
        await pilot.press("ctrl+g")
        assert [turn.text for turn in link.generates()[1].turns] == ["a"]


async def test_new_and_close(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("ctrl+n")
        await pilot.pause()
        assert [item.session.session_id for item in panes(app)] == [1, 2, 3]
        assert pane(app, 3).composer.has_focus
        await pilot.press("ctrl+d")
        await pilot.pause()
        assert link.sent[-2] == Close(3)
        assert pane(app, 2).composer.has_focus
        await pilot.press("a", "b", "left", "ctrl+d")
        assert pane(app, 2).composer.text == "a", "^D deletes where there is text"


async def test_the_number_of_a_chat_that_is_just_being_closed_is_free(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        app.chats.close_chat(app.desk.get(2))
        await app.chats.open_chat()  # before the first one's pane is gone
        assert [chat.session_id for chat in app.desk] == [1, 2]
        app.redraw()
        await pilot.pause()
        assert [item.session for item in panes(app)] == list(app.desk)
        assert pane(app, 2).composer.has_focus


async def test_nothing_is_kept_of_chats_that_are_closed(make_app):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        kept = []
        for _ in range(4):
            await pilot.press("ctrl+n")
            await settle(pilot)
            kept.append(weakref.ref(app.chats.focused))
            await pilot.press("ctrl+d")
            await settle(pilot)
        gc.unfreeze()
        for _ in range(20):  # a task of one that is being closed may not have ended on a busy machine
            gc.collect()
            if not any(composer() for composer in kept[:-1]):
                break
            await pilot.pause(0.05)
        assert [composer() for composer in kept[:-1]] == [None] * 3, "the screen may know the last one still"


async def test_closing_a_chat_with_turns_asks_first(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("a", "enter", "ctrl+d")
        assert isinstance(app.screen, ConfirmScreen)
        await pilot.press("escape")
        assert len(panes(app)) == 2
        await pilot.press("ctrl+d", "enter")
        await pilot.pause()
        assert len(panes(app)) == 1


async def test_zoom_and_layouts(make_app):
    app = make_app(sessions=4)
    async with app.run_test(size=WIDE) as pilot:
        assert len(panes(app)) == 4
        await pilot.press("f8")
        assert len(panes(app)) == 1
        await pilot.press("f8", "f6")
        assert len(panes(app)) == 4, "six cells show all four"
        app.chats.set_layout(2)
        assert [item.session.session_id for item in panes(app)] == [1, 2]
        await pilot.press("shift+tab")
        assert [item.session.session_id for item in panes(app)] == [3, 4]


async def test_copy_selection_else_stop_else_hint(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await pilot.press("a", "enter")
        link.reply(link.generates()[0], "word " * 40, finish=False)
        await settle(pilot)
        transcript = pane(app, 1).transcript
        await pilot.mouse_down(transcript, offset=(0, 1))
        await pilot.hover(transcript, offset=(10, 2))
        await pilot.mouse_up(transcript, offset=(10, 2))
        await pilot.press("ctrl+c")
        assert app.clipboard.startswith("word word")
        assert len(app.clipboard) > 100, "more than a row"
        assert not {"\n", "│"} & set(app.clipboard), "no gutter, no line end where the text was only wrapped"
        assert not any(isinstance(command, Stop) for command in link.sent)
        await pilot.press("ctrl+c")
        assert link.sent[-1] == Stop(1)


async def test_copy_last_reply(make_app, link):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await pilot.press("a", "enter")
        link.reply(link.generates()[0], "the\nreply")
        await settle(pilot)
        await pilot.press("ctrl+t")
        assert app.clipboard == "the\nreply"
