"""Two models side by side: two engines that are the test, each with a group of panes of its own."""

import asyncio

import msgspec
import pytest

from pagedchat.chat.prompt_history import PromptHistory
from pagedchat.errors import PagedChatError
from pagedchat.events import EngineDied, EngineFailed, LoadProgress, RunState
from pagedchat.history import run
from pagedchat.history.place import FILE_NAME
from pagedchat.service.commands import Pause
from pagedchat.tui.app import PagedChatApp, UiOptions
from pagedchat.tui.chat.chat_grid import ChatGrid
from pagedchat.tui.chat.composer import Composer
from pagedchat.tui.chat.group_heading import GroupHeading
from pagedchat.tui.kit.front_screens import ConfirmScreen
from pagedchat.tui.models import named, picker
from tests.fakes_tui import READY, FakeEngineLink, prefill
from tests.tui.whole_app import WIDE, drawn, pane, panes, settle, toasts, write

LEFT = msgspec.structs.replace(READY, model="org/left")
RIGHT = msgspec.structs.replace(
    READY, model="org/right", dtype="float32", device="CPU, 2 threads", max_model_len=512
)


@pytest.fixture(autouse=True)
def no_models(monkeypatch):
    monkeypatch.setattr(picker, "local_models", list)
    monkeypatch.setattr(named, "local_models", list)


@pytest.fixture
def two(make_app, link):
    """A program that was started with two models, and what the second engine is."""
    app = make_app(sessions=1, model="org/left", beside="org/right")
    [(_, right)] = link.others
    return app, link, right


async def ready(pilot, link, right, info=RIGHT):
    link.say(LEFT)
    await settle(pilot)
    right.say(info)
    await settle(pilot)


def header(app):
    return drawn(app.screen).splitlines()[0]


def headings(app):
    return [drawn(heading) for heading in app.screen.query(GroupHeading) if heading.display]


async def typed(pilot, line):
    await write(pilot, line)
    await pilot.press("enter")
    for _ in range(3):  # names are looked up in a thread
        await settle(pilot)


# --- side by side -------------------------------------------------------------------------------------


async def test_the_second_engine_waits_for_the_memory_of_the_first(two):
    app, link, right = two
    async with app.run_test(size=WIDE) as pilot:
        link.say(LoadProgress("weights", "Reading the weights", 1, 2, "tensors"))
        await settle(pilot)
        assert (link.started, right.started) == (True, False)
        await pilot.press("tab", "f12")
        await typed(pilot, "/model org/third")
        assert "right waits until the other one is loaded." in drawn(app.screen)
        assert (right.num_restarts, right.switched_to) == (0, [])
        assert "waits until the other one is loaded" in headings(app)[1]
        link.say(LEFT)
        await settle(pilot)
        assert right.started


async def test_header_headings_and_commands_are_of_the_active_chats_engine(two):
    app, link, right = two
    async with app.run_test(size=WIDE) as pilot:
        await ready(pilot, link, right)
        link.say(prefill(1, 0, 2))
        await settle(pilot)
        assert "left" in header(app)
        assert "fp16 cuda:0" in header(app)
        assert "free 254/256" in header(app)
        assert ["►" in heading for heading in headings(app)] == [True, False]
        assert "fp32 CPU, 2 threads" in headings(app)[1]
        await pilot.press("tab")
        await settle(pilot)
        assert "right" in header(app)
        assert "fp32 CPU, 2 threads" in header(app)
        assert "free 256/256" in header(app)
        assert ["►" in heading for heading in headings(app)] == [False, True]
        right.say(prefill(2, 0, 2))
        await typed(pilot, "/context")
        assert "28 of 512 tokens" in drawn(pane(app, 2))
        await pilot.press("f4")
        await settle(pilot)
        assert (Pause() in right.sent, Pause() in link.sent) == (True, False)
        assert "right is paused." in toasts(app)
        right.say(RunState(paused=True, limit=None, pace=0.0))
        await settle(pilot)
        assert ["paused" in heading for heading in headings(app)] == [False, True]


async def test_the_inspector_shows_the_active_chats_engine_and_says_which(two):
    app, link, right = two
    async with app.run_test(size=(150, 40)) as pilot:
        await ready(pilot, link, right, msgspec.structs.replace(RIGHT, num_blocks=64))
        await pilot.press("f3")
        await settle(pilot)
        assert "left" in drawn(app.inspector.scrub_bar)
        assert app.inspector.view is app.groups.first.view
        await pilot.press("alt+2")
        await settle(pilot)
        await settle(pilot)
        assert "right" in drawn(app.inspector.scrub_bar)
        assert "Pool 64" in drawn(app.inspector)
        assert len(list(app.screen.query("InspectorPanel"))) == 1


