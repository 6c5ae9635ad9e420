"""Keys that a user gave to actions: pressed, and shown."""

from functools import reduce

import pytest
from textual.color import Color

from pagedchat.settings.remembered import remembered_theme
from pagedchat.tui.keymap import all_keys, check_keymap
from tests.fakes_tui import READY, prefill
from tests.tui.whole_app import WIDE, drawn, settle, toasts


def checked(**keymap):
    names = {action.replace("__", "."): keys for action, keys in keymap.items()}
    return check_keymap(names, dict.fromkeys(names, "config.toml, line 1"))


def test_the_keys_by_default_may_be_written_down():
    keys = all_keys()
    assert check_keymap(keys, dict.fromkeys(keys, "")).keys() == keys.keys()


def test_keys_are_written_as_people_write_them():
    keys = checked(
        chat__new="^X", chat__fork="Ctrl+N, F14", inspector__text="E", inspector__each_kind="t", app__help="alt+?"
    )
    assert keys == {"chat.new": "ctrl+x", "chat.fork": "ctrl+n,f14", "inspector.text": "E",
                    "inspector.each_kind": "t", "app.help": "alt+question_mark"}  # fmt: skip


async def test_keys_that_were_given_act_and_those_before_do_not(make_app):
    app = make_app(sessions=1, keymap=checked(chat__new="ctrl+x", app__help="f14"))
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("ctrl+n")
        assert len(app.desk) == 1
        await pilot.press("ctrl+x")
        assert len(app.desk) == 2
        await pilot.press("f1")
        assert app.screen is app.chats
        await pilot.press("f14")
        assert type(app.screen).__name__ == "HelpScreen"
        await pilot.press("f14")
        assert app.screen is app.chats


async def test_a_key_over_text_that_was_given_away_acts_no_more(make_app):
    app = make_app(sessions=4, keymap=checked(view__layout="f14"))
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("f6")
        await pilot.pause()
        assert app.chats._grid.wanted is None
        await pilot.press("f14")
        await pilot.pause()
        assert app.chats._grid.wanted is not None


async def test_two_actions_may_swap_their_keys(make_app):
    app = make_app(
        sessions=2, keymap=checked(chat__new="f8", view__zoom="ctrl+n", app__palette="f2", app__chats="ctrl+p")
    )
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("ctrl+n")
        assert (len(app.desk), app.chats._grid.zoomed) == (2, True)
        await pilot.press("f8")
        assert len(app.desk) == 3
        await pilot.press("f2")
        assert type(app.screen).__name__ == "CommandPalette"


async def test_sending_and_new_lines_swap(make_app, link):
    app = make_app(sessions=1, keymap=checked(prompt__send="ctrl+j", prompt__newline="enter"))
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("a", "enter", "b")
        assert app.focused.text == "a\nb"
        await pilot.press("ctrl+j")
        await pilot.pause()
        assert [generate.turns[-1].text for generate in link.generates()] == ["a\nb"]


async def test_what_is_shown_are_the_keys_that_act(make_app):
    app = make_app(sessions=1, keymap=checked(chat__new="ctrl+x", app__inspector="f14"))
    async with app.run_test(size=WIDE) as pilot:
        await pilot.pause()
        bar = drawn(app.screen.query_one("KeyBar"))
        assert "^X new" in bar
        assert "F14 inspector" in bar
        assert "^N" not in bar
        await pilot.press("f1")
        await pilot.pause()
        assert "Keys of the inspector (F14)" in [s.title for h in app.screen.query("HelpText") for s in h._sections]


async def test_a_theme_that_is_chosen_is_remembered_and_the_one_to_start_with_is_not(make_app, tmp_path):
    path = tmp_path / "remembered.json"
    app = make_app(sessions=1, theme="nord", remember_in=path)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.pause()
        assert app.theme == "nord"
        assert not path.exists()
        await pilot.press(*"/theme", "space", *"gruvbox", "enter")
        await pilot.pause()
        assert remembered_theme(path) == "gruvbox"


@pytest.mark.parametrize("theme", ["textual-light", "catppuccin-latte"])
async def test_light_colours_are_light(make_app, theme):
    app = make_app(sessions=1, theme=theme)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.pause()
        strips = app.screen._compositor.render_strips()
        grounds = [seg.style.bgcolor.triplet for strip in strips for seg in strip if seg.style and seg.style.bgcolor
                   and seg.style.bgcolor.triplet]  # fmt: skip
        light = sum(sum(ground) > 3 * 128 for ground in grounds)
        assert light > 0.9 * len(grounds) > 0


async def test_no_color_leaves_no_hue(make_app, monkeypatch):
    monkeypatch.setenv("NO_COLOR", "1")
    app = make_app(sessions=2)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press(*"hello")
        await pilot.pause()
        drawn_now = list(painted(app))
    colors = [color.triplet for strip in drawn_now for segment in strip if segment.style
              for color in (segment.style.color, segment.style.bgcolor) if color and color.triplet]  # fmt: skip
    assert [color for color in colors if len(set(color)) > 1] == []
    assert len(colors) > 100
    assert any("hello" in strip.text for strip in drawn_now)


def painted(app):
    """What goes to the terminal: with the filters of the program."""
    ground = Color(0, 0, 0)
    for strip in app.screen._compositor.render_strips():
        yield reduce(lambda filtered, each: filtered.apply_filter(each, ground), app._filters, strip)


async def test_keys_of_the_inspector_are_given_too(make_app, link):
    app = make_app(sessions=1, keymap=checked(inspector__goto="G", inspector__full="g"))
    async with app.run_test(size=(90, 40)) as pilot:
        await pilot.pause()
        link.say(READY, prefill(1, 0, 3))
        await pilot.press("f3")
        await settle(pilot)
        screen = app.screen
        assert "G go to" in drawn(screen.query_one("KeyBar"))
        await pilot.press("g")
        await pilot.pause()
        assert app.screen is screen  # one panel has the whole room
        await pilot.press("G")
        await pilot.pause()
        assert type(app.screen).__name__ == "GotoScreen"


async def test_sentences_name_the_keys_that_act(make_app, link):
    app = make_app(sessions=1, keymap=checked(app__inspector="f14", chat__fork="f3", app__quit="ctrl+x"))
    async with app.run_test(size=WIDE) as pilot:
        await pilot.pause()
        assert "F7 sends a prompt to all chats, F3 forks a chat, F14 shows its blocks." in drawn(app.screen)
        await pilot.press("ctrl+c")
        await pilot.pause()
        assert toasts(app) == ["^X quits."]
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.pause()
        assert "F9 forks a chat, F3 shows its blocks." in drawn(app.screen)
