"""The cells of the pool map: physical blocks drawn, only what changed drawn again.

By itself it shows what is in use as large as the panel allows, and leaves out lines in which nothing is.
"""

from itertools import chain
from typing import ClassVar

from textual import events
from textual.color import Color
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip

from pagedchat.engine.mirror import CacheMirror
from pagedchat.tui.inspector.pool.block_cursor import BlockCursor
from pagedchat.tui.inspector.pool.block_paint import COLORS, BlockPaint, map_colors
from pagedchat.view.blocks.kinds import ColorMode
from pagedchat.view.blocks.lens import View, lens_on, whole
from pagedchat.view.blocks.map_layout import BlockLayout, fitting_level, gutter_width, zoom_levels
from pagedchat.view.blocks.map_picture import BlockPicture, look_of
from pagedchat.view.blocks.pool_kinds import BlockKinds
from pagedchat.view.engine_view import EngineView
from pagedchat.view.owners import owner_glyph, owner_number


class BlockGrid(BlockCursor):
    """The pool or what of it is in use, at some zoom and in some mode of colours."""

    DEFAULT_CSS = """
    BlockGrid {
        & > .block-grid--free { color: $foreground 16%; }
        & > .block-grid--withheld { color: $error 24%; }
        & > .block-grid--cached { color: $foreground 38%; }
        & > .block-grid--pinned { color: $success; }
        & > .block-grid--shared { color: $foreground 72%; }
        & > .block-grid--copied { color: $warning-lighten-2; }
        & > .block-grid--next { color: $error 70%; }
        & > .block-grid--partial { color: $warning; }
        & > .block-grid--findable { color: $primary; }
        & > .block-grid--ref1 { color: $primary 55%; }
        & > .block-grid--ref2 { color: $primary; }
        & > .block-grid--ref3 { color: $accent; }
        & > .block-grid--ref4 { color: $error; }
        & > .block-grid--newest { color: $accent; }
        & > .block-grid--oldest { color: $primary 40%; }
        & > .block-grid--empty { color: $primary 35%; }
        & > .block-grid--full { color: $primary-lighten-1; }
        & > .block-grid--cursor { color: $accent; }
        & > .block-grid--lit { color: $foreground; }
        & > .block-grid--gutter { color: $foreground 45%; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"block-grid--{name}" for name in COLORS}

    mode: reactive[ColorMode] = reactive("owner", init=False)
    """What the colours mean."""

    class Zoomed(Message):
        """Cells stand for another number of blocks, or colours for something else."""

    def __init__(self, view: EngineView) -> None:
        super().__init__()
        self.view = view
        self.picture: BlockPicture | None = None
        """What is drawn; None while there is no pool or no room."""
        self._levels: list[BlockLayout] = []
        self._zoom: int | None = None
        """Index into the levels; None while the level follows the panel's size."""
        self.follows_use = True
        """Whether, while nobody zooms, the lens is on what is in use; else all of the pool is shown."""
        self._level = 0
        """Index into the levels of the one that is shown."""
        self._num_in_use = 0
        """When the lens was last set."""
        self._labels: dict[int, str] = {}
        """As they were when the owners' kinds were found."""
        self._owner_kinds: dict[int, str] = {}
        self._paint: BlockPaint | None = None

    # --- following the engine -----------------------------------------------------------------------

    def refresh_view(self) -> None:
        """Draw the lines whose blocks changed since the last call."""
        mirror, picture = self.view.mirror, self.picture
        if mirror is None:
            self.picture = self.cell_layout = None
        elif picture is None or picture.mirror is not mirror or self._renumbered():
            self.rebuild()
        else:
            lines = picture.update(self.view.fresh_copies(), self.view.highlighted)
            if self._has_outgrown(picture):
                self._lay_out(picture.kinds)
            else:
                self.lines_changed(self.lens.rows_of(lines))

    def rebuild(self) -> None:
        """Work out everything anew: another engine, other labels, another meaning of the colours."""
        mirror = self.view.mirror
        if mirror is not None and self.size:
            self._owner_kinds.clear()
            self._labels = dict(self.view.labels)
            self._lay_out(BlockKinds(mirror, self.mode, self._owner_kind))

    def _lay_out(self, kinds: BlockKinds) -> None:
        """The same blocks in cells that fit the panel and the zoom."""
        mirror, before = kinds.mirror, self.cell_layout
        self._levels = zoom_levels(mirror.num_blocks, self.size.width, self.size.height, not self.ascii_only)
        self._level, self.lens = self._choose_view(kinds.mirror)
        self.cell_layout = self._levels[self._level]
        self.picture = BlockPicture(kinds, self.cell_layout, self.view.fresh_copies(), self.view.highlighted)
        self.set_lines(len(self.lens))
        if self.cell_layout != before:
            self.set_reactive(BlockGrid.cursor, min(self.cursor, mirror.num_blocks - 1))
            self.set_reactive(BlockGrid.hovered, None)
            self.show_cursor()
        self.post_message(self.Zoomed())

    def _choose_view(self, mirror: CacheMirror) -> View:
        if self._zoom is None and self.follows_use:
            in_use = set[int]().union(*(sequence.block_table for sequence in mirror.sequences.values()))
            self._num_in_use = len(in_use)
            looked_at = (
                {self.cursor} if (self.has_focus or self._in_use) and self.cursor < mirror.num_blocks else set()
            )
            return lens_on(self._levels, in_use | looked_at, self.size.height)
        if self._zoom is None:
            level = fitting_level(self._levels, self.size.height)
        else:
            level = self._zoom = max(0, min(self._zoom, len(self._levels) - 1))
        return View(level, whole(self._levels[level]))

    def _has_outgrown(self, picture: BlockPicture) -> bool:
        """Whether a block is in use that the lens leaves out, or hardly any are of those that it was set for."""
        if self._zoom is not None or not self.follows_use:
            return False
        mirror, layout = picture.mirror, picture.layout
        in_use = mirror.last.pool.in_use if mirror.last is not None else self._num_in_use
        if self._level and 2 * in_use < self._num_in_use:
            return True
        return self.lens.hides_some and any(
            mirror.ref_counts[block_id] and self.lens.row_of(layout.line_of(layout.cell_of(block_id))) is None
            for block_id in picture.changed
        )

    def bring_into_sight(self) -> None:
        """The lens goes where the cursor is, too."""
        if self.picture is not None:
            self._lay_out(self.picture.kinds)

    def toggle_lens(self) -> None:
        """What is in use as large as can be, or all of the pool."""
        self.follows_use = self._zoom is not None or not self.follows_use
        self._zoom = None
        if self.picture is not None:
            self._lay_out(self.picture.kinds)
            self.show_cursor()

    def strip(self, width: int) -> Strip | None:
        """All of the pool in one line, while the lens hides some of it."""
        if self.picture is None or not self.lens.hides_some:
            return None
        num_blocks, gutter = self.picture.mirror.num_blocks, gutter_width(self.picture.mirror.num_blocks)
        per_cell = -(-num_blocks // max(1, width - gutter))
        layout = BlockLayout("cell", num_blocks, per_cell, max(1, width - gutter))
        looks = [look_of(self.picture.kinds, layout.blocks_of(cell)) for cell in range(layout.num_cells)]
        return Strip(chain([self.paint.words(f"{'all':<{gutter}}")], self.paint.cells(looks, 1, -1)))

    def zoom_by(self, steps: int) -> None:
        """The whole pool in larger cells (positive) or smaller ones; where all of it fits, it follows the panel."""
        if self.picture is not None:
            fitting = fitting_level(self._levels, self.size.height)
            level = self._level - steps
            self._zoom = None if level == fitting else level
            self.follows_use = False
            self._lay_out(self.picture.kinds)
            self.show_cursor()

    def on_mouse_scroll_up(self, event: events.MouseScrollUp) -> None:
        """With Ctrl larger cells; without, the lines move."""
        self._zoom_by_wheel(event, 1)

    def on_mouse_scroll_down(self, event: events.MouseScrollDown) -> None:
        """With Ctrl smaller cells."""
        self._zoom_by_wheel(event, -1)

    def _zoom_by_wheel(self, event: events.MouseEvent, steps: int) -> None:
        if event.ctrl:
            event.stop()
            event.prevent_default()
            self.zoom_by(steps)

    def watch_mode(self) -> None:
        """Other kinds everywhere."""
        self.rebuild()

    def on_resize(self) -> None:
        """Another level may fit now."""
        if self.picture is None:
            self.rebuild()
        elif self.size:
            self._lay_out(self.picture.kinds)
            self.show_cursor()

    def _owner_kind(self, seq_id: int) -> str:
        kind = self._owner_kinds.get(seq_id)
        if kind is None:
            kind = self._owner_kinds[seq_id] = "@" + owner_glyph(owner_number(seq_id, self.view.name(seq_id)))
        return kind

    def _renumbered(self) -> bool:
        """Whether a chat that is on the map got another number."""
        if self._labels == self.view.labels:
            return False
        self._labels = dict(self.view.labels)
        before = dict(self._owner_kinds)
        self._owner_kinds.clear()
        return any(self._owner_kind(seq_id) != kind for seq_id, kind in before.items())

    # --- drawing ------------------------------------------------------------------------------------

    def build_line(self, index: int) -> Strip:
        """The gutter and one line of cells (two rows of them where cells are half blocks)."""
        if self.picture is None:
            return Strip.blank(0)
        layout, paint = self.picture.layout, self.paint
        first = self.lens.lines[index] * layout.cells_per_line
        cells = range(first, min(first + layout.cells_per_line, layout.num_cells))
        looks = [self.picture.look(cell) for cell in cells]
        chosen = self.shown_cell
        cursor = chosen - first if chosen in cells and chosen is not None else -1
        if layout.style == "half":
            segments = paint.halves(looks, layout.cells_per_row, cursor)
        elif layout.style == "tile":
            segments = paint.tiles(looks, first, self.picture.mirror, cursor)
        else:
            segments = paint.cells(looks, layout.cell_width, cursor)
        return Strip(chain([paint.gutter(layout, first, skips=self.lens.skips_before(index))], segments))

    @property
    def ascii_only(self) -> bool:
        """Whether the terminal is to get nothing but ASCII."""
        return bool(getattr(self.app, "ascii", False))

    @property
    def paint(self) -> BlockPaint:
        """Draws with the colours of the theme."""
        if self._paint is None:
            colors = map_colors(self._color_of, self.background_colors[1], self.app.current_theme)
            self._paint = BlockPaint(colors, self.ascii_only)
        return self._paint

    def _color_of(self, name: str) -> Color:
        return self.get_component_styles(f"block-grid--{name}").color

    def notify_style_update(self) -> None:
        """Another theme: other colours."""
        super().notify_style_update()
        self._paint = None
