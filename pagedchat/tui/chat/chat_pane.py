"""One chat on the screen: its figures in the border, its transcript, notices, the composer."""

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Static

from pagedchat.chat.prompt_history import PromptHistory
from pagedchat.chat.sanitize import drawable, one_line
from pagedchat.chat.session import ChatSession, Notice
from pagedchat.engine.mirror import CacheMirror
from pagedchat.errors import PagedChatError
from pagedchat.tui.chat.alternatives_panel import AlternativesPanel
from pagedchat.tui.chat.composer import Composer
from pagedchat.tui.chat.pane_title import pane_footnote, pane_title, past_title, rule_style
from pagedchat.tui.chat.transcript import Transcript
from pagedchat.tui.kit.lines import MUTED
from pagedchat.tui.kit.quiet import QuietBorder
from pagedchat.tui.messages import ChatFocused, PromptSubmitted
from pagedchat.view.chats.chat_tokens import chat_tokens
from pagedchat.view.chats.likelihood import TokenPlace
from pagedchat.view.chats.reading import ReadingSettings
from pagedchat.view.chats.transcript_rows import fork_marker
from pagedchat.view.engine_view import EngineView
from pagedchat.view.past.chat_texts import past_text
from pagedchat.view.sentences.words import to_ascii

_ROWS_FOR_ALL = 4
"""Text, a notice, and a prompt with the line above it."""
_BORDER_CELLS = 4
_READ_ONLY = "the past is read-only"


