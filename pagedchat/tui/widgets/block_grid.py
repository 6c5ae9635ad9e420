"""The cells of the pool map: every physical block drawn, only what changed drawn again."""

from typing import ClassVar

from textual import events
from textual.binding import Binding, BindingType
from textual.color import Color
from textual.message import Message
from textual.reactive import reactive
from textual.strip import Strip

from pagedchat.engine.mirror import CacheMirror
from pagedchat.tui.engine_view import EngineView
from pagedchat.tui.widgets.block_cells import ColorMode
from pagedchat.tui.widgets.block_layout import BlockLayout, fitting_level, gutter_width, zoom_levels
from pagedchat.tui.widgets.block_paint import CURSOR, BlockPaint
from pagedchat.tui.widgets.block_picture import BlockPicture
from pagedchat.tui.widgets.line_view import LineView
from pagedchat.tui.widgets.owner_palette import GLYPHS, owner_colors, owner_glyph, owner_number

_COMPONENTS = (
    "free", "cached", "shared", "copied", "next", "partial", "full", "ref1", "ref2", "ref3", "ref4", CURSOR,
    "gutter",
)  # fmt: skip


class BlockGrid(LineView):
    """Cells with a cursor."""

    DEFAULT_CSS = """
    BlockGrid {
        & > .block-grid--free { color: $foreground 16%; }
        & > .block-grid--cached { color: $foreground 38%; }
        & > .block-grid--shared { color: $foreground; }
        & > .block-grid--copied { color: $warning-lighten-2; }
        & > .block-grid--next { color: $error 70%; }
        & > .block-grid--partial { color: $primary 60%; }
        & > .block-grid--full { color: $primary; }
        & > .block-grid--ref1 { color: $primary 55%; }
        & > .block-grid--ref2 { color: $primary; }
        & > .block-grid--ref3 { color: $accent; }
        & > .block-grid--ref4 { color: $error; }
        & > .block-grid--cursor { color: $accent; }
        & > .block-grid--gutter { color: $foreground 45%; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"block-grid--{name}" for name in _COMPONENTS}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("left", "move(-1, 0)", "Left", show=False),
        Binding("right", "move(1, 0)", "Right", show=False),
        Binding("up", "move(0, -1)", "Up", show=False),
        Binding("down", "move(0, 1)", "Down", show=False),
        Binding("home", "move_to(0)", "First block", show=False),
        Binding("end", "move_to(-1)", "Last block", show=False),
    ]

    mode: reactive[ColorMode] = reactive("owner", init=False)
    """What the colours mean."""
    cursor: reactive[int] = reactive(0, init=False)
    """The block that the keys have chosen (the first one of its cell)."""
    hovered: reactive[int | None] = reactive(None, init=False)
    """The block under the mouse."""

    class Inspected(Message):
        """Another block is under the cursor or the mouse."""

    class Opened(Message):
        """A block's detail was asked for."""

        def __init__(self, block_id: int) -> None:
            super().__init__()
            self.block_id = block_id

    class Zoomed(Message):
        """Cells stand for another number of blocks."""

    def __init__(self, view: EngineView) -> None:
        super().__init__()
        self.view = view
        self.picture: BlockPicture | None = None
        """What is drawn; None while there is no pool or no room."""
        self._levels: list[BlockLayout] = []
        self._zoom: int | None = None
        """Index into the levels; None while the level follows the panel's size."""
        self._owner_kinds: dict[int, str] = {}
        self._paint: BlockPaint | None = None

    # --- following the engine -----------------------------------------------------------------------

    def refresh_view(self) -> None:
        """Draw the lines whose blocks changed since the last call."""
        mirror, picture = self.view.mirror, self.picture
        if mirror is None:
            self.picture = None
            return
        renumbered = self._owners_changed(mirror)
        if picture is None or picture.mirror is not mirror or renumbered:
            self.rebuild()
        else:
            self.lines_changed(picture.update(self.view.fresh_copies()))

    def rebuild(self) -> None:
        """Work out everything anew: another engine, size, zoom or meaning of the colours."""
        mirror = self.view.mirror
        if mirror is None or not self.size:
            return
        self._owner_kinds = {seq_id: self._owner_kind(seq_id) for seq_id in mirror.sequences}
        self._levels = zoom_levels(mirror.num_blocks, self.size.width, self.size.height)
        before, layout = self.picture, self._levels[self._level()]
        copied = self.view.fresh_copies()
        self.picture = BlockPicture(mirror, layout, self.mode, self._owner_kind, copied)
        self.set_lines(layout.num_lines)
        if before is None or layout != before.layout:
            self.cursor = min(self.cursor, mirror.num_blocks - 1)
            self._show_cursor()
            self.post_message(self.Zoomed())

    def _level(self) -> int:
        if self._zoom is None:
            return fitting_level(self._levels, self.size.height)
        self._zoom = max(0, min(self._zoom, len(self._levels) - 1))
        return self._zoom

    def _owner_kind(self, seq_id: int) -> str:
        return "@" + owner_glyph(owner_number(seq_id, self.view.name(seq_id)))

    def _owners_changed(self, mirror: CacheMirror) -> bool:
        """A chat was renumbered; those that come or go bring their own changes of blocks."""
        known = self._owner_kinds
        for seq_id in mirror.sequences:
            kind = self._owner_kind(seq_id)
            if known.setdefault(seq_id, kind) != kind:
                return True
        return False

    # --- keys and mouse -----------------------------------------------------------------------------

    @property
    def inspected(self) -> int:
        """The block to tell about: under the mouse, else under the cursor."""
        return self.cursor if self.hovered is None else self.hovered

    def action_move(self, cells: int, rows: int) -> None:
        """Move the cursor by cells, or by rows of cells."""
        if self.picture is not None:
            layout = self.picture.layout
            cell = layout.cell_of(self.cursor) + cells + rows * layout.cells_per_row
            if 0 <= cell < layout.num_cells:
                self.cursor = cell * layout.blocks_per_cell

    def action_move_to(self, cell: int) -> None:
        """Move the cursor to a cell; -1 is the last one."""
        if self.picture is not None:
            layout = self.picture.layout
            self.cursor = range(layout.num_cells)[cell] * layout.blocks_per_cell

    def open_block(self) -> None:
        """Ask for the detail of the block under the cursor."""
        if self.picture is not None:
            self.post_message(self.Opened(self.cursor))

    def zoom_by(self, steps: int) -> None:
        """Larger cells (positive) or smaller ones; back to following the panel at the level that fits."""
        if self._levels:
            fitting = fitting_level(self._levels, self.size.height)
            level = (fitting if self._zoom is None else self._zoom) - steps
            self._zoom = None if level == fitting else level
            self.rebuild()

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
            self.cursor = block_id
            if event.chain == 2:
                self.open_block()

    def _block_at(self, event: events.MouseEvent) -> int | None:
        offset = event.get_content_offset(self)
        if self.picture is None or offset is None:
            return None
        layout = self.picture.layout
        column = offset.x - gutter_width(layout.num_blocks)
        return layout.block_at(column, offset.y + self.scroll_offset.y)

    def watch_cursor(self, before: int, now: int) -> None:
        """Draw the old and the new line, and keep the cursor in sight."""
        if self.picture is not None:
            layout = self.picture.layout
            self.lines_changed({layout.line_of(layout.cell_of(block_id)) for block_id in (before, now)})
            self._show_cursor()
            self.post_message(self.Inspected())

    def watch_hovered(self) -> None:
        """Tell the panel."""
        self.post_message(self.Inspected())

    def watch_mode(self) -> None:
        """Other kinds everywhere."""
        self.rebuild()

    def on_focus(self) -> None:
        """Show the cursor."""
        self.lines_changed([self._cursor_line()])

    def on_blur(self) -> None:
        """Hide the cursor."""
        self.lines_changed([self._cursor_line()])

    def on_resize(self) -> None:
        """Another level may fit now."""
        self.rebuild()

    def _cursor_line(self) -> int:
        if self.picture is None:
            return 0
        layout = self.picture.layout
        return layout.line_of(layout.cell_of(self.cursor))

    def _show_cursor(self) -> None:
        line, top = self._cursor_line(), self.scroll_offset.y
        if line < top:
            self.scroll_to(y=line, animate=False)
        elif line >= top + self.size.height:
            self.scroll_to(y=line - self.size.height + 1, animate=False)

    # --- drawing ------------------------------------------------------------------------------------

    def build_line(self, index: int) -> Strip:
        """The gutter and one line of cells (two rows of them where cells are half blocks)."""
        if self.picture is None:
            return Strip.blank(0)
        layout, paint = self.picture.layout, self.paint
        first = index * layout.cells_per_line
        kinds = self.picture.kinds[first : first + layout.cells_per_line]
        chosen = layout.cell_of(self.cursor) - first
        cursor = chosen if self.has_focus and 0 <= chosen < len(kinds) else -1
        if layout.style == "half":
            segments = paint.halves(kinds, layout.cells_per_row, cursor)
        elif layout.style == "tile":
            segments = paint.tiles(kinds, first, self.picture.mirror, cursor)
        else:
            segments = paint.cells(kinds, layout.cell_width, cursor)
        return Strip([paint.gutter(layout, first), *segments])

    @property
    def paint(self) -> BlockPaint:
        """Draws with the colours of the theme."""
        if self._paint is None:
            self._paint = BlockPaint(self._theme_colors())
        return self._paint

    def _theme_colors(self) -> dict[str, Color]:
        background = self.background_colors[1]
        colors = {"none": background}
        for name in _COMPONENTS:
            colors[name] = background + self.get_component_styles(f"block-grid--{name}").color
        owners = owner_colors(self.app.current_theme)
        for index, sign in enumerate(GLYPHS):
            colors["@" + sign] = owners[index % len(owners)]
        return colors

    def notify_style_update(self) -> None:
        """Another theme: other colours."""
        super().notify_style_update()
        self._paint = None
