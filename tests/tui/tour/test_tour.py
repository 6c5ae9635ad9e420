"""The tour on a real engine process (with a fake model in it), from its first step to the last."""

import asyncio
import re

import pytest

from pagedchat.chat.prompt_history import PromptHistory
from pagedchat.config import EngineConfig, ModelConfig
from pagedchat.service.client import EngineClient
from pagedchat.tui.app import PagedChatApp, UiOptions
from pagedchat.tui.chat.chat_pane import ChatPane
from pagedchat.tui.tour.tour_box import TourBox
from pagedchat.view.tour import guide, stage
from tests.service.fake_engine import ENTRY
from tests.tui.whole_app import drawn

WIDE = (170, 50)
NARROW = (100, 30)
TIMEOUT = 60
"""Seconds; machines that test are busy."""


@pytest.fixture
async def make_app(tmp_path, monkeypatch):
    monkeypatch.setattr(stage, "PACE", 0.0)
    links = []

    def make(loader):
        entry = [*ENTRY, f"tests.tui.tour.tour_engine:{loader}"]
        link = EngineClient(EngineConfig(model=ModelConfig(model="some/model")), tmp_path, entry)
        links.append(link)
        app = PagedChatApp(link, UiOptions(sessions=1), PromptHistory())
        app.animation_level = "none"
        return app

    yield make
    for link in links:
        await link.close()


async def wait(pilot, holds):
    async with asyncio.timeout(TIMEOUT):
        while not holds():
            await asyncio.sleep(0.02)
            await pilot.pause()


async def start(pilot):
    app = pilot.app
    await wait(pilot, lambda: app.view.live is not None)
    await pilot.press(*"/tour", "enter")
    await wait(pilot, lambda: app.tour is not None and app.screen.query(TourBox))
    return app.tour.guide


def found(tour):
    return tour.found[tour.position]


async def walk(pilot, tour):
    """Every step, each until it has shown its thing."""
    for position in range(len(tour.steps)):
        await wait(pilot, lambda here=position: tour.position == here and found(tour))
        await pilot.press("enter")


@pytest.mark.parametrize(("loader", "size"), [("load_recompute", WIDE), ("load_swap", NARROW)])
async def test_all_steps_are_shown_and_everything_is_put_back(make_app, loader, size):
    app = make_app(loader)
    async with app.run_test(size=size) as pilot:
        tour = await start(pilot)
        await walk(pilot, tour)
        await wait(pilot, lambda: app.tour is None and app.view.limit is None and app.view.pace == 0.0)
        wanted = [
            r"There it is: block \d{3} has all 4 of its slots filled, with tokens \d+ to \d+ of 2 tour",
            r"There it is: 3 tour took \d+ tokens in blocks \d{3} \d{3} .* ref count of blocks? .* is 2 now",
            r"There it is: 4 tour»a lists the same \d+ blocks as 2 tour\.",
            r"There it is: .* the first to write into block \d{3}, so it got a copy, block \d{3}, with [123] slot"
            r"s? filled\. Of the \d+ blocks before it \d+ are shared\.",
            r"There it is: block \d{3}, the least recently used of the cached .* may use \d+ of its 120 blocks now",
            r"There it is: \d tour.* gave its (blocks|own).* values of \d+ tokens (left its|are in host memory)",
            r"There it is: .* (came back from host blocks|Of the \d+ tokens that it had computed \d+ were found)",
            r"There it is: 2 tour was cut back to its first \d+ tokens; \d+ blocks? past the cut went back\.",
        ]
        for pattern, text in zip(wanted, tour.found, strict=True):
            assert re.match(pattern, text), text
        assert ("came back from host" in tour.found[6]) == (loader == "load_swap")
        assert [chat.session_id for chat in app.desk] == [1]
        await wait(pilot, lambda: len(list(app.chats.query(ChatPane))) == 1)
        assert app.inspector is None
        await wait(pilot, lambda: app.view.live.mirror.sequences.keys() <= {1})


async def test_leaving_in_the_middle_puts_everything_back(make_app):
    app = make_app("load_recompute")
    async with app.run_test(size=WIDE) as pilot:
        tour = await start(pilot)
        for _ in range(5):
            await pilot.press("enter")
        await wait(pilot, lambda: app.view.limit is not None)
        assert tour.position == 5
        await pilot.press("escape")
        await wait(pilot, lambda: app.tour is None and app.view.limit is None)
        assert [chat.session_id for chat in app.desk] == [1]
        assert not app.screen.query(TourBox)


async def test_back_shows_what_was_found_and_runs_nothing_again(make_app):
    app = make_app("load_recompute")
    async with app.run_test(size=WIDE) as pilot:
        tour = await start(pilot)
        await wait(pilot, lambda: found(tour))
        first = found(tour)
        await pilot.press("enter")
        await wait(pilot, lambda: found(tour))
        num_chats = len(app.desk)
        await pilot.press("left")
        assert (tour.position, tour.state_text) == (0, first)
        await pilot.press("right")
        assert (tour.position, len(app.desk)) == (1, num_chats)
        await pilot.press("escape")


async def test_a_step_that_shows_nothing_says_what_it_waits_for(make_app, monkeypatch):
    monkeypatch.setattr(guide, "PATIENCE", 0.3)
    app = make_app("load_without_prefix_cache")
    async with app.run_test(size=WIDE) as pilot:
        tour = await start(pilot)
        await wait(pilot, lambda: found(tour))
        await pilot.press("enter")
        await wait(
            pilot, lambda: tour.state_text.startswith("Still waiting for the second chat to find the prompt")
        )
        assert tour.state_text.endswith("Enter goes on without it.")
        await pilot.press("enter")
        await wait(pilot, lambda: tour.position == 2 and found(tour))
        await pilot.press("escape")


async def test_paused_and_limited_before_is_so_again_afterwards(make_app):
    app = make_app("load_recompute")
    async with app.run_test(size=WIDE) as pilot:
        await wait(pilot, lambda: app.view.live is not None)
        for line in ("/limit 100", "/slow 1", "/pause"):
            await pilot.press(*line, "enter")
        await wait(pilot, lambda: app.view.paused and app.view.limit == 100)
        tour = await start(pilot)
        await wait(pilot, lambda: found(tour))
        assert not app.view.paused
        await pilot.press("escape")
        await wait(pilot, lambda: app.view.paused and app.view.limit == 100 and app.view.pace == 0.001)


async def test_the_tour_goes_along_to_the_chats_though_the_engine_rests(make_app):
    app = make_app("load_recompute")
    async with app.run_test(size=NARROW) as pilot:
        tour = await start(pilot)
        await wait(pilot, lambda: found(tour) and not any(chat.busy for chat in app.desk))
        await asyncio.sleep(0.5)  # the last report was drawn
        assert app.screen is not app.chats
        await pilot.press("f2")
        await wait(pilot, lambda: app.screen is app.chats and app.chats.query(TourBox))
        await pilot.press("escape")


@pytest.mark.parametrize("size", [NARROW, WIDE])
async def test_the_line_of_keys_is_the_tour_s_while_it_has_the_keyboard(make_app, size):
    app = make_app("load_recompute")
    async with app.run_test(size=size) as pilot:
        await start(pilot)
        await wait(pilot, lambda: app.screen.query("TourBox:focus"))
        bar = app.screen.query_one("KeyBar")
        assert drawn(bar).strip().startswith("Enter next step  ← step before  Esc leave the tour")
        await pilot.press("tab")
        await pilot.pause()
        assert "Enter next step" not in drawn(bar)
        await pilot.click(TourBox)
        await pilot.press("escape")
