"""The pool map panel: the grid of physical blocks, what is under the cursor in words, and what colours mean."""

from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.strip import Strip

from pagedchat.engine.mirror import CacheMirror
from pagedchat.tui.engine_view import EngineView
from pagedchat.tui.event_lines import count
from pagedchat.tui.widgets.block_cells import COLOR_MODES, GLYPHS, ColorMode
from pagedchat.tui.widgets.block_grid import BlockGrid
from pagedchat.tui.widgets.line_view import LineBar
from pagedchat.tui.widgets.owner_palette import owner_glyph, owner_number

_ALWAYS = (("copied", "copied"), ("cached", "cached"), ("free", "free"), ("next", "next"))
_LEGENDS: dict[ColorMode, tuple[tuple[str, str], ...]] = {
    "owner": (("shared", "shared"), *_ALWAYS),
    "refs": (("ref1", ""), ("ref2", ""), ("ref3", ""), ("ref4", "owners"), *_ALWAYS),
    "state": (("full", "full"), ("partial", "partly"), ("shared", "shared"), *_ALWAYS),
}
"""Kinds and what they mean; signs without a word belong to the next one."""
_MAX_OWNERS = 9
_STATES = {"free": "free", "cached": "cached", "in_use": "in use"}


class BlockMap(Vertical):
    """All physical blocks of the pool."""

    DEFAULT_CSS = """
    BlockMap { height: 1fr; }
    """

    class BlockOpened(Message):
        """The detail of a block was asked for."""

        def __init__(self, block_id: int) -> None:
            super().__init__()
            self.block_id = block_id

    def __init__(self, view: EngineView, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.view = view
        self.grid = BlockGrid(view)
        self._detail = LineBar()
        self._legend = LineBar()
        self._title = ""

    def on_mount(self) -> None:
        """Say which keys move here."""
        self.border_subtitle = "arrows hjkl move · Enter block"

    def compose(self) -> ComposeResult:
        """Grid above, two lines below."""
        yield self.grid
        yield self._detail
        yield self._legend

    def refresh_view(self) -> None:
        """Follow the engine."""
        self.grid.refresh_view()
        self._tell()

    def cycle_colors(self) -> None:
        """By owner, by ref count, by state."""
        self.grid.mode = COLOR_MODES[(COLOR_MODES.index(self.grid.mode) + 1) % len(COLOR_MODES)]
        self._tell()

    def on_block_grid_opened(self, message: BlockGrid.Opened) -> None:
        """Pass on which block."""
        message.stop()
        self.post_message(self.BlockOpened(message.block_id))

    def on_block_grid_inspected(self, message: BlockGrid.Inspected) -> None:
        """Another block to tell about."""
        message.stop()
        self._tell()

    def on_block_grid_zoomed(self, message: BlockGrid.Zoomed) -> None:
        """The title says how many blocks a cell stands for."""
        message.stop()
        self._tell()

    def notify_style_update(self) -> None:
        """Another theme: the legend's colours too."""
        super().notify_style_update()
        self.call_later(self._tell)

    def _tell(self) -> None:
        mirror, picture = self.view.mirror, self.grid.picture
        if mirror is None or picture is None or not self.is_mounted:
            return
        title = f"Pool {mirror.num_blocks:,} × {mirror.block_size} · colour {self.grid.mode} (c)"
        per_cell = picture.layout.blocks_per_cell
        self._set_title(f"{title} · cell = {count(per_cell, 'block')} (+ −)")
        self._detail.show([Strip([Segment(self.describe(mirror, self.grid.inspected))])])
        self._legend.show([self._legend_strip(mirror)])

    def _set_title(self, title: str) -> None:
        if title != self._title:
            self._title = title
            self.border_title = Content(title)

    def describe(self, mirror: CacheMirror, block_id: int) -> str:
        """One line on a block: id, state, ref count, owners and their indices, fill, hash."""
        state, refs = mirror.state(block_id), mirror.ref_counts[block_id]
        parts = [f"{block_id:03d} {_STATES[state]}"]
        if refs:
            parts.append(f"ref {refs}")
            parts.append(" ".join(self._holder(mirror, seq_id, block_id) for seq_id in mirror.holders[block_id]))
        if state != "free":
            parts.append(f"{mirror.fill(block_id)}/{mirror.block_size}")
        block_hash = mirror.block_hashes[block_id]
        if block_hash is not None:
            parts.append(f"#{block_hash.hex()[:8]}")
        return " · ".join(parts)

    def _holder(self, mirror: CacheMirror, seq_id: int, block_id: int) -> str:
        return f"{self.view.name(seq_id)}[{mirror.sequences[seq_id].block_table.index(block_id)}]"

    def _legend_strip(self, mirror: CacheMirror) -> Strip:
        segments = []
        for kind, meaning in _LEGENDS[self.grid.mode]:
            segments.append(Segment(GLYPHS[kind], self._sign_style(kind)))
            segments.append(Segment(f" {meaning}  " if meaning else " "))
        if self.grid.mode == "owner":
            segments += self._owner_segments(mirror)
        return Strip(segments)

    def _owner_segments(self, mirror: CacheMirror) -> list[Segment]:
        holding = [sequence.seq_id for sequence in mirror.sequences.values() if sequence.block_table]
        numbers = sorted({owner_number(seq_id, self.view.name(seq_id)) for seq_id in holding})[:_MAX_OWNERS]
        signs = [Segment(sign, self._sign_style("@" + sign)) for sign in map(owner_glyph, numbers)]
        return [Segment("owner "), *signs] if signs else []

    def _sign_style(self, kind: str) -> Style:
        return self.grid.paint.sign_style(kind)
