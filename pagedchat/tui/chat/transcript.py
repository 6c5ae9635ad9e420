"""Shows one chat's turns. Drawn line by line (Textual's Line API): finished rows are kept as strips, and only what
changed is wrapped and drawn again, so a long chat costs no more than a short one.
"""

from rich.cells import set_cell_size
from rich.style import Style
from textual import events
from textual.geometry import Region, Size
from textual.message import Message
from textual.selection import Selection
from textual.strip import Strip

from pagedchat.chat.session import ChatSession
from pagedchat.tui.chat.following_view import FollowingView
from pagedchat.tui.chat.transcript_paint import Tint, TranscriptPaint
from pagedchat.tui.kit.line_view import laid_over
from pagedchat.tui.kit.selected_text import selection_style
from pagedchat.view.chats.chat_rows import ChatRows, Splice
from pagedchat.view.chats.chat_tokens import Passage
from pagedchat.view.chats.likelihood import TokenPlace, passage_of, row_likelihoods, token_at, told_of
from pagedchat.view.chats.reading import Reading
from pagedchat.view.chats.row_spans import Span, passages, spans_by_row, text_span
from pagedchat.view.chats.transcript_rows import GUTTER, PENDING, Row
from pagedchat.view.markdown.pieces import copied, source_span


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
        "transcript--likely",
        "transcript--unsure",
        "transcript--doubtful",
        "transcript--token",
        "transcript--strong",
        "transcript--emphasis",
        "transcript--strike",
        "transcript--code",
        "transcript--codeblock",
        "transcript--label",
        "transcript--heading1",
        "transcript--heading",
        "transcript--link",
        "transcript--url",
        "transcript--bullet",
        "transcript--frame",
        "transcript--column",
        "transcript--pad",
        "transcript--indent",
        "transcript--thought",
        "transcript--escape",
        "transcript--keyword",
        "transcript--name",
        "transcript--string",
        "transcript--number",
        "transcript--comment",
        "transcript--inserted",
        "transcript--deleted",
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
        & > .transcript--strong { text-style: bold; }
        & > .transcript--emphasis { text-style: italic; }
        & > .transcript--strike { text-style: strike; }
        & > .transcript--code { color: $text-accent; background: $foreground 8%; }
        & > .transcript--codeblock { background: $foreground 6%; }
        & > .transcript--label { color: $foreground 45%; }
        & > .transcript--heading1 { color: $text-primary; text-style: bold underline; }
        & > .transcript--heading { color: $text-primary; text-style: bold; }
        & > .transcript--link { color: $text-accent; text-style: underline; }
        & > .transcript--url { color: $foreground 50%; }
        & > .transcript--bullet { color: $text-accent; }
        & > .transcript--frame { color: $foreground 35%; }
        & > .transcript--column { color: $foreground 35%; }
        & > .transcript--thought { color: $foreground 50%; text-style: italic; }
        & > .transcript--escape { color: $text-warning; background: $warning 15%; }
        & > .transcript--keyword { color: $text-primary; text-style: bold; }
        & > .transcript--name { color: $text-accent; }
        & > .transcript--string { color: $text-success; }
        & > .transcript--number { color: $text-warning; }
        & > .transcript--comment { color: $foreground 50%; text-style: italic; }
        & > .transcript--inserted { color: $text-success; }
        & > .transcript--deleted { color: $text-error; }
        & > .transcript--likely { background: $warning 14%; }
        & > .transcript--unsure { background: $warning 30%; text-style: underline; }
        & > .transcript--doubtful { background: $warning 48%; text-style: bold underline; }
        & > .transcript--token { text-style: reverse bold; }
        & > .transcript--lit { background: $accent 35%; text-style: underline; }
    }
    """

    class SelectionChanged(Message):
        """Other text of this chat is selected than before, or none."""

    class TokenClicked(Message):
        """A token of a reply was clicked of which it is known how likely it was."""

        def __init__(self, place: TokenPlace) -> None:
            super().__init__()
            self.place = place

    def __init__(self, session: ChatSession, note: str = "") -> None:
        """`note` is said about the model while the chat is empty."""
        super().__init__()
        self._session = session
        self._note, self._found = note, ""
        self._marker = ""
        self._reading = Reading()
        self._elsewhere = False
        self._chat = ChatRows()
        self._strips: list[Strip | None] = []
        self._styles: dict[str, Style] = {}
        """Styles that are dear to work out: the transcript's own, and those of its components."""
        self._past: str | None = None
        """All text of the chat at an earlier step, while that is shown."""
        self._lit: list[Passage] = []
        self._lit_spans: dict[int, list[Span]] = {}
        """Row -> spans of its text that are lit."""
        self._tints = False
        """Whether replies are coloured by how sure the model was."""
        self._token: TokenPlace | None = None
        """The token under the cursor."""
        self._token_spans: dict[int, list[Span]] = {}
        self._shown: object = None
        self._width = 0
        """Cells of the rows that are laid out."""

    # --- content ------------------------------------------------------------------------------------

    def refresh_view(
        self,
        marker: str = "",
        past: str | None = None,
        found: str = "",
        reading: Reading | None = None,
        *,
        elsewhere: bool = False,
    ) -> None:
        """Take over what changed in the chat; `marker` is the line that a fork begins with, `found` is said
        beside the note, once the engine is ready, `reading` says how replies are drawn, and `elsewhere` that a
        server answers.

        With `past` this text, all of the chat at an earlier step, is shown instead of the turns.
        """
        # The width belongs to it: Textual sends no Resize for a size that somebody asked for before the layout.
        reading = reading or self._reading
        width = self.scrollable_content_region.width
        shown = (self._session.version, marker, past, found, reading, elsewhere, width)
        if shown == self._shown:
            return
        self._shown, self._marker, self._past, self._found = shown, marker, past, found
        self._reading, self._elsewhere = reading, elsewhere
        if self._tints is not (tints := self._session.shows_likelihood and past is None):
            self._tints, self._strips = tints, [None] * len(self._strips)
            self.refresh()
        self._lay_out()

    def say_of_the_model(self, note: str) -> None:
        """Said while the chat is empty, from the next `refresh_view` on."""
        self._note, self._shown = note, None

    @property
    def is_laid_out(self) -> bool:
        """Whether there is a row for everything that it has to show."""
        return self._width > 0

    def _lay_out(self) -> None:
        width = self.scrollable_content_region.width
        if width <= GUTTER:
            return
        before = len(self._strips)
        first = self._update_rows(width)
        same_width, self._width = width == self._width, width
        first = min(first, before) if same_width else 0
        self._strips[first:] = [None] * (len(self._rows) - first)
        self._redraw_from(first, width, before)
        self._make_visible()
        if self._lit:
            self._place_lit()
        if self._token is not None:
            self.point_at(self._token)

    def _update_rows(self, width: int) -> int:
        """Take over what changed; returns the first row that is another one."""
        if self._past is not None:
            return self._chat.show_past(self._past, width)
        note = f"{self._note} {self._found}".strip()
        return self._chat.update(self._session, width, self._marker, note, self._reading, elsewhere=self._elsewhere)

    def watch_scroll_y(self, old_value: float, new_value: float) -> None:
        """What comes into sight is made."""
        super().watch_scroll_y(old_value, new_value)
        if round(old_value) != round(new_value):
            self._make_visible()

    def _make_visible(self) -> None:
        """Make the turns in sight; what was in sight already stays where it is."""
        top = round(self.scroll_y)
        bottom = top + self.size.height
        in_sight = range(top, min(len(self._rows), bottom))
        known = next((index for index in in_sight if self._rows[index] is not PENDING), top)
        made = self._chat.make(top, bottom)
        if not self._take_over(made):
            return
        self.set_virtual_size(Size(self._width, len(self._rows)))
        if self._follows:
            self.scroll_to_end()
        elif above := sum(splice.num_rows - splice.num_before for splice in made if splice.first < known):
            self.scroll_to(y=max(0, top + above), animate=False, force=True, immediate=True)
        self.refresh()
        self._make_visible()

    def _take_over(self, made: list[Splice]) -> bool:
        """Rows took the place of guessed ones; false if none did."""
        for splice in made:
            self._strips[splice.first :] = [None] * (len(self._rows) - splice.first)
        return bool(made)

    @property
    def _rows(self) -> list[Row]:
        return self._chat.rows

    def _redraw_from(self, first: int, width: int, rows_before: int) -> None:
        last = max(len(self._rows), rows_before)
        self.set_virtual_size(Size(width, len(self._rows)))
        changed = Region(0, first - self.scroll_offset.y, width, max(1, last - first))
        if in_sight := changed.intersection(self.size.region):
            self.refresh(in_sight)
        self.follow(grown=len(self._rows) > rows_before)

    def on_resize(self, event: events.Resize) -> None:
        """Rows depend on the width."""
        self._lay_out()

    def notify_style_update(self) -> None:
        """Strips carry colours: a new theme makes all of them anew."""
        super().notify_style_update()
        self._styles.clear()
        self._strips = [None] * len(self._rows)

    # --- thoughts -----------------------------------------------------------------------------------

    def toggle_thought(self, row: int | None = None) -> bool:
        """Open or fold the thought of this row, or the newest one; false if there is none."""
        row = self._chat.last_thought() if row is None else row
        if row is None or not self._chat.toggle_thought(row):
            return False
        self._lay_out()
        return True

    def on_click(self, event: events.Click) -> None:
        """The row of a thought is a button; so is a token of which something is told."""
        if self.text_selection or self.has_badge(event.y):
            return
        row = round(self.scroll_y) + event.y
        if not self.toggle_thought(row) and (place := self._token_at(event.x, row)) is not None:
            event.stop()
            self.post_message(self.TokenClicked(place))

    # --- how sure the model was ---------------------------------------------------------------------

    def point_at(self, place: TokenPlace | None, *, reveal: bool = False) -> None:
        """The cursor stands on this token; with `reveal` it is scrolled to if it is out of sight."""
        self._token = place
        before, self._token_spans = self._token_spans, {}
        if place is not None:
            found = [passage_of(self._session, place)]
            self._make_turns(found)
            self._token_spans = spans_by_row(self._chat, found)
        for index in before.keys() | self._token_spans.keys():
            if before.get(index) != self._token_spans.get(index):
                self._redraw_row(index)
        if reveal and self._token_spans:
            self.scroll_to_line(min(self._token_spans))

    def _token_at(self, x: int, index: int) -> TokenPlace | None:
        """The token that is drawn in a cell."""
        if not self._tints or not 0 <= index < len(self._rows) or x < GUTTER:
            return None
        row, part = self._rows[index], self._chat.part_at(index)
        at = len(set_cell_size(row.text, x - GUTTER + 1)) - 1
        source = source_span(row.pieces, at, at + 1) if 0 <= at < len(row.text) else None
        if part is None or source is None:
            return None
        token = token_at(told_of(self._session, part.turn), source[0])
        return None if token is None else TokenPlace(part.turn, token)

    def _tints_of(self, index: int) -> list[Tint]:
        part = self._chat.part_at(index) if self._tints else None
        told = told_of(self._session, part.turn) if part is not None else ()
        if not told:
            return []
        found = row_likelihoods(told, self._rows[index].pieces)
        return [(start, end, self._component(name)) for start, end, name in found]

    # --- drawing ------------------------------------------------------------------------------------

    def render_line(self, y: int) -> Strip:
        """One row of the screen."""
        index = round(self.scroll_y) + y
        if index >= len(self._rows):
            strip = Strip.blank(self.size.width, self._own_style)
        else:
            strip = self._row_strip(index)
        if self.has_badge(y):
            strip = self.with_badge(strip, self._component("badge"), ascii_only=self._ascii_only)
        return strip

    def _row_strip(self, index: int) -> Strip:
        selection = self.text_selection
        if selection is not None and (span := selection.get_span(index)) is not None:
            row, chosen = self._rows[index], selection_style(self.screen)
            strip = self._paint.row(row, [text_span(row, span)], chosen, self.size.width, cursor=False)
            return strip.apply_offsets(0, index)
        kept = self._strips[index]
        if kept is None:
            lit, name = self._lit_spans.get(index, ()), "lit"
            if token := self._token_spans.get(index):
                lit, name = token, "token"
            chosen = self._component(name) if lit else self._own_style
            kept = self._paint.row(self._rows[index], lit, chosen, self.size.width, tints=self._tints_of(index))
            kept = kept.apply_offsets(0, index)
            self._strips[index] = kept  # with its place, so that what Textual works out about it is kept as well
        return kept

    @property
    def _paint(self) -> TranscriptPaint:
        return TranscriptPaint(self._own_style, self._component, ascii_only=self._ascii_only)

    @property
    def _ascii_only(self) -> bool:
        return bool(getattr(self.app, "ascii", False))

    def _component(self, name: str) -> Style:
        style = self._styles.get(name)
        if style is None:
            style = self._styles[name] = laid_over(self, f"transcript--{name}")
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
        for index in range(*self._selected_rows(selection)):
            row, span = self._rows[index], selection.get_span(index)
            if span is not None:
                pieces.append((row.joiner if pieces else "") + copied(row.pieces, *text_span(row, span)))
        return ("".join(pieces), "\n") if pieces else None

    def _selected_rows(self, selection: Selection) -> tuple[int, int]:
        """The first and the one after the last; they are made, if nobody has looked at them yet."""
        first = selection.start.y if selection.start is not None else 0
        while True:
            last = len(self._rows) if selection.end is None else min(len(self._rows), selection.end.y + 1)
            if not self._take_over(self._chat.make(first, last)):
                return first, last

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

        return list(passages(self._chat, *self._selected_rows(selection), chosen))

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
        self._make_turns(self._lit)
        before, self._lit_spans = self._lit_spans, spans_by_row(self._chat, self._lit)
        for index in before.keys() | self._lit_spans.keys():
            if before.get(index) != self._lit_spans.get(index):
                self._redraw_row(index)

    def _make_turns(self, wanted: list[Passage]) -> None:
        if self._take_over(self._chat.make_turns([passage.turn for passage in wanted])):
            self.set_virtual_size(Size(self._width, len(self._rows)))
            self.refresh()

    def _redraw_row(self, index: int) -> None:
        if index < len(self._strips):
            self._strips[index] = None
            self.refresh(Region(0, index - self.scroll_offset.y, self.size.width, 1))
