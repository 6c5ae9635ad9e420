"""The batching panel: marks of every sequence over the last steps, and under them one step looked at closely.

The step told in the foot is the one under the cursor, else the newest.
"""

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content

from pagedchat.tui.inspector.timeline.column_cursor import ColumnCursor
from pagedchat.tui.inspector.timeline.phase_bar import PhaseBar
from pagedchat.tui.inspector.timeline.timeline_foot import LINES, TimelineFoot
from pagedchat.tui.inspector.timeline.timeline_lines import TimelineLines
from pagedchat.tui.kit.quiet import QuietBorder
from pagedchat.view.engine_view import EngineView
from pagedchat.view.timeline.columns import StepColumn

MIN_ROWS = 2
"""Sequences that stay in sight however little room there is."""
ROWS = 6
"""Sequences that the foot leaves room for."""
PHASE_LINES = 2

PRESENT_KEYS = "← → step · Enter opens it · g goes there"
PAST_KEYS = "space back to the present · , . step · [ ] event"
REPLAY_KEYS = "space plays or holds · , . step · [ ] event"
"""A recording has no present."""


class BatchTimeline(QuietBorder, Vertical):
    """Continuous batching as it happens."""

    DEFAULT_CSS = """
    BatchTimeline { height: 1fr; }
    """

    def __init__(self, view: EngineView, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.view = view
        self.lines = TimelineLines(view)
        self.foot = TimelineFoot(view, self.lines)
        self.phases = PhaseBar()
        self._mirror: object = None
        self._seen: object = None
        self._title = ""

    def compose(self) -> ComposeResult:
        """Marks above; figures, the step in words, its phases below."""
        yield self.lines
        yield self.foot
        yield self.phases

    def on_resize(self) -> None:
        """More or fewer columns."""
        self.draw_again()

    def on_column_cursor_column_chosen(self, message: ColumnCursor.ColumnChosen) -> None:
        """Another step is told."""
        message.stop()
        self.draw_again()

    def notify_style_update(self) -> None:
        """Another theme: the foot's colours too."""
        super().notify_style_update()
        self._seen = None

    def draw_again(self) -> None:
        """Draw although the engine did nothing."""
        self._seen = None
        self.refresh_view()

    def refresh_view(self) -> None:
        """Follow the engine."""
        mirror, view = self.view.mirror, self.view
        if mirror is None or not self.is_mounted:
            return
        seen = (mirror.num_reports, view.columns.num_columns, view.paused, dict(view.labels), self.size)
        if mirror is self._mirror and seen == self._seen:
            return
        self._mirror, self._seen = mirror, seen
        self.lines.refresh_view(mirror)
        column = self.told
        room = self._room(len(mirror.sequences))
        self.phases.display = room > PHASE_LINES
        self.phases.show_timings(column.report.timings if column and column.report else None)
        self.foot.refresh_view(column, room - PHASE_LINES if self.phases.display else room)
        self._show_title()

    @property
    def told(self) -> StepColumn | None:
        """The step under the cursor, else the newest one."""
        if self.lines.chosen is not None:
            return self.lines.chosen
        return next((column for column in reversed(self.lines.columns) if column.report is not None), None)

    def _room(self, num_sequences: int) -> int:
        """Lines for the foot: all that sequences leave, and half of the panel where they would take more."""
        height = self.content_size.height
        wanted = max(MIN_ROWS, min(num_sequences, ROWS))
        return min(len(LINES) + PHASE_LINES, max(height - wanted, height // 2))

    def _show_title(self) -> None:
        title = f"Batching · a column = a step · {self._state()}"
        if title != self._title:
            self._title = title
            self.set_title(Content(self.lines.sign(title)))
            self.set_subtitle(Content(self.lines.sign(self._keys())))

    def _keys(self) -> str:
        if self.view.past is None:
            return PRESENT_KEYS
        return PAST_KEYS if self.view.travel is None or self.view.travel.has_live else REPLAY_KEYS

    def _state(self) -> str:
        chosen = self.lines.chosen
        if chosen is not None:
            return f"► step {chosen.step}"
        if self.view.past is not None:
            return f"◄ past at {self.view.step}"
        return f"{'║ paused' if self.view.paused else '► live'} at {self.view.step}"
