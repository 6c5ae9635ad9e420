"""The whole program and its history: what was on the screen is there again in the next run."""

import asyncio
import time

import pytest

from pagedchat.chat.prompt_history import PromptHistory
from pagedchat.history import run
from pagedchat.history.place import FILE_NAME
from pagedchat.tui.app import PagedChatApp, UiOptions
from pagedchat.tui.kit.front_screens import ConfirmScreen
from tests.fakes_tui import READY, FakeEngineLink
from tests.tui.whole_app import WIDE, pane, settle, toasts, until, write

PATIENCE = 20


@pytest.fixture
def path(tmp_path):
    return tmp_path / FILE_NAME


@pytest.fixture
def start(path):
    """A program that keeps its chats there, and its engine."""
    histories = []

    def start(sessions=1, **what):
        histories.append(run.begin(path=path, **what))
        link = FakeEngineLink()
        app = PagedChatApp(link, UiOptions(sessions=sessions, history=histories[-1]), PromptHistory())
        app.animation_level = "none"
        link.say(READY)
        return app, link

    yield start
    for history in histories:
        history.thread.close()


async def quit_program(pilot):
    await pilot.press("ctrl+q")
    if isinstance(pilot.app.screen, ConfirmScreen):
        await pilot.press("enter")
    deadline = time.monotonic() + PATIENCE
    while pilot.app.kept.thread._thread.is_alive():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.01)


def shown(app):
    """All that a user would miss."""
    return [
        (
            chat.label, [entry.turn for entry in chat.entries], list(chat.queue), chat.system, chat.overrides,
            pane(app, chat.session_id).composer.text, chat.session_id == app.chats.focused_chat.session_id,
        )
        for chat in app.desk
    ]  # fmt: skip


async def test_chats_forks_drafts_and_queue_are_there_again(start):
    app, link = start(sessions=3)
    async with app.run_test(size=WIDE) as pilot:
        await settle(pilot)
        await write(pilot, "Tell me a tale.")
        await pilot.press("enter")
        link.reply(link.generates()[-1], "Once upon a time.")
        await settle(pilot)
        await pilot.press("f9")
        await write(pilot, "And then?")
        await pilot.press("enter")
        link.reply(link.generates()[-1], "It went", finish=False)
        await settle(pilot)
        for text in ("first in the queue", "second"):
            await write(pilot, text)
            await pilot.press("enter")
        await write(pilot, "a draft")
        app.desk.get(2).set_system("Be brief.")
        app.chats.set_layout(4)
        before = shown(app)
        await quit_program(pilot)
    again, second_link = start(go_on=True)
    async with again.run_test(size=WIDE) as pilot:
        await settle(pilot)
        after = shown(again)
        assert [chat[0] for chat in after] == ["1 tale", "4 tale»a", "2 new chat", "3 new chat"]
        assert after[0] == before[0]
        fork = again.desk.get(4)
        assert [entry.turn.text for entry in fork.entries][-2:] == ["And then?", "It went"]
        assert fork.entries[-1].ending == "interrupted"
        assert after[1][2:3] + after[1][5:] == (["first in the queue", "second"], "a draft", True)
        assert again.chats.standing.wanted == 4
        await pilot.press("ctrl+u")
        await write(pilot, "third")
        await pilot.press("enter")
        await settle(pilot)
        asked = second_link.generates()[-1]
        assert asked.turns[-1].text == "first in the queue"
        assert list(fork.queue) == ["second", "third"]


async def test_an_empty_program_leaves_nothing(start, path):
    app, _ = start(sessions=2)
    async with app.run_test(size=WIDE) as pilot:
        await settle(pilot)
        await quit_program(pilot)
    found = run.begin(path=path)
    assert found.thread.ask(lambda history: history.search.chats().num_all).result(PATIENCE) == 0
    found.thread.close()


async def test_what_is_wrong_with_the_history_is_on_the_screen_and_chats_go_on(start, path):
    path.write_bytes(b"This is no database.")
    app, link = start()
    async with app.run_test(size=WIDE, notifications=True) as pilot:
        await settle(pilot)
        await until(pilot, lambda: any("The history was damaged" in message for message in toasts(app)))
        await write(pilot, "Hi")
        await pilot.press("enter")
        link.reply(link.generates()[-1], "Hello")
        await settle(pilot)
        await quit_program(pilot)
    again, _ = start(go_on=True)
    assert [entry.turn.text for entry in again.desk.get(1).entries] == ["Hi", "Hello"]


async def test_the_tours_own_chats_are_not_kept(start, path):
    app, link = start()
    async with app.run_test(size=WIDE) as pilot:
        await settle(pilot)
        await app.action_tour()
        await settle(pilot)
        await pilot.press("enter")
        await settle(pilot)
        assert link.generates()
        await quit_program(pilot)
    found = run.begin(path=path)
    assert found.thread.ask(lambda history: history.search.chats().num_all).result(PATIENCE) == 0
    found.thread.close()
