"""The panel of beams and drafts: in the place of the tables, live and in the past, at several sizes."""

from collections.abc import Callable

import msgspec
import pytest

from pagedchat import events as ev
from pagedchat.trace.recorder import Recorder
from pagedchat.tui.inspector.groups.group_panel import GroupPanel
from pagedchat.view.engine_view import EngineView
from pagedchat.view.past.states import PastStates
from tests.fakes import reciting
from tests.service.engine_rig import EngineRig
from tests.service.fake_engine import BLOCK_SIZE, ready_info
from tests.service.likely_runner import LikelyRunner
from tests.service.test_searches import REPLY, TOKENIZER, search
from tests.tui.inspector.test_panel import PanelApp, press, ready
from tests.tui.widget_app import WidgetApp, drawn

SnapCompare = Callable[..., bool]


def timeless(event: ev.EngineEvent) -> ev.EngineEvent:
    """Without what differs from run to run."""
    if not isinstance(event, ev.Steps):
        return event
    same = {"time": 0.0, "timings": ev.Timings(forward=0.01)}
    return ev.Steps([msgspec.structs.replace(report, **same) for report in event.reports])


def searched(num_steps: int) -> tuple[EngineView, EngineRig]:
    """A view of an engine on which a search of four beams has made so many steps."""
    rig = EngineRig(LikelyRunner(reciting(TOKENIZER, REPLY), BLOCK_SIZE))
    rig.send(search(1, 10, "Tell me of the boat", width=4, max_tokens=30))
    rig.step(num_steps)
    rig.loop._publish()
    view = EngineView(clock=lambda: 0.0)
    for event in [ready_info(), *map(timeless, rig.events)]:
        view.apply(event)
    view.labels = {1: "1 boat"}
    return view, rig


async def test_beams_are_a_tree_and_the_pruned_ones_below_it() -> None:
    view, rig = searched(14)
    app = WidgetApp(GroupPanel(view))
    async with app.run_test(size=(90, 24)) as pilot:
        await pilot.pause()
        panel = app.widget
        assert isinstance(panel, GroupPanel)
        panel.refresh_view()
        lines = drawn(panel.lines)
    assert lines[0].startswith("beam search, 4 wide · since step 1 · 4 beams in ")
    assert " pruned" in lines[1]
    living = [number for number, seq in rig.core.sequences.items() if seq.group is not None]
    assert sum("[" in line and "beam" in line for line in lines) == len(living)
    assert any(line.startswith("× beam ") for line in lines)


async def test_a_key_puts_it_in_the_place_of_the_tables_and_back() -> None:
    view, _ = searched(8)
    app = PanelApp(view)
    async with app.run_test(size=(120, 40)) as pilot:
        await ready(app, pilot)
        await press(pilot, "n")
        assert app.seen() == ["BlockMap", "GroupPanel", "BatchTimeline", "EventLog"]
        await press(pilot, "s")
        assert app.seen() == ["BlockMap", "SharingPanel", "BatchTimeline", "EventLog"]
        await press(pilot, "n", "n")
        assert app.seen() == ["BlockMap", "BlockTables", "BatchTimeline", "EventLog"]


def test_the_past_is_drawn_like_the_present_was() -> None:
    _, rig = searched(20)
    recorder, view = Recorder(), EngineView()
    for event in [ready_info(), *rig.events]:
        view.apply(event)
        recorder.apply(event, view.mirror, {})
    recording = recorder.recording
    assert recording is not None
    states = PastStates(recording)
    for step in (3, 11, 20, 7):
        then, _ = searched(step)
        assert then.live is not None
        past = states.at(recording.position_of(step))
        assert past.groups.last == then.live.groups.last, step


@pytest.mark.parametrize("size", [(80, 24), (120, 36), (200, 50)])
def test_pictures(snap_compare: SnapCompare, size: tuple[int, int]) -> None:
    view, _ = searched(14)
    app = PanelApp(view)

    async def before(pilot) -> None:
        await ready(app, pilot)
        await press(pilot, "n")
        app.panel.refresh_view()
        await pilot.pause()

    assert snap_compare(app, terminal_size=size, run_before=before)
