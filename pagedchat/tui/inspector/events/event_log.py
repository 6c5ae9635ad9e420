"""The events panel: what happened to blocks and sequences, in words, and which of it is shown."""

from typing import ClassVar

from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.widgets import Input

from pagedchat.tui.inspector.events.event_kinds import EventKindsScreen
from pagedchat.tui.inspector.events.event_rows import EventLines
from pagedchat.tui.kit.quiet import QuietBorder
from pagedchat.view.engine_view import EngineView
from pagedchat.view.sentences.event_filter import EventFilter
from pagedchat.view.sentences.words import count, to_ascii


class EventLog(QuietBorder, Vertical):
    """Lines, and an input for a text filter while it is wanted."""

    DEFAULT_CSS = """
    EventLog {
        height: 1fr;
        & > Input { display: none; }
    }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("escape", "end_filter", "No filter", show=False)]

    def __init__(self, view: EngineView, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self.view = view
        self.lines = EventLines(view)
        self._input = Input(placeholder="part of a line; Enter keeps it, Esc drops it", compact=True)
        self._title = ""

    def compose(self) -> ComposeResult:
        """Lines above, the filter below."""
        yield self.lines
        yield self._input

    def on_mount(self) -> None:
        """Say what is seen."""
        self.border_subtitle = self._plain("j k line · Enter opens it · b block · s step")
        self._show_title()

    def refresh_view(self) -> None:
        """Follow the engine."""
        self.lines.refresh_view()
        self._show_title()

    # --- what is shown ------------------------------------------------------------------------------

    def cycle_kinds(self) -> None:
        """Changes, all, blocks, sequences, steps."""
        self.set_filter(self.lines.filter.next_group())

    def choose_kinds(self) -> None:
        """A menu with each kind by itself."""
        told: dict[str, int] = {}
        for line in self.view.lines:
            told[line.kind] = told.get(line.kind, 0) + 1
        menu = EventKindsScreen(self.lines.filter.kinds, told)
        self.app.push_screen(
            menu, lambda kinds: self.set_filter(self.lines.filter.with_kinds(kinds or frozenset()))
        )

    def set_filter(self, wanted: EventFilter) -> None:
        """Show what passes this filter."""
        if wanted != self.lines.filter:
            self.lines.filter = wanted
            self.lines.filter_again()
            self._show_title()

    def start_filter(self) -> None:
        """Show the input and go there at once: the next key may be on its way already."""
        self._input.display = True
        self.screen.set_focus(self._input)

    def action_end_filter(self) -> None:
        """Drop the text filter."""
        self._input.value = ""
        self._leave(shown=False)

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """Escape means something else where there is no filter."""
        if action == "end_filter":
            return bool(self._input.display)
        return super().check_action(action, parameters)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter as it is typed."""
        event.stop()
        self.set_filter(self.lines.filter.with_text(event.value))

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter, go back to the lines."""
        event.stop()
        self._leave(shown=bool(self.lines.filter.text))

    def _leave(self, shown: bool) -> None:
        self.screen.set_focus(self.lines)
        self._input.display = shown

    def _show_title(self) -> None:
        wanted = self.lines.filter
        found = f" · “{wanted.text}” {count(len(self.lines.shown), 'line')}" if wanted.text else ""
        title = f"Events · {wanted.name} (e E) · filter (/){found}"
        if title != self._title:
            self._title = title
            self.set_title(Content(self._plain(title)))

    def _plain(self, text: str) -> str:
        return to_ascii(text) if getattr(self.app, "ascii", False) else text
