"""Lines of columns, one a step, with a cursor that stands on one of them. Knows nothing of what is drawn there."""

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message

from pagedchat.tui.kit.line_view import LineView
from pagedchat.tui.messages import StepChosen, StepOpened
from pagedchat.view.timeline.columns import StepColumn
from pagedchat.view.timeline.window import ColumnWindow

PAGE = 20
"""Columns that a larger step of the cursor goes."""


class ColumnCursor(LineView):
    """Follows the newest step; left and right choose one that stands still."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left,h", "move_column(-1)", "Step before", show=False),
        Binding("right,l", "move_column(1)", "Step after", show=False),
        Binding("shift+left", f"move_column(-{PAGE})", "Steps before", show=False),
        Binding("shift+right", f"move_column({PAGE})", "Steps after", show=False),
        Binding("home", "oldest_column", "Oldest step", show=False),
        Binding("end", "follow", "Newest step", show=False),
        Binding("escape", "unchoose", "Newest step", show=False),
        Binding("enter", "open_step", "Open step", show=False),
        Binding("g", "go_to_step", "Go to step", show=False),
    ]

    class ColumnChosen(Message):
        """The cursor is on another column, or on none."""

    def __init__(self) -> None:
        super().__init__()
        self.window = ColumnWindow()
        self.columns: list[StepColumn] = []
        """The columns in sight, oldest first."""
        self.cursor_at = -1
        """Where among them the cursor is; -1 without one."""

    @property
    def columns_left(self) -> int:
        """Cells before the first column."""
        return 0

    @property
    def chosen(self) -> StepColumn | None:
        """The column under the cursor."""
        return self.columns[self.cursor_at] if 0 <= self.cursor_at < len(self.columns) else None

    # --- keys and mouse -----------------------------------------------------------------------------

    def action_move_column(self, columns: int) -> None:
        """Move the cursor; a step past the newest column follows the engine again."""
        self.window.move(columns)
        self.post_message(self.ColumnChosen())

    def action_oldest_column(self) -> None:
        """The oldest step that is kept."""
        self.window.choose(self.window.first)
        self.post_message(self.ColumnChosen())

    def action_follow(self) -> None:
        """No cursor: the newest step."""
        self.window.cursor = None
        self.post_message(self.ColumnChosen())

    def action_unchoose(self) -> None:
        """As above; Escape means something else where there is no cursor."""
        self.action_follow()

    def action_open_step(self) -> None:
        """The detail of the step under the cursor, else of the newest one."""
        column = self.chosen or (self.columns[-1] if self.columns else None)
        if column is not None and column.step:
            self.post_message(StepOpened(column.step))

    def action_go_to_step(self) -> None:
        """Show the engine as it was after the step under the cursor."""
        if self.chosen is not None:
            self.post_message(StepChosen(self.chosen.step))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys about the cursor's step belong to others while there is none."""
        if action in ("unchoose", "go_to_step"):
            return self.window.cursor is not None
        return super().check_action(action, parameters)

    def on_click(self, event: events.Click) -> None:
        """Choose a step; a second click opens it."""
        offset = event.get_content_offset(self)
        at = offset.x - self.columns_left if offset is not None else -1
        if 0 <= at < len(self.columns):
            self.window.choose(self.window.in_sight.start + at)
            self.post_message(self.ColumnChosen())
            if event.chain == 2:
                self.post_message(StepOpened(self.columns[at].step))
