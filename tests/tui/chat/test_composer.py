"""A composer in the program: what its keys insert, send and bring back."""

import pytest

from pagedchat.chat.prompt_history import PromptHistory
from tests.tui.whole_app import WIDE, pane


@pytest.mark.parametrize("key", ["ctrl+j", "alt+enter", "shift+enter"])
async def test_newline_keys_do_not_send(make_app, link, key):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("a", key, "b")
        assert pane(app, 1).composer.text == "a\nb"
        assert link.generates() == []


async def test_paste_never_sends_and_is_sanitised(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        from textual.events import Paste

        app.screen.focused.post_message(Paste("one\r\ntwo\x1b[31m\n"))
        await pilot.pause()
        assert pane(app, 1).composer.text == "one\ntwo\n"
        assert link.generates() == []


async def test_up_and_down_walk_the_history(make_app, link):
    history = PromptHistory()
    history.add("old one")
    history.add("new\none")
    app = make_app(history=history)
    async with app.run_test(size=WIDE) as pilot:
        composer = pane(app, 1).composer
        await pilot.press("up")
        await pilot.pause()
        assert composer.text == "new\none"
        await pilot.press("up", "up")
        assert composer.text == "old one"
        await pilot.press("up")
        assert composer.text == "old one"
        await pilot.press("down", "down")
        assert composer.text == ""
        await pilot.press("x", "enter")
        assert history[-1] == "x"


async def test_draft_comes_back_after_the_history(make_app):
    history = PromptHistory()
    history.add("old")
    app = make_app(history=history)
    async with app.run_test(size=WIDE) as pilot:
        composer = pane(app, 1).composer
        await pilot.press("d", "up")
        assert composer.text == "old"
        await pilot.press("down")
        assert composer.text == "d"


async def test_drafts_stay_with_their_chats(make_app):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("a", "tab", "b", "alt+1", "c", "shift+tab", "d")
        assert pane(app, 1).composer.text == "ac"
        assert pane(app, 2).composer.text == "bd"
