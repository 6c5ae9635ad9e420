"""The inspector: pool map, block tables, batching and events of the running engine, in one widget.

It shows an `EngineView` and posts messages; whoever mounts it calls `refresh_view` (at most ten times a second) and
carries the messages to the engine.
"""

from typing import ClassVar

from textual import events
from textual.app import ComposeResult
from textual.binding import BindingType
from textual.containers import Container
from textual.content import Content
from textual.message import Message
from textual.widget import Widget
from textual.widgets import Static

from pagedchat.tui.actions import KeyAction, bindings
from pagedchat.tui.engine_view import EngineView
from pagedchat.tui.screens.block_detail import BlockDetail
from pagedchat.tui.widgets.batch_timeline import BatchTimeline
from pagedchat.tui.widgets.block_map import BlockMap
from pagedchat.tui.widgets.block_tables import BlockTables
from pagedchat.tui.widgets.engine_words import waiting_words
from pagedchat.tui.widgets.event_log import EventLog

INSPECTOR_ACTIONS = (
    KeyAction(
        "inspector.pause", "space", "toggle_pause", "pause", "Pause or run", "Hold the scheduler, or let it run"
    ),
    KeyAction("inspector.step", ".", "step_once", "step", "Single step", "One step of the paused scheduler"),
    KeyAction("inspector.colors", "c", "cycle_colors", "colours", "Map colours", "By owner, ref count or state"),
    KeyAction("inspector.zoom_in", "+,=", "zoom(1)", "larger", "Larger cells", "Fewer blocks in sight"),
    KeyAction("inspector.zoom_out", "-", "zoom(-1)", "smaller", "Smaller cells", "More blocks in sight"),
    KeyAction("inspector.left", "h", "move_cursor(-1, 0)", "", "Block left", "Move the map's cursor"),
    KeyAction("inspector.down", "j", "move_cursor(0, 1)", "", "Block down", "Move the map's cursor"),
    KeyAction("inspector.up", "k", "move_cursor(0, -1)", "", "Block up", "Move the map's cursor"),
    KeyAction("inspector.right", "l", "move_cursor(1, 0)", "", "Block right", "Move the map's cursor"),
    KeyAction(
        "inspector.block", "enter", "open_block", "block", "Open block", "Owners, tokens and history of a block"
    ),
    KeyAction("inspector.kinds", "e", "cycle_kinds", "events", "Event kinds", "Which kinds of events are shown"),
    KeyAction("inspector.filter", "/", "filter_events", "filter", "Filter events", "Only events with a given text"),
)
"""What the inspector's keys do wherever the focus is inside it."""

TWO_COLUMNS = 76
"""From this width on the four panels stand two by two."""
ALL_FOUR = 28
"""Rows below which a single column shows the map and the tables only."""


class InspectorPanel(Widget):
    """Four panels, or what the engine is doing while there is nothing to show yet."""

    DEFAULT_CSS = """
    InspectorPanel {
        height: 1fr;
        width: 1fr;
        & > #inspector-waiting { width: 1fr; height: 1fr; content-align: center middle; color: $text-muted; }
        & > #inspector-panels { layout: grid; grid-size: 2 2; grid-columns: 11fr 10fr; height: 1fr; display: none; }
        &.-ready > #inspector-waiting { display: none; }
        &.-ready > #inspector-panels { display: block; }
        &.-stacked > #inspector-panels { grid-size: 1 4; grid-columns: 1fr; }
        &.-stacked.-short > #inspector-panels { grid-size: 1 2; }
        &.-stacked.-short BatchTimeline, &.-stacked.-short EventLog { display: none; }
        & BlockMap, & BlockTables, & BatchTimeline, & EventLog {
            border: round $foreground 25%;
            border-title-color: $text-muted;
            border-subtitle-color: $foreground 40%;
            padding: 0 1;
            &:focus-within { border: round $primary; border-title-color: $text-primary; }
        }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(INSPECTOR_ACTIONS)]

    class PauseToggled(Message):
        """The scheduler shall pause, or run on."""

        def __init__(self, paused: bool) -> None:
            super().__init__()
            self.paused = paused
            """What is asked for."""

    class StepRequested(Message):
        """The paused scheduler shall run `count` steps (one that runs is to be paused first)."""

        def __init__(self, count: int = 1) -> None:
            super().__init__()
            self.count = count

    def __init__(self, view: EngineView, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.view = view
        self.block_map = BlockMap(view)
        self.block_tables = BlockTables(view)
        self.timeline = BatchTimeline(view)
        self.event_log = EventLog(view)
        self._waiting = Static("", markup=False, id="inspector-waiting")
        self._can_draw = False
        """Whether all parts are mounted: the app may call `refresh_view` before."""

    def compose(self) -> ComposeResult:
        """The panels, and what stands there without an engine."""
        yield self._waiting
        with Container(id="inspector-panels"):
            yield self.block_map
            yield self.block_tables
            yield self.timeline
            yield self.event_log

    def on_mount(self) -> None:
        """Show what is known already."""
        self._can_draw = True
        self.refresh_view()

    def on_resize(self, event: events.Resize) -> None:
        """Two by two, or one below the other."""
        self.set_class(event.size.width < TWO_COLUMNS, "-stacked")
        self.set_class(event.size.height < ALL_FOUR, "-short")

    def refresh_view(self) -> None:
        """Draw what changed in the engine since the last call."""
        if not self._can_draw:
            return
        ready = self.view.mirror is not None
        if ready != self.has_class("-ready"):
            self.set_class(ready, "-ready")
        if not ready:
            self._waiting.update(Content(waiting_words(self.view)))
        for part in (self.block_map, self.block_tables, self.timeline, self.event_log):
            part.refresh_view()

    # --- keys ---------------------------------------------------------------------------------------

    def action_toggle_pause(self) -> None:
        """Pause a running scheduler, let a paused one run."""
        self.post_message(self.PauseToggled(not self.view.paused))

    def action_step_once(self) -> None:
        """One step."""
        self.post_message(self.StepRequested())

    def action_cycle_colors(self) -> None:
        """What the map's colours mean."""
        self.block_map.cycle_colors()

    def action_zoom(self, steps: int) -> None:
        """Larger or smaller cells."""
        self.block_map.grid.zoom_by(steps)

    def action_move_cursor(self, cells: int, rows: int) -> None:
        """Move the map's cursor, wherever the focus is."""
        self.block_map.grid.action_move(cells, rows)

    def action_open_block(self) -> None:
        """The detail of the block under the map's cursor."""
        self.block_map.grid.open_block()

    def action_cycle_kinds(self) -> None:
        """Which events are shown."""
        self.event_log.cycle_kinds()

    def action_filter_events(self) -> None:
        """Only events with a given text."""
        self.event_log.start_filter()

    def on_block_map_block_opened(self, message: BlockMap.BlockOpened) -> None:
        """Show the block's detail over everything."""
        message.stop()
        self.app.push_screen(BlockDetail(self.view, message.block_id))
