"""The list of past chats, over the whole program and a real history."""

import pytest

from pagedchat.chat.prompt_history import PromptHistory
from pagedchat.history import run
from pagedchat.history.place import FILE_NAME
from pagedchat.history.records import LayoutRecord, PaneRecord
from pagedchat.tui.app import PagedChatApp, UiOptions
from pagedchat.tui.history.chat_list import ChatList
from pagedchat.tui.history.screen import HistoryScreen
from tests.fakes_tui import READY, FakeEngineLink
from tests.history.histories import close_history, open_history, record, said
from tests.tui.whole_app import WIDE, drawn, pane, settle, until, write

PATIENCE = 20


@pytest.fixture
def tales(tmp_path):
    """Three chats of earlier runs."""
    history = open_history(tmp_path)
    found = {
        name: said("Tell me a tale.", f"A tale of the {name}.", name=name)
        for name in ("sea", "land", "\x1b[31msky")
    }
    for session in found.values():
        history.store.write(record(session))
    close_history(history)
    return found


@pytest.fixture
async def pilot(tmp_path, tales):
    history = run.begin(path=tmp_path / FILE_NAME)
    link = FakeEngineLink()
    app = PagedChatApp(link, UiOptions(history=history), PromptHistory())
    app.animation_level = "none"
    link.say(READY)
    async with app.run_test(size=WIDE) as pilot:
        await settle(pilot)
        yield pilot
    history.thread.close()


def listed(pilot):
    """Names of the chats in the list."""
    return [chat.title for chat in pilot.app.screen.query_one(ChatList)._chats]


async def open_list(pilot, num_chats=3):
    await pilot.press("ctrl+s")
    await until(pilot, lambda: isinstance(pilot.app.screen, HistoryScreen))
    await until(pilot, lambda: len(listed(pilot)) == num_chats)


async def test_chats_are_listed_the_last_one_first_and_their_text_commands_nothing(pilot):
    await open_list(pilot)
    assert listed(pilot) == ["\x1b[31msky", "land", "sea"]
    shown = drawn(pilot.app.screen)
    assert "3 chats kept" in shown
    assert "2 turns" in shown
    assert "\x1b" not in shown


async def test_what_is_typed_is_searched_for(pilot):
    await open_list(pilot)
    await pilot.press(*"sea")
    await until(pilot, lambda: listed(pilot) == ["sea"])
    await until(pilot, lambda: "1 of 3 chats found" in drawn(pilot.app.screen))
    assert "A tale of the sea." in drawn(pilot.app.screen)


async def test_the_chosen_chat_is_opened_in_the_place_of_an_empty_one(pilot, tales):
    await open_list(pilot)
    await pilot.press("down", "down", "enter")
    await until(pilot, lambda: pilot.app.screen is pilot.app.chats)
    [chat] = pilot.app.desk
    assert [entry.turn for entry in chat.entries] == [entry.turn for entry in tales["sea"].entries]
    assert pilot.app.chats.focused_chat is chat
    assert "computes these turns anew" in drawn(pane(pilot.app, chat.session_id))
    await open_list(pilot)
    assert "open here" in drawn(pilot.app.screen)
    await pilot.press(*"of the sea")
    await until(pilot, lambda: listed(pilot) == ["sea"])
    await pilot.press("enter")
    await until(pilot, lambda: pilot.app.screen is pilot.app.chats)
    assert len(pilot.app.desk) == 1  # it was there


async def test_a_chat_with_a_draft_stays_beside_the_one_that_is_opened(pilot):
    await write(pilot, "a draft")
    await open_list(pilot, num_chats=4)  # a draft is kept, too
    await pilot.press("down", "enter")
    await until(pilot, lambda: pilot.app.screen is pilot.app.chats)
    assert len(pilot.app.desk) == 2
    assert pane(pilot.app, 1).composer.text == "a draft"


async def test_a_chat_is_renamed(pilot):
    await open_list(pilot)
    await pilot.press("ctrl+r", *"Sky blue", "enter")
    await until(pilot, lambda: listed(pilot) == ["Sky blue", "land", "sea"])
    await pilot.press("ctrl+r", "x", "escape")
    assert isinstance(pilot.app.screen, HistoryScreen)
    assert listed(pilot)[0] == "Sky blue"


async def test_a_deleted_chat_is_gone_and_back(pilot):
    await open_list(pilot)
    await pilot.press("down", "ctrl+d")
    await until(pilot, lambda: listed(pilot) == ["\x1b[31msky", "sea"])
    await pilot.press("ctrl+z")
    await until(pilot, lambda: "land" in listed(pilot))
    await pilot.press("ctrl+z")
    await until(pilot, lambda: "There is no deleted chat to have back." in drawn(pilot.app.screen))


async def test_a_chat_that_is_open_is_deleted_by_a_command_and_had_back_by_a_key(pilot):
    pilot.app.chats.focused_chat.name = "mine"
    await write(pilot, "Hi")
    await pilot.press("enter")
    await settle(pilot)
    pilot.app.desk.stop(pilot.app.chats.focused_chat)
    pane(pilot.app, 1).composer.load_text("/delete")
    await pilot.press("enter")
    await until(pilot, lambda: [chat.name for chat in pilot.app.desk] == [""])
    await open_list(pilot)
    await pilot.press("ctrl+z")
    await until(pilot, lambda: listed(pilot)[0] == "mine")


async def test_a_chat_that_another_program_has_open_is_left_to_it(pilot, tmp_path, tales):
    other = run.begin(path=tmp_path / FILE_NAME)
    other.thread.keep(record(tales["sea"]))
    other.thread.keep_layout(LayoutRecord((PaneRecord(1, tales["sea"].chat_id),), 1))
    other.thread.ask(lambda history: None).result(PATIENCE)
    await until(pilot, lambda: not other.thread.is_behind)
    await open_list(pilot)
    assert "open in process" in drawn(pilot.app.screen)
    await pilot.press("ctrl+d")
    await until(pilot, lambda: "“sea” is open in another pagedchat, process" in drawn(pilot.app.screen))
    await pilot.press("enter")
    await until(pilot, lambda: pilot.app.screen is pilot.app.chats)
    [fork] = pilot.app.desk
    assert fork.chat_id != tales["sea"].chat_id
    assert fork.origin.chat_id == tales["sea"].chat_id
    other.thread.close()


async def test_search_and_sessions_are_commands_too(pilot):
    for line, num_chats in (("/sessions", 3), ("/search the land", 1)):
        pane(pilot.app, 1).composer.load_text(line)
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(pilot.app.screen, HistoryScreen))
        await until(pilot, lambda num_chats=num_chats: len(listed(pilot)) == num_chats)
        await pilot.press("escape")


@pytest.mark.parametrize("line", ["/sessions", "/search x", "/delete"])
async def test_without_a_history_a_command_says_so(make_app, link, line):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await settle(pilot)
        pane(app, 1).composer.load_text(line)
        await pilot.press("enter")
        await settle(pilot)
        assert app.chats.focused_chat.notice.message == "This run keeps no history."
        await pilot.press("ctrl+s")
        assert not isinstance(app.screen, HistoryScreen)
