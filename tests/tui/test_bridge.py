"""What the bridge does with the engine's events besides showing them: it records every one."""

import asyncio
from pathlib import Path

from textual.message import Message

from pagedchat.cache_events import SequenceOpened
from pagedchat.events import Steps, TokenTexts
from pagedchat.trace.format import TraceError
from pagedchat.trace.reader import open_trace
from pagedchat.trace.recorder import Recorder
from pagedchat.tui.bridge import EngineBridge
from pagedchat.tui.messages import EngineStateChanged
from pagedchat.view.chats.desk import ChatDesk
from pagedchat.view.engine_view import EngineView
from pagedchat.view.options import UiOptions
from tests.fakes_tui import READY, FakeEngineLink, prefill, report


def bridge_to(
    link: FakeEngineLink, recorder: Recorder | None = None
) -> tuple[EngineBridge, EngineView, list[Message]]:
    view, posted = EngineView(), list[Message]()
    return EngineBridge(link, view, ChatDesk(link.send, UiOptions()), posted.append, recorder), view, posted


async def run_to_the_end(bridge: EngineBridge, link: FakeEngineLink) -> None:
    running = asyncio.create_task(bridge.run())
    await asyncio.sleep(0)
    await link.close()
    await running


async def test_every_report_is_recorded_from_the_first_on(tmp_path: Path) -> None:
    link = FakeEngineLink()
    bridge, view, posted = bridge_to(link, Recorder(tmp_path / "run.trace"))
    assert bridge.recording is None
    link.say(READY, TokenTexts([7], [b" and"]), prefill(1, 0, 3, step=1), report(2, [SequenceOpened(2)]))
    await run_to_the_end(bridge, link)
    recording = open_trace(tmp_path / "run.trace")
    assert (recording.ended, recording.end, recording.last_step) == (True, 2, 2)
    assert recording.token_texts == {7: b" and"}
    assert recording.labels_at(recording.end) == view.labels
    assert set(recording.mirror_at(2).sequences) == {1, 2}
    assert [type(message) for message in posted] == [EngineStateChanged]


async def test_an_engine_that_is_cut_off_leaves_a_finished_recording(tmp_path: Path) -> None:
    link = FakeEngineLink()
    bridge, _, _ = bridge_to(link, Recorder(tmp_path / "run.trace"))
    link.say(READY, prefill(1, 0, 3))
    running = asyncio.create_task(bridge.run())
    for _ in range(20):
        await asyncio.sleep(0)
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
    assert open_trace(tmp_path / "run.trace").ended


async def test_a_recording_that_fails_is_told_once_and_the_engine_goes_on() -> None:
    link, recorder = FakeEngineLink(), Recorder()
    bridge, view, _ = bridge_to(link, recorder)
    recorder.problem = TraceError("The disk is full.", "The chats go on.")
    link.say(READY, prefill(1, 0, 3))
    await run_to_the_end(bridge, link)
    assert view.step == 1
    [notice] = view.notices
    assert (notice.message, notice.hint, notice.failed) == ("The disk is full.", "The chats go on.", True)


async def test_many_reports_at_once_leave_others_their_turn(monkeypatch) -> None:
    monkeypatch.setattr("pagedchat.tui.bridge.SLICE_SECONDS", 0.0)
    link = FakeEngineLink()
    bridge, view, _ = bridge_to(link)
    seen: list[int] = []

    async def look() -> None:
        while view.step < 100:
            seen.append(view.step)
            await asyncio.sleep(0)

    link.say(READY, prefill(1, 0, 3), Steps([report(step, []).reports[0] for step in range(2, 101)]))
    looking = asyncio.create_task(look())
    await run_to_the_end(bridge, link)
    await looking
    assert view.step == 100
    assert bridge.recording is not None
    assert bridge.recording.last_step == 100
    between = [step for step in dict.fromkeys(seen) if step > 1]
    assert len(between) > 10
