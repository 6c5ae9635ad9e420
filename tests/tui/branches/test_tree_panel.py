"""The tree of branches beside the chats, on an engine that is the test."""

import pytest

from pagedchat.tui.branches.tree_panel import TreePanel
from pagedchat.tui.chat.header import HeaderBar
from tests.fakes_tui import READY, prefill
from tests.tui.whole_app import WIDE, drawn, pane, settle, write


@pytest.fixture
def talk(link):
    """Asks in the chat that has the keyboard, and answers."""

    async def ask(pilot, prompt, answer):
        await write(pilot, prompt)
        await pilot.press("enter")
        link.reply(link.generates()[-1], answer)
        await settle(pilot)

    return ask


def texts(app, number=1):
    return [entry.turn.text for entry in pane(app, number).session.entries]


async def test_an_edited_prompt_is_a_branch_and_the_old_one_is_a_key_away(make_app, link, talk):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY, prefill(1, 0, 2))
        await settle(pilot)
        await talk(pilot, "first", "one")
        await talk(pilot, "second", "two")
        await pilot.press("alt+up")
        await settle(pilot)
        assert app.focused.text == "second"
        assert texts(app) == ["first", "one"]
        await pilot.press(*" try")
        await pilot.press("enter")
        link.reply(link.generates()[-1], "three")
        await settle(pilot)
        assert [turn.text for turn in link.generates()[-1].turns] == ["first", "one", "second try"]
        assert "branch 2/2" in drawn(pane(app, 1))
        await pilot.press("alt+left")
        await settle(pilot)
        assert texts(app) == ["first", "one", "second", "two"]
        assert "branch 1/2" in drawn(pane(app, 1))
        await pilot.press("alt+right")
        await settle(pilot)
        assert texts(app) == ["first", "one", "second try", "three"]


async def test_the_tree_shows_who_stands_where_and_what_it_holds(make_app, link, talk):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY, prefill(1, 0, 2))
        await settle(pilot)
        await talk(pilot, "first", "one")
        await pilot.press("ctrl+g")
        link.reply(link.generates()[-1], "another")
        await settle(pilot)
        await pilot.press("alt+down")
        await settle(pilot)
        panel = app.chats.query_one(TreePanel)
        shown = drawn(panel)
        assert "Tree of 1 first: 3 turns, 1 chat" in shown
        own, shared = app.view.blocks_of(1)
        assert own + shared == len(app.view.mirror.sequences[1].block_table) > 0
        assert f"1 first ({own}+{shared}) another" in shown
        assert app.focused in panel.query("*")
        await pilot.press("up", "enter")  # the reply before
        await settle(pilot)
        assert texts(app) == ["first", "one"]
        await pilot.press("down", "f9")
        await settle(pilot)
        assert texts(app, 2) == ["first", "another"]
        assert "Tree of 2 first»a: 3 turns, 2 chats" in drawn(panel)
        await pilot.press("alt+down")
        await settle(pilot)
        assert not app.chats.query(TreePanel)


async def test_escape_leads_from_the_tree_to_the_chat_and_the_tree_stays(make_app, link, talk):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY, prefill(1, 0, 2))
        await settle(pilot)
        await pilot.press("alt+down", "escape")
        await settle(pilot)
        await pilot.press(*"hello")
        assert app.focused.text == "hello"
        assert app.chats.query(TreePanel)


async def test_of_several_chats_on_one_turn_each_is_seen(make_app, link, talk):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY, prefill(1, 0, 2))
        await settle(pilot)
        await talk(pilot, "Tell me a story", "one")
        await write(pilot, "/fork 3")
        await pilot.press("enter", "alt+down")
        await settle(pilot)
        own, shared = app.view.blocks_of(1)
        assert f"○ 1 ({own}+{shared}) ○ 2 ○ 3 ○ 4 one" in drawn(app.chats.query_one(TreePanel))


async def test_what_is_typed_in_the_tree_is_the_chat_s(make_app, link, talk):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY, prefill(1, 0, 2))
        await settle(pilot)
        await talk(pilot, "first", "one")
        await pilot.press("alt+down")
        await settle(pilot)
        await pilot.press(*"find me")
        await settle(pilot)
        assert app.focused is pane(app, 1).composer
        assert app.focused.text == "find me"
        assert len(app.desk.chats) == 1, "no letter forks"


async def test_the_footer_says_what_enter_and_escape_do_in_the_tree(make_app, link, talk):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY, prefill(1, 0, 2))
        await settle(pilot)
        bar = app.chats.query_one("KeyBar")
        await pilot.press("alt+down")
        await settle(pilot)
        assert drawn(bar).strip().startswith("Enter go there  F9 fork there  Esc to the chat")
        await pilot.press("escape")
        await settle(pilot)
        assert "Enter send" in drawn(bar)


async def test_several_replies_side_by_side_and_one_is_promoted(make_app, link, talk):
    app = make_app(sessions=1)
    async with app.run_test(size=(160, 48)) as pilot:
        link.say(READY, prefill(1, 0, 2))
        await settle(pilot)
        await talk(pilot, "first", "one")
        await write(pilot, "/regen 2")
        await pilot.press("enter")
        await settle(pilot)
        for command in link.generates()[-2:]:
            link.reply(command, f"reply of {command.session_id}")
        await settle(pilot)
        assert [texts(app, number)[-1] for number in (1, 2, 3)] == ["one", "reply of 2", "reply of 3"]
        await pilot.press("alt+3")
        await write(pilot, "/promote")
        await pilot.press("enter")
        await settle(pilot)
        assert [chat.session_id for chat in app.desk] == [3]
        assert "branch 3/3" in drawn(pane(app, 3))


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        ("/edit", "There is no prompt to edit yet."),
        ("/edit @1", "Nothing was asked here yet."),
        ("/undo", "There is nothing to take back yet."),
        ("/branch next", "There is no other branch."),
        ("/branch up", "/branch goes to the next branch or the previous one, not 'up'."),
        ("/promote", "No other chat answers this prompt."),
        ("/regen 2", "There is no prompt to ask again."),
        ("/regen many", "The number of replies must be a whole number, not 'many'."),
        ("/fork 2 @9", "Nothing was asked here yet."),
        ("/tree now", "/tree takes no argument."),
    ],
)
async def test_what_cannot_be_is_said(make_app, link, line, sentence):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await settle(pilot)
        await write(pilot, line)
        await pilot.press("enter")
        await settle(pilot)
        assert app.chats.focused_chat.notice.message == sentence


async def test_the_tree_is_drawn_in_ascii_where_that_is_asked_for(make_app, link, talk):
    app = make_app(sessions=1, ascii=True)
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY, prefill(1, 0, 2))
        await settle(pilot)
        await talk(pilot, "first", "one")
        await pilot.press("ctrl+g")
        link.reply(link.generates()[-1], "another")
        await pilot.press("alt+down")
        await settle(pilot)
        assert drawn(app.chats.query_one(TreePanel)).isascii()
        assert drawn(app.chats.query_one(HeaderBar)).isascii()
