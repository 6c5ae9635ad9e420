"""A cursor over the cells of the pool map, moved by keys and mouse. Knows where cells are, not what they show."""

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.reactive import reactive

from pagedchat.tui.kit.line_view import LineView
from pagedchat.tui.messages import BlockChosen, BlockOpened
from pagedchat.view.blocks.lens import Lens
from pagedchat.view.blocks.map_layout import BlockLayout, gutter_width


class BlockCursor(LineView):
    """Lines of cells, one of which is chosen. Subclasses set `cell_layout` and `lens`, and draw."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "move(-1, 0)", "Left", show=False),
        Binding("right", "move(1, 0)", "Right", show=False),
        Binding("up", "move(0, -1)", "Up", show=False),
        Binding("down", "move(0, 1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home", "move_to(0)", "First block", show=False),
        Binding("end", "move_to(-1)", "Last block", show=False),
    ]

    cursor: reactive[int] = reactive(0, init=False)
    """The chosen block (the first one of its cell, if it was chosen by key)."""
    hovered: reactive[int | None] = reactive(None, init=False)
    """The block under the mouse."""

    class Inspected(Message):
        """Another block is under the cursor or the mouse."""

    def __init__(self) -> None:
        super().__init__()
        self.cell_layout: BlockLayout | None = None
        """Where the cells are; None while there is no pool or no room."""
        self.lens = Lens((), 0)
        """Which lines of cells are shown."""
        self._in_use = False
        """Whether the cursor is shown without the focus: keys moved it from another panel."""

    # --- choosing -----------------------------------------------------------------------------------

    @property
    def inspected(self) -> int:
        """The block to tell about: under the mouse, else under the cursor."""
        return self.cursor if self.hovered is None else self.hovered

    def choose(self, block_id: int) -> None:
        """Put the cursor on a block of the pool, in sight, and tell so."""
        self._in_use = True
        self.cursor = block_id
        self.post_message(BlockChosen(block_id))

    def open_block(self) -> None:
        """Ask for the detail of the block under the cursor."""
        if self.cell_layout is not None:
            self.post_message(BlockOpened(self.cursor))

    def action_move(self, cells: int, rows: int) -> None:
        """Move the cursor by cells, or by rows of cells."""
        if self.cell_layout is not None:
            cell = self.cell_layout.cell_of(self.cursor) + cells + rows * self.cell_layout.cells_per_row
            inside = 0 <= cell < self.cell_layout.num_cells
            if inside and (shown := self._shown_cell(cell, cells or rows)) is not None:
                self.choose(shown * self.cell_layout.blocks_per_cell)

    def _shown_cell(self, cell: int, direction: int) -> int | None:
        """The cell, or where it is not shown the one in its column on the next line that is."""
        layout = self.cell_layout
        if layout is None or self.lens.row_of(line := layout.line_of(cell)) is not None:
            return cell
        there = self.lens.beyond(line, 1 if direction > 0 else -1)
        if there is None:
            return None
        return min(cell + (there - line) * layout.cells_per_line, layout.num_cells - 1)

    def action_page(self, pages: int) -> None:
        """Move the cursor by as many lines as are in sight; at the ends to the first or last one of its column."""
        if self.cell_layout is not None:
            per_line = self.cell_layout.cells_per_line
            column = self.cell_layout.cell_of(self.cursor) % per_line
            row = max(0, min(len(self.lens) - 1, self._cursor_row + pages * max(1, self.size.height)))
            cell = min(self.lens.lines[row] * per_line + column, self.cell_layout.num_cells - 1)
            self.choose(cell * self.cell_layout.blocks_per_cell)

    def action_move_to(self, cell: int) -> None:
        """Move the cursor to a cell; -1 is the last one."""
        if self.cell_layout is not None:
            self.choose(range(self.cell_layout.num_cells)[cell] * self.cell_layout.blocks_per_cell)

    # --- mouse --------------------------------------------------------------------------------------

    def on_mouse_move(self, event: events.MouseMove) -> None:
        """Tell about the block under the mouse."""
        self.hovered = self._block_at(event)

    def on_leave(self) -> None:
        """The mouse left: tell about the cursor's block again."""
        self.hovered = None

    def on_click(self, event: events.Click) -> None:
        """Choose a block; a second click opens it."""
        block_id = self._block_at(event)
        if block_id is not None:
            self.choose(block_id)
            if event.chain == 2:
                self.open_block()

    def _block_at(self, event: events.MouseEvent) -> int | None:
        offset = event.get_content_offset(self)
        if self.cell_layout is None or offset is None:
            return None
        column, row = offset.x - gutter_width(self.cell_layout.num_blocks), offset.y + self.scroll_offset.y
        return self.cell_layout.block_at(column, self.lens.lines[row]) if row < len(self.lens) else None

    # --- showing ------------------------------------------------------------------------------------

    @property
    def shown_cell(self) -> int | None:
        """The cell that is drawn as the cursor."""
        if self.cell_layout is None or not (self.has_focus or self._in_use):
            return None
        return self.cell_layout.cell_of(self.cursor)

    def watch_cursor(self, before: int, now: int) -> None:
        """Draw the old and the new line, and keep the cursor in sight."""
        if self.cell_layout is not None:
            lines = {self.cell_layout.line_of(self.cell_layout.cell_of(block_id)) for block_id in (before, now)}
            rows = self.lens.rows_of(lines)
            if len(rows) < len(lines):
                self.bring_into_sight()
            self.lines_changed(rows)
            self.show_cursor()
            self.post_message(self.Inspected())

    def bring_into_sight(self) -> None:
        """The cursor is on a line that is not shown; subclasses show it."""

    def watch_hovered(self) -> None:
        """Tell the panel."""
        self.post_message(self.Inspected())

    def on_focus(self) -> None:
        """Show the cursor; one that is on no line of the lens goes to the first that is."""
        layout = self.cell_layout
        if (
            layout is not None
            and len(self.lens)
            and self.lens.row_of(layout.line_of(layout.cell_of(self.cursor))) is None
        ):
            self.cursor = self.lens.lines[0] * layout.cells_per_line * layout.blocks_per_cell
        self.lines_changed([self._cursor_row])

    def on_blur(self) -> None:
        """Hide the cursor."""
        self._in_use = False
        self.lines_changed([self._cursor_row])

    @property
    def _cursor_row(self) -> int:
        layout = self.cell_layout
        return 0 if layout is None else self.lens.row_of(layout.line_of(layout.cell_of(self.cursor))) or 0

    def show_cursor(self) -> None:
        """Scroll as little as needed to have the cursor in sight."""
        line, top = self._cursor_row, self.scroll_offset.y
        if line < top:
            self.scroll_to(y=line, animate=False, force=True)
        elif line >= top + self.size.height:
            self.scroll_to(y=line - self.size.height + 1, animate=False, force=True)
