"""Shows one chat's turns. Drawn line by line (Textual's Line API): finished rows are kept as strips, and only what
changed is wrapped and drawn again, so a long chat costs no more than a short one.
"""

from itertools import chain

from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip

from pagedchat.chat.session import ChatSession
from pagedchat.tui.chat.following_view import FollowingView
from pagedchat.tui.chat.transcript_paint import TranscriptPaint
from pagedchat.tui.kit.selected_text import selection_style
from pagedchat.view.chats.chat_tokens import Passage
from pagedchat.view.chats.row_spans import Span, first_difference, num_same, passages, spans_by_row, text_span
from pagedchat.view.chats.transcript_rows import GUTTER, Row, RowBlock, past_blocks, session_blocks


class Transcript(FollowingView, can_focus=False):
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
        "transcript--past",
        "transcript--lit",
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
        & > .transcript--past { color: $foreground 75%; }
        & > .transcript--lit { background: $accent 35%; text-style: underline; }
    }
    """

    class SelectionChanged(Message):
        """Other text of this chat is selected than before, or none."""

    def __init__(self, session: ChatSession, note: str = "") -> None:
        """`note` is said about the model while the chat is empty."""
        super().__init__()
        self._session = session
        self._note, self._found = note, ""
        self._marker = ""
        self._blocks: list[RowBlock] = []
        self._rows: list[Row] = []
        self._strips: list[Strip | None] = []
        self._styles: dict[str, Style] = {}
        """Styles that are dear to work out: the transcript's own, and those of its components."""
        self._past: str | None = None
        """All text of the chat at an earlier step, while that is shown."""
        self._lit: list[Passage] = []
        self._lit_spans: dict[int, list[Span]] = {}
        """Row -> spans of its text that are lit."""
        self._shown: object = None
        self._width = 0
        """Cells of the rows that are laid out."""

    # --- content ------------------------------------------------------------------------------------

    def refresh_view(self, marker: str = "", past: str | None = None, found: str = "") -> None:
        """Take over what changed in the chat; `marker` is the line that a fork begins with, and `found` is said
        beside the note, once the engine is ready.

        With `past` this text, all of the chat at an earlier step, is shown instead of the turns.
        """
        # The width belongs to it: Textual sends no Resize for a size that somebody asked for before the layout.
        shown = (self._session.version, marker, past, found, self.scrollable_content_region.width)
        if shown == self._shown:
            return
        self._shown, self._marker, self._past, self._found = shown, marker, past, found
        self._lay_out()

    def say_of_the_model(self, note: str) -> None:
        """Said while the chat is empty, from the next `refresh_view` on."""
        self._note, self._shown = note, None

    def _lay_out(self) -> None:
        width = self.scrollable_content_region.width
        if width <= GUTTER:
            return
        known, self._blocks = self._blocks, self._make_blocks(width)
        kept = num_same(known, self._blocks)
        start = sum(len(block.rows) for block in known[:kept])
        tail = list(chain.from_iterable(block.rows for block in self._blocks[kept:]))
        same_width, self._width = width == self._width, width
        first = start + first_difference(self._rows[start:], tail) if same_width else 0
        before = len(self._rows)
        self._rows[start:] = tail
        self._strips[first:] = [None] * (len(self._rows) - first)
        self._redraw_from(first, width, before)
        if self._lit:
            self._place_lit()

    def _make_blocks(self, width: int) -> list[RowBlock]:
        if self._past is not None:
            return past_blocks(self._past, width, self._blocks)
        note = f"{self._note} {self._found}".strip()
        return session_blocks(self._session, width, self._marker, note, self._blocks)

    def _redraw_from(self, first: int, width: int, rows_before: int) -> None:
        last = max(len(self._rows), rows_before)
        self.set_virtual_size(Size(width, len(self._rows)))
        self.refresh(Region(0, first - self.scroll_offset.y, self.size.width, max(1, last - first)))
        self.follow(grown=len(self._rows) > rows_before)

    def on_resize(self, event: events.Resize) -> None:
        """Rows depend on the width."""
        self._lay_out()

    def notify_style_update(self) -> None:
        """Strips carry colours: a new theme makes all of them anew."""
        super().notify_style_update()
        self._styles.clear()
        self._strips = [None] * len(self._rows)

    # --- drawing ------------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        """One row of the screen."""
        index = round(self.scroll_y) + y
        if index >= len(self._rows):
            strip = Strip.blank(self.size.width, self._own_style)
        else:
            strip = self._row_strip(index).apply_offsets(0, index)
        if self.has_badge(y):
            strip = self.with_badge(strip, self._component("badge"), ascii_only=self._ascii_only)
        return strip

    def _row_strip(self, index: int) -> Strip:
        selection = self.text_selection
        if selection is not None and (span := selection.get_span(index)) is not None:
            row, chosen = self._rows[index], selection_style(self.screen)
            return self._paint.row(row, [text_span(row, span)], chosen, self.size.width, cursor=False)
        strip = self._strips[index]
        if strip is None:
            lit = self._lit_spans.get(index, ())
            chosen = self._component("lit") if lit else self._own_style
            strip = self._strips[index] = self._paint.row(self._rows[index], lit, chosen, self.size.width)
        return strip

    @property
    def _paint(self) -> TranscriptPaint:
        return TranscriptPaint(self._own_style, self._component, ascii_only=self._ascii_only)

    @property
    def _ascii_only(self) -> bool:
        return bool(getattr(self.app, "ascii", False))

    def _component(self, name: str) -> Style:
        style = self._styles.get(name)
        if style is None:
            style = self._styles[name] = self.get_component_rich_style(f"transcript--{name}", partial=True)
        return style

    @property
    def _own_style(self) -> Style:
        style = self._styles.get("")
        if style is None:
            style = self._styles[""] = self.rich_style
        return style

    # --- selection ----------------------------------------------------------------------------------

    def get_selection(self, selection: Selection) -> tuple[str, str] | None:
        """The selected text as it was written: no gutter, and lines that were only wrapped are whole again."""
        pieces: list[str] = []
        for index, row in enumerate(self._rows):
            span = selection.get_span(index)
            if span is None:
                continue
            start, end = text_span(row, span)
            pieces.append((row.joiner if pieces else "") + row.text[start:end])
        return ("".join(pieces), "\n") if pieces else None

    def selection_updated(self, selection: Selection | None) -> None:
        """Called by Textual while the mouse selects."""
        self.refresh()
        self.post_message(self.SelectionChanged())

    def selected_passages(self) -> list[Passage]:
        """The parts of turns that are selected."""
        selection = self.text_selection
        if selection is None:
            return []

        def chosen(index: int, row: Row) -> Span | None:
            span = selection.get_span(index)
            return None if span is None else text_span(row, span)

        return list(passages(self._blocks, chosen))

    # --- light --------------------------------------------------------------------------------------

    def light(self, lit: list[Passage], *, reveal: bool = False) -> None:
        """Light up these passages and no others; with `reveal` scroll to the first if it is out of sight."""
        if lit != self._lit:
            self._lit = lit
            self._place_lit()
        if reveal and self._lit_spans:
            self.scroll_to_line(min(self._lit_spans))

    def _place_lit(self) -> None:
        """Draw the rows again whose light changed."""
        before, self._lit_spans = self._lit_spans, spans_by_row(self._blocks, self._lit)
        for index in before.keys() | self._lit_spans.keys():
            if before.get(index) != self._lit_spans.get(index) and index < len(self._strips):
                self._strips[index] = None
                self.refresh(Region(0, index - self.scroll_offset.y, self.size.width, 1))
