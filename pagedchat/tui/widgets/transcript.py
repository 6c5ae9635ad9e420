"""Shows one chat's turns. Drawn line by line (Textual's Line API): finished rows are kept as strips, and only what
changed is wrapped and drawn again, so a long chat costs no more than a short one.
"""

from itertools import chain

from rich.segment import Segment
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.scroll_view import ScrollView
from textual.selection import Selection
from textual.strip import Strip

from pagedchat.chat.session import ChatSession
from pagedchat.tui.transcript_rows import GUTTER, NO_GUTTER, Row, RowBlock, session_blocks

_BADGE = " ↓ new text "
_CURSOR = "▌"


class Transcript(ScrollView, can_focus=False):
    """Turns of a chat. It stays at the bottom while the user has not scrolled up."""

    ALLOW_SELECT = True
    COMPONENT_CLASSES = {  # noqa: RUF012 - Textual's own name and form
        "transcript--user",
        "transcript--assistant",
        "transcript--speaker-user",
        "transcript--speaker-assistant",
        "transcript--rule",
        "transcript--remark",
        "transcript--marker",
        "transcript--hint",
        "transcript--badge",
    }
    DEFAULT_CSS = """
    Transcript {
        overflow-x: hidden;
        overflow-y: auto;
        scrollbar-gutter: stable;
        scrollbar-size-vertical: 1;
        scrollbar-background: $background;
        scrollbar-background-hover: $background;
        scrollbar-background-active: $background;
        scrollbar-color: $foreground 15%;
        & > .transcript--user { color: $foreground; text-style: bold; }
        & > .transcript--assistant { color: $foreground; }
        & > .transcript--speaker-user { color: $text-primary; }
        & > .transcript--speaker-assistant { color: $text-success; }
        & > .transcript--rule { color: $foreground 25%; }
        & > .transcript--remark { color: $text-warning; text-style: italic; }
        & > .transcript--marker { color: $text-accent; text-style: italic; }
        & > .transcript--hint { color: $foreground 40%; }
        & > .transcript--badge { color: $background; background: $accent; }
    }
    """

    def __init__(self, session: ChatSession, note: str = "") -> None:
        """`note` is said about the model while the chat is empty."""
        super().__init__()
        self._session = session
        self._note = note
        self._marker = ""
        self._blocks: list[RowBlock] = []
        self._rows: list[Row] = []
        self._strips: list[Strip | None] = []
        self._drawn_version = -1
        self._follows = True
        self._unseen = False

    # --- content ------------------------------------------------------------------------------------

    def refresh_view(self, marker: str = "") -> None:
        """Take over what changed in the chat; `marker` is the line that a fork begins with."""
        if self._session.version == self._drawn_version and marker == self._marker:
            return
        self._marker, self._drawn_version = marker, self._session.version
        self._lay_out()

    def _lay_out(self) -> None:
        width = self.scrollable_content_region.width
        if width <= GUTTER:
            return
        known, self._blocks = (
            self._blocks,
            session_blocks(self._session, width, self._marker, self._note, self._blocks),
        )
        kept = _num_same(known, self._blocks)
        start = sum(len(block.rows) for block in known[:kept])
        tail = list(chain.from_iterable(block.rows for block in self._blocks[kept:]))
        first = start + _first_difference(self._rows[start:], tail)
        before = len(self._rows)
        self._rows[start:] = tail
        self._strips[first:] = [None] * (len(self._rows) - first)
        self._redraw_from(first, width, before)

    def _redraw_from(self, first: int, width: int, rows_before: int) -> None:
        last = max(len(self._rows), rows_before)
        self.virtual_size = Size(width, len(self._rows))
        self.refresh(Region(0, first - self.scroll_offset.y, self.size.width, max(1, last - first)))
        if self._follows:
            self.scroll_to_end()
        else:
            self._set_unseen(self._unseen or len(self._rows) > rows_before)

    def on_resize(self, event: events.Resize) -> None:
        """Rows depend on the width."""
        self._lay_out()

    def notify_style_update(self) -> None:
        """Strips carry colours: a new theme makes all of them anew."""
        super().notify_style_update()
        self._strips = [None] * len(self._rows)

    # --- scrolling ----------------------------------------------------------------------------------

    def scroll_to_end(self) -> None:
        """Show the newest text and stay with it."""
        self._follows = True
        self._set_unseen(False)
        # Forced, because the scroll bar that would allow it appears only with the next layout.
        self.scroll_end(animate=False, force=True, immediate=True, x_axis=False)

    def scroll_page(self, direction: int) -> None:
        """One page up (-1) or down (1)."""
        self._follows = False
        self.scroll_relative(y=direction * max(1, self.size.height - 2), animate=False)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """Whoever scrolls up reads; whoever scrolls to the end follows again."""
        super().watch_scroll_y(old_value, new_value)
        if old_value == new_value:
            return
        self._follows = new_value >= self.max_scroll_y
        if self._follows:
            self._set_unseen(False)

    def _set_unseen(self, unseen: bool) -> None:
        if unseen != self._unseen:
            self._unseen = unseen
            self.refresh()

    def on_click(self, event: events.Click) -> None:
        """The badge is a button."""
        if self._unseen and event.y == self.size.height - 1 and event.x >= self._badge_start():
            self.scroll_to_end()

    # --- drawing ------------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        """One row of the screen."""
        index = self.scroll_offset.y + y
        width = self.size.width
        if index >= len(self._rows):
            strip = Strip.blank(width, self.rich_style)
        else:
            strip = self._row_strip(index).apply_offsets(0, index)
        if self._unseen and y == self.size.height - 1:
            strip = self._with_badge(strip)
        return strip

    def _row_strip(self, index: int) -> Strip:
        selection = self.text_selection
        if selection is not None and (span := selection.get_span(index)) is not None:
            return self._selected_strip(self._rows[index], span)
        strip = self._strips[index]
        if strip is None:
            strip = self._strips[index] = self._make_strip(self._rows[index])
        return strip

    def _make_strip(self, row: Row) -> Strip:
        base = self.rich_style
        segments = [*self._gutter(row, base), Segment(row.text, base + self._style_of(row.kind))]
        if row.kind == "open":
            segments.append(Segment(_CURSOR, base + self._component("rule")))
        return Strip(segments).extend_cell_length(self.size.width, base)

    def _gutter(self, row: Row, base: Style) -> list[Segment]:
        if row.kind in NO_GUTTER:
            return []
        speaker = "user" if row.kind == "user" else "assistant"
        return [
            Segment(row.speaker, base + self._component(f"speaker-{speaker}")),
            Segment("▏ ", base + self._component("rule")),
        ]

    def _selected_strip(self, row: Row, span: tuple[int, int]) -> Strip:
        """The row with the selected characters in the selection's colours; the gutter is never selected."""
        base = self.rich_style
        style = base + self._style_of(row.kind)
        start, end = _text_span(row, span)
        chosen = style + self.screen.get_component_rich_style("screen--selection")
        parts = [(row.text[:start], style), (row.text[start:end], chosen), (row.text[end:], style)]
        segments = self._gutter(row, base) + [Segment(text, part_style) for text, part_style in parts if text]
        return Strip(segments).extend_cell_length(self.size.width, base)

    def _style_of(self, kind: str) -> Style:
        known = {"user": "user", "remark": "remark", "marker": "marker", "hint": "hint"}
        return self._component(known.get(kind, "assistant"))

    def _component(self, name: str) -> Style:
        return self.get_component_rich_style(f"transcript--{name}", partial=True)

    def _badge_start(self) -> int:
        return max(0, self.size.width - len(_BADGE) - 1)

    def _with_badge(self, strip: Strip) -> Strip:
        badge = Segment(_BADGE, self._component("badge"))
        start = self._badge_start()
        tail = strip.crop(min(start + len(_BADGE), strip.cell_length), strip.cell_length)
        return Strip([*strip.crop(0, start), badge, *tail])

    # --- selection ----------------------------------------------------------------------------------

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text as it was written: no gutter, and lines that were only wrapped are whole again."""
        pieces: list[str] = []
        for index, row in enumerate(self._rows):
            span = selection.get_span(index)
            if span is None:
                continue
            start, end = _text_span(row, span)
            pieces.append((row.joiner if pieces else "") + row.text[start:end])
        return ("".join(pieces), "\n") if pieces else None

    def selection_updated(self, selection: Selection | None) -> None:
        """Called by Textual while the mouse selects."""
        self.refresh()


def _text_span(row: Row, span: tuple[int, int]) -> tuple[int, int]:
    """A span of the drawn row (gutter included, -1: to the end) as a span of its text."""
    gutter = 0 if row.kind in NO_GUTTER else GUTTER
    start, end = span
    length = len(row.text)
    return min(length, max(0, start - gutter)), length if end == -1 else min(length, max(0, end - gutter))


def _num_same(old: list[RowBlock], new: list[RowBlock]) -> int:
    """Leading blocks that were taken over."""
    for index, (before, after) in enumerate(zip(old, new, strict=False)):
        if before is not after:
            return index
    return min(len(old), len(new))


def _first_difference(old: list[Row], new: list[Row]) -> int:
    for index, (before, after) in enumerate(zip(old, new, strict=False)):
        if before != after:
            return index
    return min(len(old), len(new))
