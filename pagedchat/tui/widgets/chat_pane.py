"""One chat on the screen: its figures in the border, its transcript, notices, the composer."""

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal, Vertical
from textual.content import Content
from textual.widgets import Static

from pagedchat.chat.prompt_history import PromptHistory
from pagedchat.chat.sanitize import sanitize
from pagedchat.chat.session import ChatSession
from pagedchat.tui.engine_view import EngineView
from pagedchat.tui.lines import MUTED
from pagedchat.tui.messages import ChatFocused, PromptSubmitted
from pagedchat.tui.pane_title import fork_marker, pane_footnote, pane_title, rule_style
from pagedchat.tui.widgets.composer import Composer
from pagedchat.tui.widgets.transcript import Transcript

_BORDER_CELLS = 4


class ChatPane(Vertical):
    """Shows a session; posts what the user sends. It never talks to the engine."""

    DEFAULT_CSS = """
    ChatPane {
        border: round $foreground 40%;
        padding: 0 0 0 1;
        border-subtitle-align: right;
        &.-active { border: round $primary; }
        & > Transcript { height: 1fr; }
        & > .notice {
            display: none;
            height: auto;
            max-height: 4;
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

    def __init__(self, session: ChatSession, view: EngineView, history: PromptHistory, note: str = "") -> None:
        super().__init__(id=f"chat-{session.session_id}")
        self.session = session
        self._view = view
        self.transcript = Transcript(session, note)
        self.composer = Composer(history)
        self._notice = Static(classes="notice")
        self._prompt = Horizontal(classes="prompt")
        self._texts: dict[str, Content] = {}

    def compose(self) -> ComposeResult:
        """Transcript over notice over prompt."""
        yield self.transcript
        yield self._notice
        with self._prompt:
            yield Static("›", classes="prompt-sign")
            yield self.composer

    # --- drawing ------------------------------------------------------------------------------------

    def refresh_view(self, limit: int, copies: int) -> None:
        """Take over what changed: `limit` is the context in tokens, `copies` the blocks copied on write."""
        self._refresh_border(limit)
        self.transcript.refresh_view(fork_marker(self.session, self._view, copies))
        self._refresh_notice()
        if returned := self.session.take_returned():
            self.composer.put_before(returned)

    def _refresh_border(self, limit: int) -> None:
        active = self.has_class("-active")
        room = self.outer_size.width - _BORDER_CELLS - 2
        title = pane_title(self.session, self._view, limit, room, active=active, rule=rule_style(active))
        queued = len(self.session.queue)
        waiting = Content(f"queued {queued} · ↑ edits" if queued else "")
        if self._changed("title", title):
            self.border_title = title
        if self._changed("footnote", footnote := pane_footnote(self.session, room)):
            self.border_subtitle = footnote
        if self._changed("queued", waiting):
            self._prompt.border_title = waiting

    def _refresh_notice(self) -> None:
        notice = self.session.notice
        content = Content("")
        if notice is not None:
            hint = f" {sanitize(notice.hint)}" if notice.hint else ""
            content = Content.assemble(sanitize(notice.message), (hint, MUTED))
        if self._changed("notice", content):
            self._notice.set_class(notice is not None, "-shown")
            self._notice.set_class(notice is not None and notice.error, "-error")
            self._notice.update(content)

    def _changed(self, name: str, content: Content) -> bool:
        before = self._texts.get(name)
        self._texts[name] = content
        return before is None or not before.is_same(content)

    # --- input --------------------------------------------------------------------------------------

    def take_focus(self) -> None:
        """Give the keyboard to this pane's composer."""
        self.composer.focus(scroll_visible=False)

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """The composer has the keyboard."""
        self.post_message(ChatFocused(self.session.session_id))

    def on_click(self, event: events.Click) -> None:
        """A click anywhere in the pane chooses it, unless text was selected."""
        if not self.screen.selections:
            self.take_focus()

    @on(Composer.Sent)
    def _sent(self, event: Composer.Sent) -> None:
        event.stop()
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