async def test_a_prompt_to_all_goes_to_both_models(two):
    app, link, right = two
    async with app.run_test(size=WIDE) as pilot:
        await ready(pilot, link, right)
        await write(pilot, "Compare.")
        await pilot.press("f7")
        await settle(pilot)
        asked = [each.generates()[0] for each in (link, right)]
        assert [(each.session_id, each.turns[0].text) for each in asked] == [(1, "Compare."), (2, "Compare.")]
        link.reply(asked[0], "From the left.")
        right.reply(asked[1], "From the right.")
        await settle(pilot)
        assert "From the left." in drawn(pane(app, 1))
        assert "From the right." in drawn(pane(app, 2))
        await typed(pilot, "/send 1,2 Again.")
        assert [len(each.generates()) for each in (link, right)] == [2, 2]


async def test_new_chats_and_forks_stay_in_the_group_and_numbers_are_no_ones_twice(two):
    app, link, right = two
    async with app.run_test(size=WIDE) as pilot:
        await ready(pilot, link, right)
        await pilot.press("tab", "a", "enter")
        right.reply(right.generates()[0], "one")
        await settle(pilot)
        await pilot.press("f9")
        await settle(pilot)
        await pilot.press("ctrl+n")
        await settle(pilot)
        groups = [[chat.session_id for chat in group.desk] for group in app.groups]
        assert groups == [[1], [2, 3, 4]]
        assert [type(command).__name__ for command in link.sent if "Fork" in type(command).__name__] == []
        assert [len(list(grid.panes)) for grid in app.screen.query(ChatGrid)] == [1, 3]


async def test_below_a_hundred_columns_only_the_active_group_is_seen(two):
    app, link, right = two
    async with app.run_test(size=(80, 30)) as pilot:
        await ready(pilot, link, right)
        assert [each.session.session_id for each in panes(app) if each.parent.display] == [1]
        await pilot.press("tab")
        await settle(pilot)
        [heading] = [heading for heading in app.screen.query(GroupHeading) if heading.parent.display]
        assert "right" in drawn(heading)
        assert drawn(app.chats._tabs).count("new chat") == 2


# --- coming and going ---------------------------------------------------------------------------------


async def test_a_model_is_opened_beside_the_other_and_closed_again(make_app, link):
    app = make_app(sessions=1, model="org/left")
    async with app.run_test(size=WIDE) as pilot:
        link.say(LEFT)
        await settle(pilot)
        assert headings(app) == []
        await typed(pilot, "/model org/right --beside")
        [(name, right)] = link.others
        assert (name, right.started, link.closed) == ("org/right", True, False)
        right.say(RIGHT)
        await settle(pilot)
        assert "right" in header(app)
        assert len(headings(app)) == 2
        await pilot.press("a", "enter")
        right.reply(right.generates()[0], "one")
        await settle(pilot)
        await typed(pilot, "/model --close")
        assert isinstance(app.screen, ConfirmScreen)
        assert "Close right?" in drawn(app.screen)
        await pilot.press("enter")
        await settle(pilot)
        assert (right.closed, link.closed) == (True, False)
        assert (len(app.groups), headings(app), app.desk.labels) == (1, [], {1: "1 new chat"})
        assert "left" in header(app)


async def test_the_left_one_may_go_too_and_leaving_a_groups_last_chat_ends_it(two):
    app, link, right = two
    async with app.run_test(size=WIDE) as pilot:
        await ready(pilot, link, right)
        await pilot.press("ctrl+d")
        await settle(pilot)
        assert (link.closed, right.closed) == (True, False)
        assert "right" in header(app)
        assert [chat.session_id for chat in app.groups.chats] == [2]
        await pilot.press("b", "enter")
        await settle(pilot)
        assert len(right.generates()) == 1


async def test_there_are_two_at_most_and_the_only_one_is_not_closed(two):
    app, link, right = two
    async with app.run_test(size=WIDE) as pilot:
        await ready(pilot, link, right)
        with pytest.raises(PagedChatError, match="Two models at most stand side by side, and left and right do"):
            await app.open_beside("org/third")
        assert app.groups.shown.desk.reading is list(app.groups)[1].desk.reading  # "in all chats"
        await typed(pilot, "/model --beside")
        assert "needs the name of a model" in " ".join(drawn(pane(app, 1)).split())
        await app.close_model()
        with pytest.raises(PagedChatError, match="no second model"):
            await app.close_model()


async def test_alt_enter_in_the_list_opens_a_model_beside(make_app, link):
    app = make_app(sessions=1, model="org/left")
    async with app.run_test(size=WIDE) as pilot:
        link.say(LEFT)
        await settle(pilot)
        await pilot.press("ctrl+l", *"org/new", "alt+enter")
        for _ in range(3):
            await settle(pilot)
        assert [name for name, _ in link.others] == ["org/new"]
        assert link.switched_to == []


async def test_the_same_model_twice_is_told_apart(make_app, link):
    app = make_app(sessions=1, model="org/left", beside="org/left")
    async with app.run_test(size=WIDE) as pilot:
        await ready(pilot, link, link.others[0][1])
        link.others[0][1].say(LEFT)
        await settle(pilot)
        assert [heading.strip(" ►").split("  ")[0] for heading in headings(app)] == ["left (1)", "left (2)"]


