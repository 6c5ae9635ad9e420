"""What the inspector asks for reaches the engine and the chats."""

import pytest

from pagedchat.events import RunState
from pagedchat.service.commands import Evict, Pause, Pin, Resume, SetPace, StepOnce, Unpin
from pagedchat.tui.chat.chat_pane import ChatPane
from pagedchat.tui.chat.transcript import Transcript
from pagedchat.tui.inspector.pool.block_detail import BlockDetail
from pagedchat.tui.messages import BlockChosen, PaceRequested, PauseToggled, StepChosen, StepRequested
from tests.fakes_tui import READY, prefill
from tests.tui.whole_app import settle, toasts

WIDE = (160, 40)


@pytest.fixture
def app(make_app):
    return make_app()


async def test_requests_become_commands(app, link):
    wanted = [
        (PauseToggled(), [Pause()]),
        (StepRequested(), [Pause(), StepOnce(1)]),
        (PaceRequested(0.5), [SetPace(0.5)]),
        (BlockDetail.PinToggled(7, True), [Pin(7)]),
        (BlockDetail.PinToggled(7, False), [Unpin(7)]),
        (BlockDetail.EvictRequested(8), [Evict(8)]),
    ]
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY)
        await settle(pilot)
        for message, commands in wanted:
            link.sent.clear()
            app.chats.post_message(message)
            await pilot.pause()
            assert link.sent == commands


async def test_a_paused_scheduler_runs_on_or_steps(app, link):
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY, RunState(True))
        await settle(pilot)
        link.sent.clear()
        app.chats.post_message(StepRequested())
        app.chats.post_message(PauseToggled())
        await pilot.pause()
        assert link.sent == [StepOnce(1), Resume()]


async def test_without_an_engine_it_is_said_that_there_is_none(app, link):
    async with app.run_test(size=WIDE) as pilot:
        await settle(pilot)
        link.sent.clear()
        for message in (PauseToggled(), StepRequested(), PaceRequested(0.5), BlockDetail.EvictRequested(8)):
            app.chats.post_message(message)
            await pilot.pause()
        assert link.sent == []
        assert set(toasts(app)) == {"The engine is not running. Wait until it is ready, or type /restart."}


async def test_a_chosen_step_leads_to_the_past_and_back(app, link):
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY, prefill(1, 0, 3), prefill(2, 3, 2, step=2))
        await settle(pilot)
        app.chats.post_message(StepChosen(1))
        await settle(pilot)
        assert app.view.past is not None
        app.chats.post_message(StepChosen(None))
        await settle(pilot)
        assert app.view.past is None


async def test_a_step_that_is_not_there_is_said_aloud(app, link):
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY, prefill(1, 0, 3))
        await settle(pilot)
        app.chats.post_message(StepChosen(99))
        await settle(pilot)
        assert toasts(app) == ["Step 99 is beyond the end. Steps 0 to 1 are recorded."]


async def test_a_chosen_block_is_lit_in_every_pane(app, link, monkeypatch):
    lit = []
    monkeypatch.setattr(
        ChatPane, "light_block", lambda self, block_id: lit.append((self.session.session_id, block_id))
    )
    async with app.run_test(size=WIDE) as pilot:
        app.chats.post_message(BlockChosen(5))
        await pilot.pause()
        assert lit == [(1, 5), (2, 5)]


@pytest.mark.parametrize("key", ["escape", "f3"])
async def test_what_is_lit_goes_out_with_escape_and_with_the_inspector(app, link, key, monkeypatch):
    lit = []
    async with app.run_test(size=WIDE) as pilot:
        link.say(READY, prefill(1, 0, 3))
        await settle(pilot)
        await pilot.press("f3")
        await settle(pilot)
        monkeypatch.setattr(ChatPane, "light_block", lambda self, block_id: lit.append(block_id))
        await pilot.press(key)
        await settle(pilot)
        assert lit == [None, None]


async def test_every_pane_hears_that_the_inspector_took_its_room(app, link, monkeypatch):
    widths = {}
    monkeypatch.setattr(
        Transcript, "on_resize", lambda self, event: widths.update({id(self): event.size.width}), raising=True
    )
    async with app.run_test(size=(240, 50)) as pilot:
        link.say(READY, prefill(1, 0, 3))
        await settle(pilot)
        for key in ("f3", "f3"):
            widths.clear()
            await pilot.press(key)
            await settle(pilot)
            await settle(pilot)
            panes = [pane for pane in app.chats.query(ChatPane) if pane.display]
            assert widths == {id(pane.transcript): pane.transcript.outer_size.width for pane in panes}
            assert len(panes) == 2
