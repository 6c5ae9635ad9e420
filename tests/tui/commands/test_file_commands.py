"""A chat into a file and out of one, by slash commands."""

import json

from pagedchat.chat.formats.files import read_chats
from pagedchat.tui.kit.front_screens import ConfirmScreen
from tests.fakes_tui import READY
from tests.tui.commands.test_commands import command, complaint, pane_of
from tests.tui.whole_app import WIDE, drawn, settle, toasts


async def talk(pilot, link, prompt="Tell me", reply="Once"):
    link.say(READY)
    await command(pilot, prompt)
    link.reply(link.generates()[-1], reply)
    await settle(pilot)


async def test_a_chat_is_exported_and_imported_and_goes_on(make_app, link, tmp_path):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        await talk(pilot, link)
        await talk(pilot, link, "And then?", "They <i>swam</i>.")
        path = tmp_path / "my tale.json"
        await command(pilot, f"/export {path}")
        assert f"to {path}" in toasts(app)[-1]
        await command(pilot, f"/import {path}")
        assert len(app.desk) == 2
        new = app.desk.chats[1]
        assert new.entries == app.desk.chats[0].entries
        assert app.chats.focused_chat is new
        assert "They <i>swam</i>." in drawn(pane_of(app))
        await command(pilot, "More")
        assert [turn.text for turn in link.generates()[-1].turns][-2:] == ["They <i>swam</i>.", "More"]


async def test_only_the_last_turns_are_exported(make_app, link, tmp_path):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        await talk(pilot, link)
        await talk(pilot, link, "And then?", "They swam.")
        await command(pilot, f"/export {tmp_path}/x.json last 2")
        [chat] = read_chats(tmp_path / "x.json")
        assert [entry.turn.text for entry in chat.entries] == ["And then?", "They swam."]
        await command(pilot, f"/export {tmp_path}/y.json last 9")
        assert complaint(app).startswith("The number of turns must be from 1 to 4, not 9.")


async def test_a_file_that_is_there_is_asked_about(make_app, link, tmp_path):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        await talk(pilot, link)
        path = tmp_path / "x.md"
        path.write_text("mine")
        await command(pilot, f"/export {path}")
        assert isinstance(app.screen, ConfirmScreen)
        await pilot.press("escape")
        await settle(pilot)
        assert path.read_text() == "mine"
        await command(pilot, f"/export {path}")
        await pilot.press("enter")
        await settle(pilot)
        assert path.read_text().startswith("# Tell me\n\n## You\n\nTell me\n\n## Assistant\n\nOnce")


async def test_of_many_chats_one_is_chosen_by_its_number(make_app, link, tmp_path):
    path = tmp_path / "conversations 2.json"
    path.write_text(json.dumps([{"name": f"chat {i}", "messages": [{"role": "user", "content": f"p{i}"},
                    {"role": "assistant", "content": f"r{i}"}]} for i in range(1, 20)]))  # fmt: skip
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.pause()
        await command(pilot, f"/import {path}")
        assert "19 chats in conversations 2.json" in drawn(app.screen)
        await pilot.press(*"chat", "space", *"12", "enter")
        await settle(pilot)
        assert app.chats.focused_chat.last_reply == "r12"
        await command(pilot, f"/import {path} 7")
        assert app.chats.focused_chat.last_reply == "r7"
        await command(pilot, f"/import {path} 20")
        assert complaint(app).startswith("The number of the chat must be from 1 to 19, not 20.")


async def test_a_prompt_without_a_reply_comes_back_to_be_sent(make_app, link, tmp_path):
    path = tmp_path / "x.json"
    path.write_text(json.dumps({"messages": [{"role": "user", "content": "And now?"}]}))
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.pause()
        await command(pilot, f"/import {path}")
        assert pane_of(app).composer.text == "And now?"
        assert toasts(app)[-1] == "Imported 0 turns. The last prompt has no reply yet: it is in the composer."


async def test_what_cannot_be_is_one_sentence_in_the_chat(make_app, link, tmp_path):
    app = make_app(sessions=1)
    async with app.run_test(size=WIDE) as pilot:
        await pilot.pause()
        await command(pilot, f"/export {tmp_path}/x.md")
        assert complaint(app).startswith("There is nothing to export yet.")
        await command(pilot, f"/import {tmp_path}/none.json")
        assert complaint(app) == f"{tmp_path}/none.json cannot be read: no such file or directory."
        (tmp_path / "huge.json").write_text(json.dumps([{"role": "user", "content": "x" * 10_000_001}]))
        await command(pilot, f"/import {tmp_path}/huge.json")
        assert complaint(app) == "The chat has 10,000,001 characters; 10,000,000 can be shown."
        assert len(app.desk) == 1