class ChatPane(QuietBorder, Vertical):
    """Shows a session; posts what the user sends. It never talks to the engine."""

    DEFAULT_CSS = """
    ChatPane {
        border: round $foreground 40%;
        padding: 0 0 0 1;
        border-subtitle-align: right;
        &.-active { border: round $primary; }
        & > Transcript { height: 1fr; }
        &.-low.-told > Transcript { display: none; }
        & > .notice {
            display: none;
            height: auto;
            max-height: 50%;
            padding: 0 1;
            margin: 0 1 0 0;
            background: $warning 15%;
            &.-shown { display: block; }
            &.-error { background: $error 15%; }
        }
        & > .prompt {
            height: auto;
            border-top: solid $foreground 15%;
            border-title-align: right;
            border-title-color: $text-warning;
            margin: 0 1 0 0;
        }
        &.-active > .prompt { border-top: solid $primary 40%; }
        & .prompt-sign { width: 2; height: 1; color: $foreground 40%; }
        &.-active .prompt-sign { color: $text-primary; text-style: bold; }
    }
    """

    def __init__(
        self,
        session: ChatSession,
        view: EngineView,
        history: PromptHistory,
        note: str = "",
        reading: ReadingSettings | None = None,
    ) -> None:
        super().__init__(classes="" if session.notice is None else "-told")
        self._reading = reading or ReadingSettings()
        self.session = session
        self._view = view
        self.transcript = Transcript(session, note)
        self.alternatives = AlternativesPanel(session)
        """On the screen from the first time on that it is opened."""
        self.composer = Composer(history)
        notice = notice_content(session.notice)
        self._notice = Static(notice, classes=_notice_classes(session.notice))
        """On the screen from the first notice on."""
        self._prompt = Horizontal(classes="prompt")
        self._texts = {"notice": notice}
        self._limit = 0
        """Tokens that the chat may hold; 0: not known yet."""
        self._lit_block: int | None = None
        self._lit_mirror: CacheMirror | None = None
        self._lit_seen: tuple[int, int] | None = None

    def compose(self) -> ComposeResult:
        """Transcript over notice over prompt."""
        yield self.transcript
        if self.session.notice is not None:
            yield self._notice
        with self._prompt:
            yield Static("›", classes="prompt-sign")
            yield self.composer

    # --- drawing ------------------------------------------------------------------------------------

    def refresh_figures(self, limit: int) -> None:
        """Say in the border how the chat stands; `limit` is the context in tokens."""
        self._limit = limit
        self._refresh_border()

    def refresh_text(self) -> None:
        """Take over what was written."""
        if self._view.past is None:
            marker = fork_marker(self.session, self._view)
            found = one_line(self._view.info.precision_reason) if self._view.info else ""
            marker = to_ascii(marker) if self._ascii_only else marker
            reading = self._reading.reading(self._view.info)
            elsewhere = self._view.server is not None
            self.transcript.refresh_view(marker, found=found, reading=reading, elsewhere=elsewhere)
        else:
            self.alternatives.close()
            self.transcript.refresh_view(past=past_text(self._view, self.session.session_id) or "")
        self.alternatives.refresh_view()
        if self._lit_block is not None:
            self._light(reveal=False)
        self._refresh_notice()
        if returned := self.session.take_returned():
            self.composer.put_before(returned)
        if prompt := self.session.take_taken_up():
            self.composer.take_out(prompt)

    def on_resize(self) -> None:
        """The border's texts shrink and grow with the pane. Where it is low a notice takes the place of the text:
        what is typed is always seen."""
        self.set_class(self.content_size.height < _ROWS_FOR_ALL, "-low")
        self._refresh_border()

    def _refresh_border(self) -> None:
        room = self.outer_size.width - _BORDER_CELLS - 2
        self.set_title(self._title(room))
        self.set_subtitle(pane_footnote(self.session, self._view, room))
        if self._changed("queued", waiting := self._prompt_title()):
            self._prompt.border_title = waiting

    def _title(self, room: int) -> Content:
        if self._view.past is not None:
            return past_title(self.session, self._view, room)
        active = self.has_class("-active")
        return pane_title(self.session, self._view, self._limit, room, active=active, rule=rule_style(active))

    def _prompt_title(self) -> Content:
        if self._view.past is not None:
            return Content(_READ_ONLY)
        queued = len(self.session.queue)
        how = "| Up edits" if self._ascii_only else "· ↑ edits"
        return Content(f"queued {queued} {how}" if queued else "")

    @property
    def _ascii_only(self) -> bool:
        return bool(getattr(self.app, "ascii", False))

    def _refresh_notice(self) -> None:
        notice = self.session.notice
        content = notice_content(notice)
        if self._prompt.is_attached and self._changed("notice", content):
            if not self._notice.is_attached:
                self.mount(self._notice, before=self._prompt)
            self.set_class(notice is not None, "-told")
            self._notice.set_classes(_notice_classes(notice))
            self._notice.update(content)

    def _changed(self, name: str, content: Content) -> bool:
        before = self._texts.get(name)
        self._texts[name] = content
        return before is None or not before.is_same(content)

    # --- text and blocks ----------------------------------------------------------------------------

    def selected_blocks(self) -> frozenset[int]:
        """The blocks in which the selected text lies; none without a selection."""
        selected = self.transcript.selected_passages()
        tokens = chat_tokens(self.session, self._view) if selected else None
        return tokens.blocks_of(selected) if tokens else frozenset()

    def light_block(self, block_id: int | None, *, reveal: bool = False) -> None:
        """Light up the text that this block holds, as long as it holds it; None lights nothing any more.

        With `reveal` the text is scrolled to if it is out of sight.
        """
        self._lit_block, self._lit_seen = block_id, None
        if block_id is None:
            self.transcript.light([])
        else:
            self._light(reveal=reveal)

    def _light(self, *, reveal: bool) -> None:
        """Find the block's text again if anything happened since it was found."""
        mirror = self._view.mirror
        seen = (mirror.num_reports if mirror else 0, self.session.version)
        if self._lit_block is None or (mirror is self._lit_mirror and seen == self._lit_seen):
            return
        self._lit_mirror, self._lit_seen = mirror, seen
        sequence = mirror.sequences.get(self.session.session_id) if mirror else None
        holds = sequence is not None and self._lit_block in sequence.block_table
        tokens = chat_tokens(self.session, self._view) if holds else None
        self.transcript.light(tokens.passages_of(self._lit_block) if tokens else [], reveal=reveal)

    # --- how sure the model was ---------------------------------------------------------------------

    def open_alternatives(self) -> None:
        """The alternatives of the newest reply, or put away.

        Raises:
            PagedChatError: nothing is known of any reply.
        """
        if self.alternatives.has_focus:
            self.alternatives.close()
        elif self._view.past is not None or not self._open_alternatives(self.alternatives.place):
            raise PagedChatError(*_nothing_told(self.session, past=self._view.past is not None))

    @on(Transcript.TokenClicked)
    def _token_clicked(self, event: Transcript.TokenClicked) -> None:
        event.stop()
        self._open_alternatives(event.place)

    def _open_alternatives(self, place: TokenPlace | None) -> bool:
        if not self.alternatives.is_attached:
            self.mount(self.alternatives, after=self.transcript)
        return self.alternatives.open(place)

    @on(AlternativesPanel.Moved)
    def _moved(self, event: AlternativesPanel.Moved) -> None:
        event.stop()
        self.transcript.point_at(event.place, reveal=True)
        if event.place is None and self.screen.focused in (self.alternatives, None):
            self.take_focus()

    # --- input --------------------------------------------------------------------------------------

    def take_focus(self) -> None:
        """Give the keyboard to this pane's composer, at once: of two in a row the last one wins."""
        self.screen.set_focus(self.composer, scroll_visible=False)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """The composer, or what is known of a token, has the keyboard."""
        self.post_message(ChatFocused(self.session.session_id))

    def on_click(self, event: events.Click) -> None:
        """A click anywhere in the pane chooses it, unless text was selected."""
        if not self.screen.selections:
            self.take_focus()

    @on(Composer.Sent)
    def _sent(self, event: Composer.Sent) -> None:
        event.stop()
        if self._view.past is not None and not event.prompt.startswith("/"):
            self.composer.put_before(event.prompt)
            self.app.notify(f"{_READ_ONLY.capitalize()}; go back to the live engine to send.")
            return
        self.transcript.scroll_to_end()
        self.post_message(PromptSubmitted(self.session.session_id, event.prompt))

    @on(Composer.UnqueueRequested)
    def _unqueue(self, event: Composer.UnqueueRequested) -> None:
        event.stop()
        queued = self.session.unqueue()
        if queued is None:
            self.composer.recall(-1)
        else:
            self.composer.put_before(queued)

    @on(Composer.Scrolled)
    def _scrolled(self, event: Composer.Scrolled) -> None:
        event.stop()
        if event.pages:
            self.transcript.scroll_page(event.pages)
        else:
            self.transcript.scroll_to_end()


def _nothing_told(session: ChatSession, *, past: bool) -> tuple[str, str]:
    """Why nothing is known of a chat's replies, and what to do."""
    if past:
        return "How sure the model was is not recorded.", "Go back to the live engine."
    if not session.shows_likelihood:
        return "How sure the model was is not asked for in this chat.", "/logprobs on asks from the next reply on."
    if not any(entry.turn.role == "assistant" for entry in session.entries):
        return "There is no reply yet.", "Send a prompt first."
    return (
        "How sure the model was of these replies is not known: they are from before /logprobs was on, or from an "
        "earlier run of the program.",
        "Ask again, with ^G.",
    )


def _notice_classes(notice: Notice | None) -> str:
    shown = "" if notice is None else " -shown -error" if notice.error else " -shown"
    return f"notice{shown}"


def notice_content(notice: Notice | None) -> Content:
    """What is wrong, and fainter what to do about it; empty where nothing is."""
    if notice is None:
        return Content("")
    hint = f" {drawable(notice.hint)}" if notice.hint else ""
    return Content.assemble(drawable(notice.message), (hint, MUTED))
