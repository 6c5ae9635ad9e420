"""Another model from a list or by name, on an engine that is the test."""

import pytest

from pagedchat.events import EngineDied, EngineFailed
from pagedchat.local_models import LocalModel
from pagedchat.tui.chat.engine_status import StatusBanner
from pagedchat.tui.kit.front_screens import ConfirmScreen
from pagedchat.tui.models import named, picker
from pagedchat.tui.models.picker import ModelPicker
from tests.fakes_tui import READY, prefill
from tests.tui.whole_app import WIDE, drawn, pane, settle, toasts, write

FOUND = [
    LocalModel("pagedchat-toy", "in the box", 29_000_000),
    LocalModel("Qwen/Qwen2.5-0.5B-Instruct", "hub's cache", 988_000_000),
    LocalModel("\x1b[31mred", "folder", 10),
]


@pytest.fixture(autouse=True)
def found(monkeypatch):
    monkeypatch.setattr(picker, "local_models", lambda: FOUND)
    monkeypatch.setattr(named, "local_models", lambda: FOUND)


async def looked(pilot):
    """The list has come from its thread."""
    while "Looking" in drawn(pilot.app.screen):
        await pilot.pause(0.01)
    await settle(pilot)


async def test_a_model_is_chosen_from_a_list_that_typing_narrows(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await settle(pilot)
        await pilot.press("ctrl+l")
        await looked(pilot)
        shown = drawn(app.screen)
        assert all(model.name.lstrip("\x1b") in shown.replace("␛", "") for model in FOUND[:2])
        assert "\x1b" not in shown
        await pilot.press(*"instruct qwen", "enter")
        await settle(pilot)
        assert link.switched_to == ["Qwen/Qwen2.5-0.5B-Instruct"]
        assert app.screen is app.chats


async def test_arrows_move_while_typing_goes_on_and_escape_changes_nothing(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await settle(pilot)
        await pilot.press("ctrl+l")
        await looked(pilot)
        await pilot.press("down", "escape")
        await settle(pilot)
        assert (link.switched_to, app.screen) == ([], app.chats)
        await pilot.press("ctrl+l")
        await looked(pilot)
        await pilot.press("down", "enter")
        await settle(pilot)
        assert link.switched_to == ["Qwen/Qwen2.5-0.5B-Instruct"]


async def test_a_name_that_is_nobodys_is_refused_before_anything_ends(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await settle(pilot)
        await write(pilot, "/model Qwen2.5-0.5B")
        await pilot.press("enter")
        while "There is no" not in (said := drawn(pane(app, 1))):  # names are looked up in a thread
            await settle(pilot)
        said = " ".join(said.replace("│", " ").split())
        assert "There is no model called 'Qwen2.5-0.5B' on this machine." in said
        assert "Did you mean Qwen/Qwen2.5-0.5B-Instruct?" in said
        assert link.switched_to == []


async def test_a_hub_id_is_tried_though_it_is_not_here(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await settle(pilot)
        await pilot.press("ctrl+l")
        await looked(pilot)
        await pilot.press(*"org/new")
        await settle(pilot)
        assert "None here is called so. Enter tries 'org/new'; a hub id is fetched." in drawn(app.screen)
        await pilot.press("enter")
        await settle(pilot)
        assert link.switched_to == ["org/new"]


@pytest.mark.parametrize("name", ["org/new:Q4_K_M", "org/new/Q8_0/new-00001-of-00002.gguf"])
async def test_a_gguf_model_of_the_hub_is_tried_though_it_is_not_here(name, make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await settle(pilot)
        await write(pilot, f"/model {name}")
        await pilot.press("enter")
        await settle(pilot)
        while not link.switched_to:  # names are looked up in a thread
            await settle(pilot)
        assert link.switched_to == [name]


async def test_replies_that_are_being_written_are_asked_about(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY, prefill(1, 0, 2))
        await pilot.press("a", "enter")
        link.reply(link.generates()[0], "half", finish=False)
        await settle(pilot)
        await write(pilot, "/model org/new")
        await pilot.press("enter")
        await settle(pilot)
        assert isinstance(app.screen, ConfirmScreen)
        await pilot.press("escape")
        assert link.switched_to == []
        await write(pilot, "/model org/new")
        await pilot.press("enter")
        await settle(pilot)
        await pilot.press("enter")
        await settle(pilot)
        assert link.switched_to == ["org/new"]


async def test_the_chats_stay_and_what_is_loaded_is_said(make_app, link):
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY, prefill(1, 0, 2))
        await pilot.press("a", "enter")
        link.reply(link.generates()[0], "one")
        await settle(pilot)
        await write(pilot, "/model org/new")
        await pilot.press("enter")
        link.say(EngineDied(0, "", True, "", "org/new"))
        await settle(pilot)
        banner = app.screen.query_one(StatusBanner)
        assert "Starting the engine" in drawn(banner)
        assert "ended" not in drawn(banner)
        assert "new" in drawn(app.screen).splitlines()[0]
        link.say(READY)
        await settle(pilot)
        await pilot.press("b", "enter")
        assert [turn.text for turn in link.generates()[-1].turns] == ["a", "one", "b"]


async def test_a_model_that_cannot_be_loaded_leaves_a_way_back(make_app, link):
    app = make_app(model="org/old")
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await settle(pilot)
        await write(pilot, "/model org/new")
        await pilot.press("enter")
        link.say(EngineDied(0, "", True, "", "org/new"), EngineFailed("It has no weights.", "Choose another."))
        await settle(pilot)
        shown = drawn(app.screen)
        assert "It has no weights." in shown
        assert "^L loads another model" in shown
        assert toasts(app) == ["/model org/old loads the model that was there before."]


async def test_the_list_says_when_it_is_still_looking(make_app, link, monkeypatch):
    async def still(picker):
        return

    monkeypatch.setattr(ModelPicker, "_look", still)
    app = make_app()
    async with app.run_test(size=WIDE) as pilot:
        await pilot.press("ctrl+l")
        await settle(pilot)
        assert "Looking for models …" in drawn(app.screen)
