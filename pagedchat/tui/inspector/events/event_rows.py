"""The lines of the events panel, newest at the bottom; a cursor on a line leads to its block or its step.

A line that is too long ends with an ellipsis; where the panel has all the room it goes on in the row below.
"""

from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip

from pagedchat.engine.mirror import CacheMirror
from pagedchat.tui.kit.line_view import LineView
from pagedchat.tui.messages import BlockOpened, StepOpened
from pagedchat.view.chats.wrap import wrap
from pagedchat.view.engine_view import EngineView
from pagedchat.view.sentences.event_filter import EventFilter
from pagedchat.view.sentences.event_lines import GROUPS, EventLine
from pagedchat.view.sentences.line_rows import LineRows
from pagedchat.view.sentences.narrator import MAX_LINES
from pagedchat.view.sentences.words import fit, to_ascii

_KIND_WIDTH = max(map(len, GROUPS))
_STEP_WIDTH = 5
_HEAD = _STEP_WIDTH + _KIND_WIDTH + 2
"""Cells before the words."""
_STYLES = {
    "COW": "copied", "FORK": "fork", "GROUP": "fork", "HIT": "hit", "MISS": "warning", "WAIT": "warning",
    "PREEMPT": "alarm", "RESUME": "hit", "LOST": "alarm",
    "EVICT": "warning", "LIMIT": "warning", "PIN": "fork", "UNPIN": "fork", "SWAP": "swap", "STEP": "dim",
    "FREE": "dim", "PARK": "dim", "CLOSE": "dim",
}  # fmt: skip


