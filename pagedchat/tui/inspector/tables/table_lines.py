"""The lines of the block tables. Only what looks different is drawn again."""

from collections.abc import Sequence
from typing import ClassVar

from rich.cells import cell_len
from rich.style import Style
from textual.color import Color
from textual.strip import Strip

from pagedchat.engine.mirror import CacheMirror, MirrorSequence
from pagedchat.tui.inspector.tables.table_cursor import TableCursor
from pagedchat.tui.inspector.tables.table_paint import STATUS_CELLS, TablePaint
from pagedchat.tui.kit.owner_colors import owner_color, owner_colors
from pagedchat.view.blocks.table_layout import TableLayout
from pagedchat.view.blocks.table_rows import (
    BlockRow,
    Marks,
    Row,
    block_row,
    fill_words,
    table_entries,
    table_length,
)
from pagedchat.view.engine_view import EngineView
from pagedchat.view.owners import owner_number
from pagedchat.view.sentences.words import count

MIN_LABEL, MAX_LABEL = 6, 14

_NAMES = (
    "own", "shared", "copied", "host", "dim", "text", "waiting", "running", "swapped", "parked", "wrong", "marked",
    "cursor",
)  # fmt: skip


class TableLines(TableCursor):
    """A line a sequence; with token text a line a block as well."""

    DEFAULT_CSS = """
    TableLines {
        & > .table-lines--own { color: $foreground 80%; }
        & > .table-lines--shared { color: $foreground; text-style: bold; }
        & > .table-lines--copied { color: $text-warning; text-style: bold; }
        & > .table-lines--host { color: $text-secondary; text-style: italic; }
        & > .table-lines--dim { color: $foreground 50%; }
        & > .table-lines--text { color: $foreground 90%; }
        & > .table-lines--waiting { color: $text-warning; }
        & > .table-lines--running { color: $text-success; }
        & > .table-lines--swapped { color: $text-secondary; }
        & > .table-lines--parked { color: $foreground 40%; }
        & > .table-lines--wrong { color: $text-error; text-style: bold; }
        & > .table-lines--marked { color: $accent; text-style: bold underline; }
        & > .table-lines--cursor { color: $accent; text-style: bold reverse; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"table-lines--{name}" for name in _NAMES}

    def __init__(self, view: EngineView) -> None:
        super().__init__()
        self.view = view
        self.by_block = False
        """Whether each block has a line with its text."""
        self._mirror: CacheMirror | None = None
        self._rows: dict[int, Row | BlockRow | None] = {}
        """The lines in sight, as they were last drawn."""
        self._colors: list[Color] = []
        self._marks = Marks(set(), frozenset())
        self._label_width = self._width = 0

    # --- following the engine -----------------------------------------------------------------------

    def refresh_view(self, mirror: CacheMirror) -> None:
        """Draw the lines in sight that look different now; the others are made when they come into sight."""
        names = {seq_id: self.view.name(seq_id) for seq_id in mirror.sequences}
        order = sorted(names, key=lambda seq_id: (owner_number(seq_id, names[seq_id]), seq_id))
        lengths = {seq_id: table_length(mirror.sequences[seq_id]) for seq_id in order}
        self._marks = Marks(
            self.view.fresh_copies(), self.view.highlighted, bool(getattr(self.app, "ascii", False))
        )
        width = self.scrollable_content_region.width
        room = min(MAX_LABEL, max(MIN_LABEL, width // 4))
        label_width = min(room, max(map(cell_len, names.values()), default=0))
        if self._is_same(mirror, lengths, label_width, width):
            self.table.lengths = lengths
            self._draw_changes()
        else:
            self._mirror, self._label_width, self._width = mirror, label_width, width
            self._lay_out(lengths)

    def _is_same(self, mirror: CacheMirror, lengths: dict[int, int], label_width: int, width: int) -> bool:
        """Whether every line still stands for what it stood for, in the same room."""
        known = self.table
        if mirror is not self._mirror or known.by_block != self.by_block:
            return False
        if (label_width, width) != (self._label_width, self._width):
            return False
        return known.lengths == lengths if self.by_block else list(known.lengths) == list(lengths)

    def _lay_out(self, lengths: dict[int, int]) -> None:
        self.table = TableLayout(lengths, by_block=self.by_block)
        self.spot = self.table.clamp(self.spot)
        self._rows.clear()
        self.set_lines(self.table.num_lines)

    def _draw_changes(self) -> None:
        self.spot = self.table.clamp(self.spot)
        top = self.scroll_offset.y
        rows = {index: self._row(index) for index in range(top, min(top + self.size.height, self.num_lines))}
        before, self._rows = self._rows, rows
        hidden = [index for index in self._strips if index not in rows]
        self.lines_changed([*hidden, *(index for index, row in rows.items() if row != before.get(index))])

    def toggle_token_text(self) -> None:
        """Each block on a line with its text, or a line a sequence again."""
        self.by_block = not self.by_block
        if self._mirror is not None:
            self.refresh_view(self._mirror)
            self.show_cursor()

    # --- rows ---------------------------------------------------------------------------------------

    def _row(self, line: int) -> Row | BlockRow | None:
        spot = self.table.at(line)
        sequence = self._mirror.sequences.get(spot.seq_id) if self._mirror else None
        if self._mirror is None or sequence is None:
            return None
        here = self.spot if self.has_focus else None
        if spot.place >= 0:
            texts = self.view.token_texts
            row = block_row(self._mirror, sequence, spot.place, self._marks, texts, self._width)
            return row._replace(chosen=here == spot)
        chosen = here.place if here is not None and here.seq_id == spot.seq_id else -1
        return self._sequence_row(self._mirror, sequence, chosen)

    def _sequence_row(self, mirror: CacheMirror, sequence: MirrorSequence, chosen: int) -> Row:
        name, length = self.view.name(sequence.seq_id), table_length(sequence)
        fill = fill_words(mirror, sequence)
        summary = f"{count(length, 'block')}, {count(len(sequence.token_ids), 'token')}" if length else "no blocks"
        number = owner_number(sequence.seq_id, name)
        if self.by_block or not length:
            return Row(name, number, sequence.status, [], fill, summary)
        room = self._width - self._label_width - STATUS_CELLS - len(fill) - 1
        entries = table_entries(mirror, sequence, self._marks, room, chosen)
        return Row(name, number, sequence.status, entries, fill, chosen=chosen)

    def build_line(self, index: int) -> Strip:
        """One line as it is now."""
        row = self._rows.get(index) or self._row(index)
        if row is None:
            return Strip.blank(0)
        return self.paint.block(row) if isinstance(row, BlockRow) else self.paint.sequence(row)

    @property
    def paint(self) -> TablePaint:
        """Draws with the colours of the theme."""
        if not self._colors:
            self._colors = owner_colors(self.app.current_theme)
        return TablePaint(
            lambda name: self.style_of(f"table-lines--{name}"),
            lambda number: Style.from_color(owner_color(self._colors, number).rich_color),
            self._label_width,
            ascii_only=self._marks.ascii_only,
        )

    def notify_style_update(self) -> None:
        """Another theme: other colours."""
        super().notify_style_update()
        self._colors = []

    # --- for the cursor -----------------------------------------------------------------------------

    def table_of(self, seq_id: int) -> Sequence[int]:
        """Device blocks of the sequence, in order."""
        sequence = self._mirror.sequences.get(seq_id) if self._mirror else None
        return sequence.block_table if sequence else ()

    def place_at(self, line: int, column: int) -> int:
        """In the line of a sequence: the place in its block table of the entry under this column; -1: none."""
        row = self._row(line)
        return self.paint.entry_at(row, column) if isinstance(row, Row) else -1

    def cursor_moved(self) -> None:
        """Draw where it stands."""
        self._draw_changes()

    def on_focus(self) -> None:
        """Show the cursor."""
        self._draw_changes()

    def on_blur(self) -> None:
        """Hide the cursor."""
        self._draw_changes()

    def on_resize(self) -> None:
        """Other elisions."""
        if self._mirror is not None:
            self.refresh_view(self._mirror)
