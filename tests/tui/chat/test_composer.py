"""A composer in the program: what its keys insert, send and bring back."""

import pytest
from textual import events
from textual._text_area_theme import TextAreaTheme

from pagedchat.chat.prompt_history import PromptHistory
from tests.tui.whole_app import WIDE, drawn, pane, settle


@pytest.mark.parametrize("key", ["ctrl+j", "alt+enter", "shift+enter"])
async def test_newline_keys_do_not_send(make_app, link, key):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("a", key, "b")
        assert pane(app, 1).composer.text == "a\nb"
        assert link.generates() == []


async def test_paste_never_sends_and_shows_what_is_hidden_in_it(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        from textual.events import Paste

        app.screen.focused.post_message(Paste("one\r\ntwo\x1b[31m \u202etxt\U000e0041\x07\n"))
        await pilot.pause()
        assert pane(app, 1).composer.text == r"one|two\x1b[31m \u202etxt\U000e0041\x07|".replace("|", "\n")
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


async def test_undo_takes_back_a_paste_and_nothing_else(make_app):
    app = make_app(sessions=1)
    async with app.run_test() as pilot:
        composer = pane(app, 1).composer
        await pilot.press(*"ab")
        for pasted in ("x", "two words", "two\nlines"):
            app.post_message(events.Paste(pasted))
            await pilot.pause()
            await pilot.press("c")
            assert composer.text == f"ab{pasted}c"
            await pilot.press("ctrl+z", "ctrl+z")
            assert composer.text == "ab"


async def test_undo_brings_back_what_a_recalled_prompt_replaced(make_app):
    history = PromptHistory()
    history.add("older")
    app = make_app(sessions=1, history=history)
    async with app.run_test() as pilot:
        composer = pane(app, 1).composer
        await pilot.press(*"draft", "up")
        assert composer.text == "older"
        await pilot.press("ctrl+z")
        assert composer.text == "draft"


async def test_control_c_empties_the_prompt_and_undo_brings_it_back(make_app):
    app = make_app(sessions=1)
    async with app.run_test() as pilot:
        composer = pane(app, 1).composer
        await pilot.press(*"two", "ctrl+j", *"lines", "ctrl+c")
        assert composer.text == ""
        assert app.is_running
        await pilot.press("ctrl+z")
        assert composer.text == "two\nlines"
        composer.select_all()
        await pilot.press("ctrl+c")
        assert (composer.text, app.clipboard) == ("two\nlines", "two\nlines")


async def test_colours_are_worked_out_where_more_is_drawn_than_a_placeholder(make_app, monkeypatch):
    worked_out = []
    work_out = TextAreaTheme.apply_css
    monkeypatch.setattr(
        TextAreaTheme, "apply_css", lambda theme, area: worked_out.append(area) or work_out(theme, area)
    )
    app = make_app(sessions=3)
    async with app.run_test(size=WIDE) as pilot:
        await settle(pilot)
        first, second, third = (pane(app, number).composer for number in (1, 2, 3))
        assert set(worked_out) == {first}  # which has a cursor
        assert "› Write a prompt" in drawn(pane(app, 2))
        second.insert("hi")
        await settle(pilot)
        assert set(worked_out) == {first, second}
        third.focus()
        await settle(pilot)
        assert set(worked_out) == {first, second, third}
