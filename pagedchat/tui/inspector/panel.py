"""The inspector: pool map, block tables, batching and events of the running engine, in one widget.

It shows an `EngineView` and posts messages; whoever mounts it draws its `parts` in turns, or all of them with
`refresh_view`, and carries the messages to the engine.
"""

from collections.abc import Iterator
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import BindingType
from textual.content import Content
from textual.widget import Widget
from textual.widgets import Static

from pagedchat.tui.actions import bindings
from pagedchat.tui.inspector.events.event_log import EventLog
from pagedchat.tui.inspector.events.event_rows import EventLines
from pagedchat.tui.inspector.goto import Destination, GotoScreen
from pagedchat.tui.inspector.inspector_keys import TIME_ACTIONS, with_alt
from pagedchat.tui.inspector.panels import Panels
from pagedchat.tui.inspector.pool.block_detail import BlockDetail
from pagedchat.tui.inspector.pool.block_map import BlockMap
from pagedchat.tui.inspector.scrub_bar import ScrubBar
from pagedchat.tui.inspector.server.server_panel import ServerPanel
from pagedchat.tui.inspector.tables.block_tables import BlockTables
from pagedchat.tui.inspector.timeline.batch_timeline import BatchTimeline
from pagedchat.tui.inspector.timeline.step_detail import StepDetail
from pagedchat.tui.kit.draw_turns import FIGURES_SECONDS, ScreenPart
from pagedchat.tui.messages import (
    BlockOpened,
    PaceRequested,
    PauseToggled,
    StepChosen,
    StepOpened,
    StepRequested,
)
from pagedchat.view.engine_view import EngineView
from pagedchat.view.sentences.engine_words import waiting_words

PACES = (0.0, 0.5, 0.1)
"""Seconds that a step takes at least: as fast as can be, two steps a second, ten."""


class InspectorPanel(Widget):
    """The panels over the scrub bar, or what the engine is doing while there is nothing to show yet.

    Of a server, which has no blocks to show, it is what that tells.
    """

    DEFAULT_CSS = """
    InspectorPanel {
        height: 1fr;
        width: 1fr;
        & > #inspector-waiting { width: 1fr; height: 1fr; content-align: center middle; color: $text-muted; }
        & > Panels, & > ScrubBar { display: none; }
        &.-ready > #inspector-waiting { display: none; }
        &.-ready > Panels, &.-ready > ScrubBar { display: block; }
        & > ServerPanel { display: none; }
        &.-server > #inspector-waiting { display: none; }
        &.-server > ServerPanel { display: block; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [*bindings(TIME_ACTIONS), *bindings(with_alt(TIME_ACTIONS))]

    def __init__(self, view: EngineView, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.view = view
        self.panels = Panels(view, id="inspector-panels")
        self.scrub_bar = ScrubBar(view)
        self.server_panel = ServerPanel(view)
        self._waiting = Static("", markup=False, id="inspector-waiting")
        self._can_draw = False
        """Whether all parts are mounted: the app may call `refresh_view` before."""

    def compose(self) -> ComposeResult:
        """What stands there without an engine, and what with one."""
        yield self._waiting
        yield self.server_panel
        yield self.panels
        yield self.scrub_bar

    def on_mount(self) -> None:
        """Show what is known already, once it is known where."""
        self._can_draw = True
        self.call_after_refresh(self.refresh_view)

    def on_unmount(self) -> None:
        """Nothing is drawn any more."""
        self._can_draw = False

    def refresh_view(self) -> None:
        """Draw what changed in the engine since the last call."""
        for part in self.parts():
            part.draw()

    def parts(self) -> Iterator[ScreenPart]:
        """The same piece by piece."""
        if self._can_draw:
            yield ScreenPart(self, self._show_whether_ready)
            yield from self.panels.parts()
            yield ScreenPart(self.scrub_bar, self.scrub_bar.refresh_view, FIGURES_SECONDS)

    def _show_whether_ready(self) -> None:
        ready = self.view.mirror is not None
        self.set_class(ready, "-ready")
        self.set_class(self.view.server is not None, "-server")
        if self.view.server is not None:
            self.server_panel.refresh_view()
        elif not ready:
            self._waiting.update(Content(waiting_words(self.view)))

    # --- the parts by name --------------------------------------------------------------------------

    @property
    def block_map(self) -> BlockMap:
        """The pool."""
        return self.panels.block_map

    @property
    def block_tables(self) -> BlockTables:
        """Block tables."""
        return self.panels.block_tables

    @property
    def timeline(self) -> BatchTimeline:
        """Batches."""
        return self.panels.timeline

    @property
    def event_log(self) -> EventLog:
        """Events."""
        return self.panels.event_log

    # --- running and time ---------------------------------------------------------------------------

    def action_toggle_pause(self) -> None:
        """Pause a running scheduler, let a paused one run; in the past, come back first.

        A replay has no present to come back to: there it plays and holds the recording.
        """
        travel = self.view.travel
        if self.view.past is not None and (travel is None or travel.has_live):
            self.post_message(StepChosen(None))
        else:
            self.post_message(PauseToggled())

    def action_step_on(self) -> None:
        """One step of the paused scheduler, or of the recording."""
        if self.view.past is not None:
            self.scrub_bar.action_step_forward()
        else:
            self.post_message(StepRequested())

    def action_step_back(self) -> None:
        """The engine as it was a step earlier."""
        self.scrub_bar.action_step_back()

    def action_next_event(self) -> None:
        """Forward to a step at which something happened to a sequence or a block."""
        self.scrub_bar.action_next_event()

    def action_previous_event(self) -> None:
        """Back to one."""
        self.scrub_bar.action_previous_event()

    def action_first_step(self) -> None:
        """The beginning of the recording."""
        self.scrub_bar.action_first()

    def action_live(self) -> None:
        """The engine as it is."""
        self.post_message(StepChosen(None))

    def action_cycle_pace(self) -> None:
        """Full speed, 2 steps a second, 10."""
        index = PACES.index(self.view.pace) if self.view.pace in PACES else -1
        self.post_message(PaceRequested(PACES[(index + 1) % len(PACES)]))

    # --- going to a block or a step -----------------------------------------------------------------

    def action_ask_goto(self) -> None:
        """Ask for a block or a step."""
        if self.view.mirror is not None:
            self.app.push_screen(GotoScreen(self.view.mirror.num_blocks), self._go_to)

    def _go_to(self, destination: Destination | None) -> None:
        if destination is None:
            return
        if destination.block_id is not None:
            self.block_map.choose(destination.block_id)
            self.panels.action_focus_panel(0)
        elif destination.step is not None:
            self.post_message(StepChosen(destination.step))

    def _leave_step(self, step: int | None) -> None:
        if step is not None:
            self.post_message(StepChosen(step))

    def on_block_opened(self, message: BlockOpened) -> None:
        """Show the block's detail over everything."""
        message.stop()
        self.app.push_screen(BlockDetail(self.view, message.block_id))

    def on_step_opened(self, message: StepOpened) -> None:
        """Show the step's detail over everything."""
        message.stop()
        self.app.push_screen(StepDetail(self.view, message.step), self._leave_step)

    def on_event_lines_line_chosen(self, message: EventLines.LineChosen) -> None:
        """The blocks that the line is about are marked in every panel."""
        message.stop()
        line = self.event_log.lines.chosen
        self.view.highlighted = frozenset(line.block_ids) if line is not None else frozenset()
        self.refresh_view()