async def test_both_groups_are_there_again_in_the_next_run(tmp_path):
    history = run.begin(path=tmp_path / FILE_NAME)
    link = FakeEngineLink()
    app = PagedChatApp(link, UiOptions(model="org/left", beside="org/right", history=history), PromptHistory())
    async with app.run_test(size=WIDE) as pilot:
        await ready(pilot, link, link.others[0][1])
        await pilot.press("tab", "a", "enter")
        link.others[0][1].reply(link.others[0][1].generates()[0], "one")
        await settle(pilot)
        await pilot.press("ctrl+q")
        await pilot.pause()
    await asyncio.to_thread(history.thread.close)
    history = run.begin(path=tmp_path / FILE_NAME, go_on=True)
    layout = history.reopened.layout
    assert (layout.models, [pane.beside for pane in layout.panes]) == (("org/left", "org/right"), [False, True])
    link = FakeEngineLink()
    options = UiOptions(model=layout.models[0], beside=layout.models[1], history=history)
    app = PagedChatApp(link, options, PromptHistory())
    async with app.run_test(size=WIDE) as pilot:
        link.say(LEFT)
        await settle(pilot)
        link.others[0][1].say(EngineFailed("It has no weights.", "Choose another."))
        await settle(pilot)
        assert [[chat.session_id for chat in group.desk] for group in app.groups] == [[1], [2]]
        assert "one" in drawn(pane(app, 2))
        assert app.chats.focused_chat.session_id == 2
        assert "could not start: It has no weights." in headings(app)[1]
        [found] = (await asyncio.wrap_future(history.thread.ask(lambda kept: kept.search.chats("")))).chats
        assert found.model == "org/right"
    await asyncio.to_thread(history.thread.close)


async def test_quitting_ends_both_and_asks_for_both(two):
    app, link, right = two
    async with app.run_test(size=WIDE) as pilot:
        await ready(pilot, link, right)
        await write(pilot, "Hi")
        await pilot.press("f7")
        link.reply(link.generates()[0], "half", finish=False)
        right.reply(right.generates()[0], "half", finish=False)
        await settle(pilot)
        await pilot.press("ctrl+q")
        await settle(pilot)
        assert "2 replies are still being written." in drawn(app.screen)
        await pilot.press("enter")
        await pilot.pause()
    assert (link.closed, right.closed) == (True, True)


# --- trouble ------------------------------------------------------------------------------------------


async def test_an_engine_that_dies_takes_only_its_group_down(two):
    app, link, right = two
    async with app.run_test(size=WIDE) as pilot:
        await ready(pilot, link, right)
        await write(pilot, "Hi")
        await pilot.press("f7")
        link.reply(link.generates()[0], "half", finish=False)
        right.reply(right.generates()[0], "half", finish=False)
        await settle(pilot)
        right.say(EngineDied(-11, "", False))
        await settle(pilot)
        states = [chat.state for chat in app.groups.chats]
        assert states == ["running", "interrupted"]
        assert "ended (SIGSEGV" in headings(app)[1]
        assert "ended" not in headings(app)[0] + header(app)
        await pilot.press("tab", "f12")
        await settle(pilot)
        assert (link.num_restarts, right.num_restarts) == (0, 1)


async def test_a_second_model_without_room_is_one_sentence_and_the_first_works_on(two):
    app, link, right = two
    said = "org/right needs 3 GiB beside the other model, and 1 GiB of memory are free."
    async with app.run_test(size=WIDE) as pilot:
        link.say(LEFT)
        await settle(pilot)
        right.say(EngineFailed(said, "Choose a smaller one."))
        await settle(pilot)
        assert "could not start: org/right needs 3 GiB" in headings(app)[1]
        assert "could not start" not in header(app)
        await pilot.press("a", "enter")
        await settle(pilot)
        assert len(link.generates()) == 1
        await pilot.press("tab")
        await settle(pilot)
        assert said in drawn(app.screen)
        assert "/model --close" in drawn(app.screen)


# --- pictures -----------------------------------------------------------------------------------------


def test_two_models_look(snap_compare, link, monkeypatch):
    monkeypatch.setattr(Composer, "cursor_blink", False)
    options = UiOptions(sessions=1, model="org/left", beside="org/right")
    app = PagedChatApp(link, options, PromptHistory(), clock=lambda: 100.0)
    [(_, right)] = link.others

    async def run_before(pilot):
        await ready(pilot, link, right)
        await write(pilot, "Which of you is larger?")
        await pilot.press("f7")
        link.say(prefill(1, 0, 3))
        right.say(prefill(2, 0, 2))
        link.reply(link.generates()[0], "I am the one on the left.")
        right.reply(right.generates()[0], "I keep my blocks\nin a pool of my own.", finish=False)
        await settle(pilot)

    assert snap_compare(app, terminal_size=(120, 36), run_before=run_before)
