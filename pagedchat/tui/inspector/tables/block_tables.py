"""The block tables panel: which physical blocks each sequence has, in order, and what sharing saves."""

from rich.segment import Segment
from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.strip import Strip

from pagedchat.engine.mirror import CacheMirror
from pagedchat.tui.inspector.tables.table_lines import TableLines
from pagedchat.tui.kit.line_view import LineBar
from pagedchat.view.blocks.table_totals import count_tables
from pagedchat.view.engine_view import EngineView

_OK, _WRONG = ("√", "ok"), ("‼", "!!")
"""With all signs, and in ASCII."""
_RED = ("wrong", "wrong")


class BlockTables(Vertical):
    """All block tables and their sum. Their cursor posts which block was chosen or opened."""

    DEFAULT_CSS = """
    BlockTables { height: 1fr; }
    """

    def __init__(self, view: EngineView, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.view = view
        self.lines = TableLines(view)
        self._totals = LineBar()
        self._mirror: CacheMirror | None = None
        self._seen: object = None

    def compose(self) -> ComposeResult:
        """Tables above, totals below."""
        yield self.lines
        yield self._totals

    def on_mount(self) -> None:
        """Say what is seen."""
        self._show_title()

    def notify_style_update(self) -> None:
        """Another theme: the sum's colours too."""
        super().notify_style_update()
        self._seen = None

    def on_resize(self) -> None:
        """The sum may need another number of lines."""
        self.refresh_view()

    def refresh_view(self) -> None:
        """Follow the engine."""
        mirror = self.view.mirror
        if mirror is None:
            return
        view = self.view
        seen = (self.size, mirror.num_reports, view.highlighted, dict(view.labels), len(view.token_texts))
        if mirror is self._mirror and seen == self._seen:
            return
        self._mirror, self._seen = mirror, seen
        self.lines.refresh_view(mirror)
        self._totals.show(self._total_strips(mirror))

    def toggle_token_text(self) -> None:
        """Each block on a line with the text of its tokens, or a line a chat."""
        self.lines.toggle_token_text()
        self._show_title()

    def _show_title(self) -> None:
        text = "tables" if self.lines.by_block else "token text"
        self.border_title = Content(f"Block tables · {text} (t)")

    def _total_strips(self, mirror: CacheMirror) -> list[Strip]:
        """The sum on one line, or on more where there is no room; in red, with the engine's own, if it is wrong."""
        totals, ascii_only = count_tables(mirror), bool(getattr(self.app, "ascii", False))
        parts = list(totals.words(ascii_only=ascii_only))
        agrees = totals.agrees or mirror.last is None
        if not agrees and mirror.last is not None:
            pool = mirror.last.pool
            parts.append(f"but the engine counts {pool.table_entries} entries, {pool.in_use} used")
        line = (" | " if ascii_only else " · ").join(parts)
        lines = [line] if len(line) + 3 <= self.size.width else parts
        sign = _OK[ascii_only] if agrees else _WRONG[ascii_only]
        signs = [f"{sign} ", *[" " * (len(sign) + 1)] * (len(lines) - 1)]
        styles = [self.lines.style_of(f"table-lines--{name}") for name in (("running", "dim") if agrees else _RED)]
        return [
            Strip([Segment(sign, styles[0]), Segment(text, styles[1])])
            for sign, text in zip(signs, lines, strict=True)
        ]
