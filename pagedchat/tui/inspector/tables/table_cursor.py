"""The cursor of the block tables: keys and mouse move it from block to block, whichever lines show them."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType

from pagedchat.tui.kit.line_view import LineView
from pagedchat.tui.messages import BlockChosen, BlockOpened
from pagedchat.view.blocks.table_layout import HEADING, Spot, TableLayout


class TableCursor(LineView):
    """Lines with a cursor; what they show is up to the subclass."""

    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "move(-1, 0)", "Block before", show=False),
        Binding("right", "move(1, 0)", "Next block", show=False),
        Binding("up", "move(0, -1)", "Up", show=False),
        Binding("down", "move(0, 1)", "Down", show=False),
        Binding("pageup", "page(-1)", "Page up", show=False),
        Binding("pagedown", "page(1)", "Page down", show=False),
        Binding("home", "end(-1)", "First block of the table", show=False),
        Binding("end", "end(1)", "Last block of the table", show=False),
        Binding("enter", "open", "Open block", show=False),
    ]

    def __init__(self) -> None:
        super().__init__()
        self.spot: Spot | None = None
        """Where the cursor stands."""
        self.table = TableLayout({}, by_block=False)
        """Which line shows what."""

    @abstractmethod
    def table_of(self, seq_id: int) -> Sequence[int]:
        """Device blocks of the sequence, in order."""

    @abstractmethod
    def place_at(self, line: int, column: int) -> int:
        """In the line of a sequence: the place in its block table of the entry under this column; -1: none."""

    @abstractmethod
    def cursor_moved(self) -> None:
        """Draw where it stands."""

    # --- keys and mouse -----------------------------------------------------------------------------

    @property
    def chosen_block(self) -> int | None:
        """The block under the cursor; None where there is none, or where it lies in host memory."""
        blocks = self.table_of(self.spot.seq_id) if self.spot else ()
        if self.spot is None or not 0 <= self.spot.place < len(blocks):
            return None
        return blocks[self.spot.place]

    def action_move(self, blocks: int, rows: int) -> None:
        """Along the table, or to another line."""
        if self.spot is not None:
            self._choose(self.table.move(self.spot, blocks, rows))

    def action_page(self, pages: int) -> None:
        """A screenful up or down."""
        self.action_move(0, pages * max(1, self.size.height - 1))

    def action_end(self, direction: int) -> None:
        """To the first or the last block of the table."""
        if self.spot is not None:
            last = self.table.lengths[self.spot.seq_id] - 1
            self._choose(self.table.clamp(Spot(self.spot.seq_id, last if direction > 0 else 0)))

    def action_open(self) -> None:
        """Ask for the detail of the block under the cursor."""
        if self.chosen_block is not None:
            self.post_message(BlockOpened(self.chosen_block))

    def on_click(self, event: events.Click) -> None:
        """Choose a block; a second click opens it."""
        offset = event.get_content_offset(self)
        line = -1 if offset is None else offset.y + self.scroll_offset.y
        if offset is None or not 0 <= line < self.num_lines:
            return
        spot = self.table.at(line)
        if spot.place == HEADING:
            spot = Spot(spot.seq_id, self.place_at(line, offset.x))
        if spot.place >= 0:
            self._choose(spot)
            if event.chain == 2:
                self.action_open()

    def _choose(self, spot: Spot | None) -> None:
        if spot is None or spot == self.spot:
            return
        self.spot = spot
        self.cursor_moved()
        self.show_cursor()
        if self.chosen_block is not None:
            self.post_message(BlockChosen(self.chosen_block))

    def show_cursor(self) -> None:
        """Scroll to it if it is out of sight."""
        if self.spot is None:
            return
        line, top = self.table.line_of(self.spot), self.scroll_offset.y
        if line < top:
            self.scroll_to(y=line, animate=False)
        elif line >= top + self.size.height:
            self.scroll_to(y=line - self.size.height + 1, animate=False)
