"""The events panel: what happened to blocks and sequences, in words, newest at the bottom."""

from typing import ClassVar, Literal

from rich.segment import Segment
from rich.style import Style
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.strip import Strip
from textual.widgets import Input

from pagedchat.engine.mirror import CacheMirror
from pagedchat.tui.engine_state import MAX_LINES
from pagedchat.tui.engine_view import EngineView
from pagedchat.tui.event_lines import GROUPS, EventLine, Group
from pagedchat.tui.widgets.line_view import LineView

Filter = Literal["changes", "all", "blocks", "sequences", "steps"]
_GROUPS: dict[Filter, tuple[Group, ...]] = {
    "changes": ("sequences", "blocks"),
    "all": ("sequences", "blocks", "steps"),
    "blocks": ("blocks",),
    "sequences": ("sequences",),
    "steps": ("steps",),
}
FILTERS = tuple(_GROUPS)
"""`changes` is all but the steps, which would push everything else out of sight."""

_KIND_WIDTH = max(map(len, GROUPS))
_STYLES = {
    "COW": "copied", "FORK": "fork", "HIT": "hit", "PREEMPT": "alarm", "EVICT": "warning", "SWAP": "swap",
    "STEP": "dim", "FREE": "dim", "PARK": "dim", "CLOSE": "dim",
}  # fmt: skip


class EventLines(LineView):
    """The lines that pass the filters; sticks to the newest unless somebody reads further up."""

    DEFAULT_CSS = """
    EventLines {
        & > .event-lines--dim { color: $foreground 50%; }
        & > .event-lines--plain { color: $foreground 85%; }
        & > .event-lines--copied { color: $text-warning; text-style: bold; }
        & > .event-lines--fork { color: $text-accent; text-style: bold; }
        & > .event-lines--hit { color: $text-primary; text-style: bold; }
        & > .event-lines--alarm { color: $text-error; text-style: bold; }
        & > .event-lines--warning { color: $text-warning; }
        & > .event-lines--swap { color: $text-secondary; text-style: bold; }
    }
    """
    COMPONENT_CLASSES: ClassVar[set[str]] = {
        f"event-lines--{name}" for name in ("dim", "plain", "copied", "fork", "hit", "alarm", "warning", "swap")
    }

    def __init__(self, view: EngineView) -> None:
        super().__init__()
        self.view = view
        self.shown: list[EventLine] = []
        """The lines that pass."""
        self.kinds: Filter = "changes"
        self.text = ""
        """Part of the line, in any case; empty passes all."""
        self._mirror: CacheMirror | None = None
        self._num_seen = 0

    def refresh_view(self) -> None:
        """Take in the lines told since the last call."""
        view = self.view
        if view.mirror is not self._mirror:
            self.filter_again()
            return
        count = view.num_lines - self._num_seen
        if not count:
            return
        self._num_seen = view.num_lines
        new = [line for line in view.recent_events(count) if self._passes(line)]
        if new:
            self._append(new)

    def filter_again(self) -> None:
        """Other filters, or another engine: choose from all lines that are kept."""
        self._mirror, self._num_seen = self.view.mirror, self.view.num_lines
        self.shown = [line for line in self.view.lines if self._passes(line)]
        self.set_lines(len(self.shown))
        self.call_after_refresh(self.scroll_end, animate=False, immediate=True)

    def _append(self, new: list[EventLine]) -> None:
        at_end = self.is_vertical_scroll_end
        self.shown += new
        excess = len(self.shown) - MAX_LINES
        if excess > 0:
            del self.shown[:excess]
        self.set_lines(len(self.shown))
        if at_end:
            self.scroll_end(animate=False, immediate=True)
        elif excess > 0:
            self.scroll_to(y=self.scroll_offset.y - excess, animate=False, immediate=True)

    def _passes(self, line: EventLine) -> bool:
        wanted = _GROUPS[self.kinds]
        return line.group in wanted and (not self.text or self.text in str(line).lower())

    def build_line(self, index: int) -> Strip:
        """Step, kind, words."""
        line = self.shown[index]
        dim = self._style("dim")
        style = self._style(_STYLES.get(line.kind, "plain"))
        return Strip(
            [
                Segment(f"{line.step:>5} ", dim),
                Segment(f"{line.kind:<{_KIND_WIDTH}} ", style),
                Segment(line.text, dim if style is dim else self._style("plain")),
            ]
        )

    def _style(self, name: str) -> Style:
        return self.style_of(f"event-lines--{name}")


class EventLog(Vertical):
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
        self.lines = EventLines(view)
        self._input = Input(placeholder="part of a line; Enter keeps it, Esc drops it", compact=True)

    def compose(self) -> ComposeResult:
        """Lines above, the filter below."""
        yield self.lines
        yield self._input

    def on_mount(self) -> None:
        """Say what is seen."""
        self._show_title()

    def refresh_view(self) -> None:
        """Follow the engine."""
        self.lines.refresh_view()

    def cycle_kinds(self) -> None:
        """Changes, all, blocks, sequences, steps."""
        self.lines.kinds = FILTERS[(FILTERS.index(self.lines.kinds) + 1) % len(FILTERS)]
        self._filter_again()

    def start_filter(self) -> None:
        """Show the input and go there at once: the next key may be on its way already."""
        self._input.display = True
        self.screen.set_focus(self._input)

    def action_end_filter(self) -> None:
        """Drop the text filter."""
        self._input.value = ""
        self._leave(shown=False)

    def on_input_changed(self, event: Input.Changed) -> None:
        """Filter as it is typed."""
        event.stop()
        self.lines.text = event.value.strip().lower()
        self._filter_again()

    def on_input_submitted(self, event: Input.Submitted) -> None:
        """Keep the filter, go back to the lines."""
        event.stop()
        self._leave(shown=bool(self.lines.text))

    def _leave(self, shown: bool) -> None:
        self.screen.set_focus(self.lines)
        self._input.display = shown

    def _filter_again(self) -> None:
        self.lines.filter_again()
        self._show_title()

    def _show_title(self) -> None:
        wanted = f" · “{self.lines.text}”" if self.lines.text else ""
        self.border_title = Content(f"Events · {self.lines.kinds} (e) · filter (/){wanted}")
