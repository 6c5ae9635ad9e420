"""The pool map panel: the grid of physical blocks, what is under the cursor in words, and what colours mean."""

from typing import ClassVar

from rich.segment import Segment
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.strip import Strip

from pagedchat.tui.inspector.pool.block_grid import BlockGrid
from pagedchat.tui.kit.line_view import LineBar
from pagedchat.tui.kit.quiet import QuietBorder
from pagedchat.view.blocks.kinds import COLOR_MODES, MODE_WORDS
from pagedchat.view.blocks.legend import GAP, legend
from pagedchat.view.blocks.map_picture import BlockPicture
from pagedchat.view.blocks.page import describe_block
from pagedchat.view.engine_view import EngineView
from pagedchat.view.sentences.ranks import ranks_in_a_line
from pagedchat.view.sentences.words import count, to_ascii


class BlockMap(QuietBorder, Vertical):
    """All physical blocks of the pool. Its cursor posts which block was chosen or opened."""

    DEFAULT_CSS = """
    BlockMap { height: 1fr; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("C", "cycle_colors(-1)", "Colours before", show=False)]

    def __init__(self, view: EngineView, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.view = view
        self.grid = BlockGrid(view)
        self._strip = LineBar(0)
        self._detail = LineBar()
        self._legend = LineBar()
        self._ranks = LineBar(0)
        self._title = ""

    def compose(self) -> ComposeResult:
        """Grid above; below it all of the pool in a line, where the grid shows a part, and lines of words."""
        yield self.grid
        yield self._strip
        yield self._detail
        yield self._legend
        yield self._ranks

    def on_mount(self) -> None:
        """Say which keys move here."""
        self._show_keys()

    # --- what can be asked of it --------------------------------------------------------------------

    def refresh_view(self) -> None:
        """Follow the engine."""
        self.grid.refresh_view()
        self._tell()

    def cycle_colors(self, steps: int = 1) -> None:
        """The next meaning of the colours, or with -1 the one before."""
        self.grid.mode = COLOR_MODES[(COLOR_MODES.index(self.grid.mode) + steps) % len(COLOR_MODES)]
        self._tell()

    def action_cycle_colors(self, steps: int) -> None:
        """The same, by key."""
        self.cycle_colors(steps)

    def toggle_lens(self) -> None:
        """What is in use as large as can be, or all of the pool."""
        self.grid.toggle_lens()
        self._show_keys()

    def _show_keys(self) -> None:
        other = "whole pool" if self.grid.follows_use else "what is in use"
        self.set_subtitle(Content(self._plain(f"arrows hjkl move · Enter block · z {other}")))

    def choose(self, block_id: int) -> None:
        """Put the cursor on a block of the pool, as if the user had."""
        self.grid.choose(block_id)

    # --- messages of the grid -----------------------------------------------------------------------

    def on_block_cursor_inspected(self, message: BlockGrid.Inspected) -> None:
        """Another block to tell about."""
        message.stop()
        self._tell()

    def on_block_grid_zoomed(self, message: BlockGrid.Zoomed) -> None:
        """The title says how many blocks a cell stands for."""
        message.stop()
        self._show_keys()
        self._tell()

    def notify_style_update(self) -> None:
        """Another theme: the legend's colours too."""
        super().notify_style_update()
        self.call_later(self._tell)

    # --- telling ------------------------------------------------------------------------------------

    def _tell(self) -> None:
        picture = self.grid.picture
        if picture is None or not self.is_mounted:
            return
        mirror = picture.mirror
        colors = f"colour {MODE_WORDS[self.grid.mode]} (c)"
        per_cell = count(picture.layout.blocks_per_cell, "block")
        self._set_title(f"Pool {mirror.num_blocks:,} × {mirror.block_size} · {colors} · cell = {per_cell} (+ −)")
        sentence = describe_block(self.view, mirror, self.grid.inspected)
        self._detail.show([Strip([Segment(self._plain(sentence))])])
        self._legend.show([self._legend_strip(picture)])
        ranks = ranks_in_a_line(self.view.shown.info, mirror.last)
        self._ranks.show([Strip([Segment(self._plain(ranks))])] if ranks else [])
        strip = self.grid.strip(self._legend.size.width)
        self._strip.show([] if strip is None else [strip])

    def _set_title(self, title: str) -> None:
        if title != self._title:
            self._title = title
            self.set_title(Content(self._plain(title)))

    def _legend_strip(self, picture: BlockPicture) -> Strip:
        segments = []
        for item in legend(picture.kinds, self.grid.mode, picture.marks, self._legend.size.width):
            segments += [self.grid.paint.sign(item.sign), Segment(self._plain(f" {item.text}{' ' * GAP}"))]
        return Strip(segments)

    def _plain(self, text: str) -> str:
        """Our own words, in ASCII if the terminal is to get nothing else."""
        return to_ascii(text) if self.grid.ascii_only else text
