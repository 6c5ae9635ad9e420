"""The inspector's panels side by side, one below the other, or one of them alone; hidden ones cost nothing."""

from collections.abc import Iterator
from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Container
from textual.widget import Widget

from pagedchat.tui.actions import bindings
from pagedchat.tui.inspector.events.event_log import EventLog
from pagedchat.tui.inspector.groups.group_panel import GroupPanel
from pagedchat.tui.inspector.inspector_keys import PANEL_ACTIONS, with_alt
from pagedchat.tui.inspector.pool.block_map import BlockMap
from pagedchat.tui.inspector.sharing.sharing_panel import SharingPanel
from pagedchat.tui.inspector.tables.block_tables import BlockTables
from pagedchat.tui.inspector.timeline.batch_timeline import BatchTimeline
from pagedchat.tui.kit.draw_turns import ScreenPart
from pagedchat.tui.kit.line_view import LineView
from pagedchat.view.engine_view import EngineView

TWO_COLUMNS = 76
"""From this width on the panels stand two by two."""
ALL_FOUR = 27
"""Rows below which a single column shows the map and the tables only."""

SecondPanel = BlockTables | SharingPanel | GroupPanel
Panel = BlockMap | SecondPanel | BatchTimeline | EventLog


class Panels(Container):
    """Four places; tables, sharing and beams take turns in the second one."""

    DEFAULT_CSS = """
    Panels {
        layout: grid;
        grid-size: 2;
        grid-columns: 11fr 10fr;
        grid-rows: 1fr;
        height: 1fr;
        &.-single { grid-size: 1; grid-columns: 1fr; }
        & BlockMap, & BlockTables, & SharingPanel, & GroupPanel, & BatchTimeline, & EventLog {
            border: round $foreground 25%;
            border-title-color: $text-muted;
            border-subtitle-color: $foreground 40%;
            padding: 0 1;
            &:focus-within { border: round $primary; border-title-color: $text-primary; }
        }
        &.-ascii BlockMap, &.-ascii BlockTables, &.-ascii SharingPanel, &.-ascii GroupPanel,
        &.-ascii BatchTimeline, &.-ascii EventLog {
            border: ascii $foreground 25%;
            &:focus-within { border: ascii $primary; }
        }
    }
    """

    BINDINGS: ClassVar[list[BindingType]] = [
        *bindings(PANEL_ACTIONS),
        *bindings(with_alt(PANEL_ACTIONS)),
        Binding("escape", "leave_full", "All panels", show=False),
    ]

    def __init__(self, view: EngineView, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.block_map = BlockMap(view)
        self.block_tables = BlockTables(view)
        self.sharing = SharingPanel(view)
        self.groups = GroupPanel(view)
        self.timeline = BatchTimeline(view)
        self.event_log = EventLog(view)
        self.every: tuple[Panel, ...] = (
            self.block_map, self.block_tables, self.sharing, self.groups, self.timeline, self.event_log,
        )  # fmt: skip
        self.second: SecondPanel = self.block_tables
        """What stands in the second place."""
        self.alone: Panel | None = None
        """The panel that has all the room, if one has."""

    def compose(self) -> ComposeResult:
        """All of them; which ones are seen is decided afterwards."""
        yield from self.every

    def on_mount(self) -> None:
        """Sharing waits until it is asked for."""
        self.set_class(bool(getattr(self.app, "ascii", False)), "-ascii")
        self._arrange()

    def on_resize(self) -> None:
        """Two by two, or one below the other."""
        self._arrange()

    def refresh_view(self) -> None:
        """Draw what changed in the panels that are seen."""
        for part in self.parts():
            part.draw()

    def parts(self) -> Iterator[ScreenPart]:
        """The same piece by piece."""
        return (ScreenPart(panel, panel.refresh_view) for panel in self.every if panel.display)

    # --- which panels are seen ----------------------------------------------------------------------

    @property
    def places(self) -> tuple[Panel, ...]:
        """The panels in their order."""
        return self.block_map, self.second, self.timeline, self.event_log

    def _arrange(self) -> None:
        """Show what there is room for; a panel that was hidden takes in what happened meanwhile."""
        # Not `size`: asked before the first layout, Textual works one out and then forgets to tell the neighbours.
        width, height = self.outer_size or self.app.size
        stacked, short = width < TWO_COLUMNS, height < ALL_FOUR
        shown = self.places[:2] if stacked and short else self.places
        if self.alone is not None:
            shown = (self.alone,)
        for panel in self.every:
            panel.display = panel in shown
        self.event_log.lines.show_whole(self.alone is self.event_log)
        self.set_class(stacked or self.alone is not None, "-single")
        self.call_after_refresh(self.refresh_view)

    def action_toggle_sharing(self) -> None:
        """Tables, or what is shared, in the same place."""
        self._toggle_second(self.sharing)

    def action_toggle_groups(self) -> None:
        """Tables, or the beams of a search, in the same place."""
        self._toggle_second(self.groups)

    def _toggle_second(self, panel: SecondPanel) -> None:
        before = self.second
        had_focus = self.focused_panel() is before
        self.second = self.block_tables if before is panel else panel
        if self.alone is before:
            self.alone = self.second
        self._arrange()
        if had_focus:
            self.give_focus(self.second)

    def action_toggle_full(self) -> None:
        """Only the panel with the focus, or all again."""
        self.alone = None if self.alone is not None else self.focused_panel() or self.block_map
        self._arrange()

    # --- focus --------------------------------------------------------------------------------------

    def focused_panel(self) -> Panel | None:
        """The panel with the focus."""
        focused = self.screen.focused
        around = set(focused.ancestors_with_self) if focused is not None else set()
        return next((panel for panel in self.every if panel in around), None)

    def action_focus_panel(self, place: int) -> None:
        """Give the focus to the panel in one of the four places; if one is alone, that one is from now on."""
        panel = self.places[place]
        if self.alone is not None:
            self.alone = panel
            self._arrange()
        if panel.display:
            self.give_focus(panel)

    def give_focus(self, panel: Panel) -> None:
        """Give the focus to the first thing in the panel that takes it; at once: the next key may be on its way."""
        for widget in panel.walk_children(Widget):
            if widget.focusable:
                self.screen.set_focus(widget)
                return

    # --- panels -------------------------------------------------------------------------------------

    def action_cycle_colors(self) -> None:
        """What the map's colours mean."""
        self.block_map.cycle_colors()

    def action_zoom(self, steps: int) -> None:
        """Larger or smaller cells."""
        self.block_map.grid.zoom_by(steps)

    def action_toggle_lens(self) -> None:
        """What is in use as large as can be, or all of the pool."""
        self.block_map.toggle_lens()

    def action_move_cursor(self, cells: int, rows: int) -> None:
        """Move the map's cursor, wherever the focus is."""
        self.block_map.grid.action_move(cells, rows)

    def action_open_block(self) -> None:
        """The detail of the block under the map's cursor."""
        self.block_map.grid.open_block()

    def action_toggle_token_text(self) -> None:
        """What stands in the tables' blocks."""
        self.block_tables.toggle_token_text()

    def action_cycle_kinds(self) -> None:
        """Which events are shown."""
        self.event_log.cycle_kinds()

    def action_choose_kinds(self) -> None:
        """Each kind of events by itself."""
        self.event_log.choose_kinds()

    def action_filter_events(self) -> None:
        """Only events with a given text."""
        self.event_log.start_filter()

    def action_leave_full(self) -> None:
        """All panels again."""
        self.action_toggle_full()

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Escape means something else while all panels are seen."""
        if action == "leave_full":
            return self.alone is not None
        return super().check_action(action, parameters)

    def action_copy_panel(self) -> None:
        """What the panel with the focus shows."""
        panel = self.focused_panel() or self.block_map
        self.app.copy_to_clipboard(panel_text(panel))
        self.app.notify("Copied what the panel shows.", timeout=3)


def panel_text(panel: Widget) -> str:
    """The lines that a panel shows, as plain text."""
    return "\n".join(line for view in panel.query(LineView) for line in _drawn(view)).rstrip("\n")


def _drawn(view: LineView) -> Iterator[str]:
    for y in range(view.size.height):
        yield view.render_line(y).text.rstrip()
