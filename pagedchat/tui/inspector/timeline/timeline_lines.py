"""The marks of the batching timeline: a line a sequence, a column a step, and a cursor that stands on a step."""

from collections.abc import Callable, Iterator
from itertools import groupby, islice
from typing import ClassVar, NamedTuple

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.color import Color
from textual.strip import Strip

from pagedchat.engine.mirror import CacheMirror
from pagedchat.tui.inspector.timeline.column_cursor import ColumnCursor
from pagedchat.tui.kit.owner_colors import owner_color, owner_colors
from pagedchat.view.engine_view import EngineView
from pagedchat.view.owners import owner_number
from pagedchat.view.sentences.words import fit, short_label, to_ascii
from pagedchat.view.timeline.columns import (
    DECODE,
    DRAFTED,
    FORK,
    LAST_PREFILL,
    PAUSE,
    PREEMPTED,
    PREFILL,
    RECOMPUTE,
    REJECTED,
    SWAPPED,
    WAITING,
)
from pagedchat.view.timeline.window import ColumnWindow

MAX_LABEL = 14
MIN_LABEL = 8
"""`tok/step` must fit."""

MARK_STYLES = {
    PREFILL: "prefill", LAST_PREFILL: "prefill", DECODE: "decode", DRAFTED: "decode", REJECTED: "waiting",
    FORK: "fork", WAITING: "waiting", PREEMPTED: "preempted", RECOMPUTE: "recompute", SWAPPED: "swapped",
    PAUSE: "dim", " ": "dim",
}  # fmt: skip


class _Row(NamedTuple):
    """A sequence as it is drawn."""

    seq_id: int
    name: str
    marks: str


class TimelineLines(ColumnCursor):
    """Follows the newest step; left and right choose one that stands still."""

    DEFAULT_CSS = """
    TimelineLines {
        scrollbar-gutter: stable;
        & > .timeline-lines--prefill { color: $text-primary; text-style: bold; }
        & > .timeline-lines--decode { color: $text-success; }
        & > .timeline-lines--fork { color: $text-accent; text-style: bold; }
        & > .timeline-lines--waiting { color: $foreground 40%; }
        & > .timeline-lines--preempted { color: $text-error; text-style: bold; }
        & > .timeline-lines--recompute { color: $text-warning; text-style: bold; }
        & > .timeline-lines--swapped { color: $text-secondary; }
        & > .timeline-lines--dim { color: $foreground 50%; }
        & > .timeline-lines--cursor { color: $foreground; text-style: reverse; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"timeline-lines--{name}"
        for name in (
            "prefill", "decode", "fork", "waiting", "preempted", "recompute", "swapped", "dim", "cursor",
        )
    }  # fmt: skip

    def __init__(self, view: EngineView) -> None:
        super().__init__()
        self.view = view
        self.label_width = MIN_LABEL
        self._rows: list[_Row] = []
        self._colors: list[Color] = []
        self._mirror: CacheMirror | None = None

    # --- following the engine -----------------------------------------------------------------------

    def refresh_view(self, mirror: CacheMirror) -> None:
        """Draw the lines that look different now: while steps come, those of all busy sequences."""
        if mirror is not self._mirror:
            self._mirror, self.window = mirror, ColumnWindow()
        label_width, cursor_at = self.label_width, self.cursor_at
        names = {seq_id: self.view.name(seq_id) for seq_id in mirror.sequences}
        widest = max((cell_len(name) for name in names.values()), default=0)
        self.label_width = min(MAX_LABEL, max(MIN_LABEL, widest))
        self._look()
        before, self._rows = self._rows, self._make_rows(names)
        if len(before) != len(self._rows) or label_width != self.label_width or cursor_at != self.cursor_at:
            self.set_lines(len(self._rows))
        else:
            self.lines_changed(index for index, row in enumerate(self._rows) if row != before[index])

    def _look(self) -> None:
        """Which columns are in sight."""
        steps = self.view.columns
        kept, end = len(steps.columns), steps.num_columns
        room = max(0, self.size.width - self.columns_left)
        sight = self.window.fit(end - kept, end, room)
        self.columns = list(islice(steps.columns, sight.start - (end - kept), sight.stop - (end - kept)))
        self.cursor_at = -1 if self.window.cursor is None else self.window.cursor - sight.start

    def _make_rows(self, names: dict[int, str]) -> list[_Row]:
        ordered = sorted(names.items(), key=lambda item: (owner_number(*item), item[0]))
        marks = [column.marks for column in self.columns]
        paused = [index for index, column in enumerate(self.columns) if column.paused]
        return [_Row(seq_id, name, _mark_line(marks, seq_id, paused)) for seq_id, name in ordered]

    @property
    def columns_left(self) -> int:
        """The labels' cells."""
        return self.label_width + 1

    # --- drawing ------------------------------------------------------------------------------------

    def build_line(self, index: int) -> Strip:
        """Label and marks."""
        seq_id, name, marks = self._rows[index]
        if not self._colors:
            self._colors = owner_colors(self.app.current_theme)
        label = Style.from_color(owner_color(self._colors, owner_number(seq_id, name)).rich_color)
        head = Segment(self.sign(fit(short_label(name, self.label_width), self.label_width)) + " ", label)
        return Strip([head, *self.with_cursor(marks, self._mark_segments)])

    def with_cursor(self, text: str, segments: Callable[[str], Iterator[Segment]]) -> Iterator[Segment]:
        """One cell a column, the cursor's one reversed; `segments` colours the others."""
        at = self.cursor_at
        if not 0 <= at < len(text):
            yield from segments(text)
            return
        yield from segments(text[:at])
        yield Segment(self.sign(text[at]), self.mark_style("cursor"))
        yield from segments(text[at + 1 :])

    def _mark_segments(self, marks: str) -> Iterator[Segment]:
        for mark, run in groupby(marks):
            yield Segment(self.sign(mark) * sum(1 for _ in run), self.mark_style(MARK_STYLES[mark]))

    def sign(self, text: str) -> str:
        """Our signs as this terminal can show them."""
        return to_ascii(text) if getattr(self.app, "ascii", False) else text

    def mark_style(self, name: str) -> Style:
        """One of the component styles."""
        return self.style_of(f"timeline-lines--{name}")

    def notify_style_update(self) -> None:
        """Another theme: other colours."""
        super().notify_style_update()
        self._colors = []


def _mark_line(marks: list[dict[int, str]], seq_id: int, paused: list[int]) -> str:
    line = [column.get(seq_id, " ") for column in marks]
    for index in paused:
        line[index] = PAUSE
    return "".join(line)
