"""The block tables panel: which physical blocks each sequence has, in order, and what sharing saves."""

from collections.abc import Iterator
from typing import ClassVar

from rich.cells import cell_len
from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.color import Color
from textual.containers import Vertical
from textual.strip import Strip

from pagedchat.engine.mirror import CacheMirror
from pagedchat.tui.engine_view import EngineView
from pagedchat.tui.widgets.line_view import LineBar, LineView
from pagedchat.tui.widgets.owner_palette import owner_color, owner_colors, owner_number
from pagedchat.tui.widgets.table_rows import Entry, Row, count_tables, elide, fill_words, table_entries
from pagedchat.tui.words import fit, short_label

MAX_LABEL = 14
STATUS_GLYPHS = {"waiting": "◌", "running": "●", "swapped": "⇣", "parked": "○"}


class TableLines(LineView):
    """A line a sequence."""

    DEFAULT_CSS = """
    TableLines {
        & > .table-lines--own { color: $foreground 80%; }
        & > .table-lines--shared { color: $foreground; text-style: bold; }
        & > .table-lines--copied { color: $text-warning; text-style: bold; }
        & > .table-lines--host { color: $text-secondary; text-style: italic; }
        & > .table-lines--dim { color: $foreground 50%; }
        & > .table-lines--waiting { color: $text-warning; }
        & > .table-lines--running { color: $text-success; }
        & > .table-lines--swapped { color: $text-secondary; }
        & > .table-lines--parked { color: $foreground 40%; }
        & > .table-lines--wrong { color: $text-error; text-style: bold; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"table-lines--{name}"
        for name in (
            "own", "shared", "copied", "host", "dim", "waiting", "running", "swapped", "parked", "wrong",
        )
    }  # fmt: skip

    def __init__(self, view: EngineView) -> None:
        super().__init__()
        self.view = view
        self._mirror: CacheMirror | None = None
        self._order: list[int] = []
        """Sequence ids, top to bottom."""
        self._rows: dict[int, Row | None] = {}
        """The lines in sight, as they were last drawn."""
        self._colors: list[Color] = []
        self._label_width = 0

    def refresh_view(self, mirror: CacheMirror) -> None:
        """Draw the lines in sight that look different now; the others are made when they come into sight."""
        names = {seq_id: self.view.name(seq_id) for seq_id in mirror.sequences}
        order = sorted(names, key=lambda seq_id: (owner_number(seq_id, names[seq_id]), seq_id))
        label_width = min(MAX_LABEL, max((cell_len(name) for name in names.values()), default=0))
        if (mirror, order, label_width) != (self._mirror, self._order, self._label_width):
            self._mirror, self._order, self._label_width = mirror, order, label_width
            self._rows.clear()
            self.set_lines(len(order))
            return
        top = self.scroll_offset.y
        rows = {index: self._row(index) for index in range(top, min(top + self.size.height, self.num_lines))}
        before, self._rows = self._rows, rows
        hidden = [index for index in range(self.num_lines) if index not in rows]
        self.lines_changed([*hidden, *(index for index, row in rows.items() if row != before.get(index))])

    def _row(self, index: int) -> Row | None:
        sequence = self._mirror.sequences.get(self._order[index]) if self._mirror else None
        if self._mirror is None or sequence is None:
            return None
        name = self.view.name(sequence.seq_id)
        entries = table_entries(self._mirror, sequence, self.view.fresh_copies())
        number = owner_number(sequence.seq_id, name)
        return Row(name, number, sequence.status, entries, fill_words(self._mirror, sequence))

    def build_line(self, index: int) -> Strip:
        """Label, status, ids, fill."""
        row = self._row(index)
        if row is None:
            return Strip.blank(0)
        name, number, status, entries, fill = row
        if not self._colors:
            self._colors = owner_colors(self.app.current_theme)
        label = Style.from_color(owner_color(self._colors, number).rich_color)
        room = self.size.width - self._label_width - 4 - (len(fill) + 1 if fill else 0)
        segments = [
            Segment(fit(short_label(name, self._label_width), self._label_width), label),
            Segment(f" {STATUS_GLYPHS[status]} ", self.style_of(f"table-lines--{status}")),
            *self._entry_segments(elide(entries, room)),
            Segment(f" {fill}", self.style_of("table-lines--dim")),
        ]
        return Strip(segments)

    def _entry_segments(self, entries: list[Entry]) -> Iterator[Segment]:
        if not entries:
            yield Segment("no blocks", self.style_of("table-lines--dim"))
        for index, entry in enumerate(entries):
            yield Segment(f" {entry.text}" if index else entry.text, self.style_of(f"table-lines--{entry.kind}"))

    def notify_style_update(self) -> None:
        """Another theme: other colours."""
        super().notify_style_update()
        self._colors = []

    def on_resize(self) -> None:
        """Other elisions."""
        self.set_lines(self.num_lines)


class BlockTables(Vertical):
    """All block tables and their sum."""

    DEFAULT_CSS = """
    BlockTables { height: 1fr; }
    """

    def __init__(self, view: EngineView, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.view = view
        self.lines = TableLines(view)
        self._totals = LineBar()
        self._seen: object = None

    def compose(self) -> ComposeResult:
        """Tables above, totals below."""
        yield self.lines
        yield self._totals

    def on_mount(self) -> None:
        """Say what is seen."""
        self.border_title = "Block tables"

    def notify_style_update(self) -> None:
        """Another theme: the sum's colours too."""
        super().notify_style_update()
        self._seen = None

    def refresh_view(self) -> None:
        """Follow the engine."""
        mirror = self.view.mirror
        if mirror is None:
            return
        seen = (mirror, mirror.num_reports, dict(self.view.labels))
        if seen == self._seen:
            return
        self._seen = seen
        self.lines.refresh_view(mirror)
        self._totals.show([self._totals_strip(mirror)])

    def _totals_strip(self, mirror: CacheMirror) -> Strip:
        totals = count_tables(mirror)
        if totals.agrees or mirror.last is None:
            light = Segment("✓ ", self.lines.style_of("table-lines--running"))
            return Strip([light, Segment(totals.text, self.lines.style_of("table-lines--dim"))])
        pool = mirror.last.pool
        return Strip(
            [
                Segment(
                    f"✗ {totals.text}   but the engine counts {pool.table_entries} entries, {pool.in_use} used",
                    self.lines.style_of("table-lines--wrong"),
                )
            ]
        )