class EventLines(LineView):
    """The lines that pass the filter; follows the newest unless somebody reads further up or has chosen a line."""

    DEFAULT_CSS = """
    EventLines {
        & > .event-lines--dim { color: $foreground 50%; }
        & > .event-lines--plain { color: $foreground 85%; }
        & > .event-lines--copied { color: $text-warning; text-style: bold; }
        & > .event-lines--fork { color: $text-accent; text-style: bold; }
        & > .event-lines--hit { color: $text-primary; text-style: bold; }
        & > .event-lines--alarm { color: $text-error; text-style: bold; }
        & > .event-lines--warning { color: $text-warning; }
        & > .event-lines--swap { color: $text-secondary; text-style: bold; }
        & > .event-lines--cursor { color: $foreground; text-style: reverse; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"event-lines--{name}"
        for name in ("dim", "plain", "copied", "fork", "hit", "alarm", "warning", "swap", "cursor")
    }
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up,k", "move_line(-1)", "Line above", show=False),
        Binding("down,j", "move_line(1)", "Line below", show=False),
        Binding("end", "follow", "Newest line", show=False),
        Binding("escape", "unchoose", "Newest line", show=False),
        Binding("enter", "open", "Open block or step", show=False),
        Binding("b", "open_block", "Open block", show=False),
        Binding("s", "open_step", "Open step", show=False),
    ]

    class LineChosen(Message):
        """The cursor is on another line, or on none."""

    def __init__(self, view: EngineView) -> None:
        super().__init__()
        self.view = view
        self.shown: list[EventLine] = []
        """The lines that pass."""
        self.filter = EventFilter()
        self.cursor: int | None = None
        """Index into `shown`; None follows the newest line."""
        self.whole = False
        """Whether long lines go on in the row below."""
        self._rows = LineRows()
        self._room = 0
        """Cells for the words, when the rows were laid out; a line may be drawn in a new width before that. The
        scroll bar's column is left free, whether it is there already or not."""
        self._at_end = True
        """Whether the newest line was in sight when somebody last scrolled."""
        self._mirror: CacheMirror | None = None
        self._num_seen = 0

    # --- following the engine -----------------------------------------------------------------------

    def refresh_view(self) -> None:
        """Take in the lines told since the last call."""
        view = self.view
        if view.mirror is not self._mirror:
            self.filter_again()
            return
        count = view.num_lines - self._num_seen
        if not count:
            return
        self._num_seen = view.num_lines
        new = [line for line in view.recent_events(count) if self.filter.passes(line)]
        if new:
            self._append(new)

    def filter_again(self) -> None:
        """Another filter, engine or moment: choose from all lines that are kept."""
        self._mirror, self._num_seen = self.view.mirror, self.view.num_lines
        self.shown = [line for line in self.view.lines if self.filter.passes(line)]
        self._choose(None)
        self._lay_out()
        self.call_after_refresh(self.scroll_end, animate=False, immediate=True)

    def show_whole(self, whole: bool) -> None:
        """Have long lines go on in the row below, or end with an ellipsis."""
        if whole != self.whole:
            self.whole = whole
            self._lay_out()

    def _lay_out(self) -> None:
        self._room = max(8, self.size.width - _HEAD - self.styles.scrollbar_size_vertical)
        self._rows = LineRows(map(self._height, self.shown))
        self.set_lines(len(self._rows))

    def _height(self, line: EventLine) -> int:
        return len(self._parts(line))

    def _parts(self, line: EventLine) -> list[str]:
        """The words, as they stand in the line's rows."""
        text, room = line.text, max(8, self._room)
        if cell_len(text) <= room:
            return [self._plain(text)]
        parts = [row.text for row in wrap(text, room)] if self.whole else [fit(text, room)]
        return [self._plain(part) for part in parts]

    def _plain(self, text: str) -> str:
        return to_ascii(text) if getattr(self.app, "ascii", False) else text

    def _append(self, new: list[EventLine]) -> None:
        self.shown += new
        excess = max(0, len(self.shown) - MAX_LINES)
        del self.shown[:excess]
        added = self._rows.add(map(self._height, new))
        dropped = self._rows.drop(excess)
        if self.cursor is not None:
            self.cursor = max(0, self.cursor - excess)
        if excess:
            self.set_lines(len(self._rows))
        else:
            self.add_lines(added)
        if self._at_end and self.cursor is None:
            self.scroll_end(animate=False, immediate=True)
        elif excess:
            self.scroll_to(y=self.scroll_offset.y - dropped, animate=False, immediate=True)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Note whether the newest line is in sight."""
        super().watch_scroll_y(old_value, new_value)
        self._at_end = self.is_vertical_scroll_end

    def on_resize(self) -> None:
        """More or less room: the newest line stays in sight."""
        self._lay_out()
        if self._at_end and self.cursor is None:
            self.scroll_end(animate=False, immediate=True)

    # --- drawing ------------------------------------------------------------------------------------

    def build_line(self, index: int) -> Strip:
        """Step, kind, words; in a row below, only more of the words."""
        place, part = self._rows.at(index)
        line = self.shown[place]
        dim, style = self._style("dim"), self._style(_STYLES.get(line.kind, "plain"))
        text, plain = self._parts(line)[part], dim if style is dim else self._style("plain")
        if place == self.cursor:
            dim = style = plain = self._style("cursor")
            text = text.ljust(self.size.width)
        if part:
            return Strip([Segment(" " * _HEAD, dim), Segment(text, plain)])
        head = [Segment(f"{line.step:>{_STEP_WIDTH}} ", dim), Segment(f"{line.kind:<{_KIND_WIDTH}} ", style)]
        return Strip([*head, Segment(text, plain)])

    def _style(self, name: str) -> Style:
        return self.style_of(f"event-lines--{name}")

    # --- keys and mouse -----------------------------------------------------------------------------

    @property
    def chosen(self) -> EventLine | None:
        """The line under the cursor."""
        return self.shown[self.cursor] if self.cursor is not None and self.cursor < len(self.shown) else None

    def _choose(self, index: int | None) -> None:
        """Put the cursor on a line, or take it away."""
        if index == self.cursor:
            return
        changed = [row for line in (self.cursor, index) if line is not None for row in self._rows.rows_of(line)]
        self.cursor = index
        self.lines_changed(changed)
        self.post_message(self.LineChosen())

    def action_move_line(self, lines: int) -> None:
        """Move the cursor, which begins on the newest line, and keep it in sight."""
        if not self.shown:
            return
        start = len(self.shown) if self.cursor is None else self.cursor
        self._choose(max(0, min(start + lines, len(self.shown) - 1)))
        self._show_cursor()

    def _show_cursor(self) -> None:
        rows, top, height = self._rows.rows_of(self.cursor or 0), self.scroll_offset.y, self.size.height
        if rows.start < top:
            self.scroll_to(y=rows.start, animate=False, immediate=True)
        elif rows.stop > top + height:
            self.scroll_to(y=rows.stop - height, animate=False, immediate=True)

    def action_follow(self) -> None:
        """No cursor, the newest line in sight."""
        self._choose(None)
        self.scroll_end(animate=False, immediate=True)

    def action_unchoose(self) -> None:
        """As above; Escape means something else where there is no cursor."""
        self.action_follow()

    def action_open(self) -> None:
        """The line's block, else its step."""
        line = self.chosen
        if line is not None and line.block_ids:
            self.action_open_block()
        elif line is not None:
            self.action_open_step()

    def action_open_block(self) -> None:
        """The detail of the first block that the line is about."""
        if self.chosen is not None and self.chosen.block_ids:
            self.post_message(BlockOpened(self.chosen.block_ids[0]))

    def action_open_step(self) -> None:
        """The detail of the line's step."""
        if self.chosen is not None:
            self.post_message(StepOpened(self.chosen.step))

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Keys about the chosen line belong to others while there is none."""
        if action in ("unchoose", "open", "open_block", "open_step"):
            return self.cursor is not None
        return super().check_action(action, parameters)

    def on_click(self, event: events.Click) -> None:
        """Choose a line; a second click opens it."""
        offset = event.get_content_offset(self)
        row = offset.y + self.scroll_offset.y if offset is not None else -1
        if 0 <= row < len(self._rows):
            self._choose(self._rows.at(row)[0])
            if event.chain == 2:
                self.action_open()
