"""What a server tells, where the inspector of an engine has its panels: its figures, and what it does not tell."""

from textual.app import ComposeResult
from textual.containers import VerticalScroll
from textual.content import Content
from textual.widgets import Static

from pagedchat.chat.sanitize import one_line
from pagedchat.tui.kit.lines import FAINT, MUTED, PLAIN, content_to_ascii
from pagedchat.view.engine_view import EngineView
from pagedchat.view.sentences.server_words import Line, server_lines, who_answers
from pagedchat.view.state.server import ServerState

_NAME_CELLS = 14


class ServerPanel(VerticalScroll, can_focus=True):
    """Scrolls where it has no room. Draws itself anew only when a figure changed."""

    DEFAULT_CSS = """
    ServerPanel {
        height: 1fr;
        border: round $foreground 25%;
        border-title-color: $text-muted;
        padding: 0 1;
        &:focus { border: round $primary; border-title-color: $text-primary; }
        &.-ascii { border: ascii $foreground 25%; }
        & > Static { height: auto; }
    }
    """

    def __init__(self, view: EngineView) -> None:
        super().__init__()
        self._view = view
        self._text = Static(markup=False)
        self._drawn = Content("")
        self.border_title = "Server"

    def compose(self) -> ComposeResult:
        """One text."""
        yield self._text

    def on_mount(self) -> None:
        """Borders that every terminal has."""
        self.set_class(bool(getattr(self.app, "ascii", False)), "-ascii")

    def refresh_view(self) -> None:
        """Take over what changed."""
        if self._view.server is None:
            return
        content = server_text(self._view.server)
        content = content_to_ascii(content) if getattr(self.app, "ascii", False) else content
        if not content.is_same(self._drawn):
            self._drawn = content
            self._text.update(content)


def server_text(state: ServerState) -> Content:
    """All of it."""
    most = state.info.max_model_len
    context = f"{most:,} tokens of context" if most else "length of context not told"
    lines = [
        Content.styled(who_answers(state), "bold $text-accent"),
        Content.assemble((one_line(state.info.model), "bold"), (f" · {context}", MUTED)),
        *(_drawn_line(line) for line in server_lines(state)),
    ]
    return Content("\n").join(lines)


def _drawn_line(line: Line) -> Content:
    style = PLAIN if line.told else FAINT
    if line.name:
        return Content.assemble((f"  {line.name:<{_NAME_CELLS}}", MUTED), (line.words, style))
    if line.told:
        return Content.assemble("\n", (line.words, "bold $text-primary"))
    return Content.styled(f"  {line.words}", style)
