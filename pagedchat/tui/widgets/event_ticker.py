"""One line that tells the last cache events in words, newest first."""

from textual.content import Content
from textual.widget import Widget

from pagedchat.chat.sanitize import one_line
from pagedchat.tui.engine_view import EngineView
from pagedchat.tui.lines import FAINT, MUTED, Part, join, text

_COLORS = {
    "FORK": "$text-accent",
    "COW": "$text-accent",
    "HIT": "$text-success",
    "PREEMPT": "$text-warning",
    "SWAP": "$text-warning",
    "EVICT": "$text-warning",
}
_TOLD = frozenset({*_COLORS, "REWIND", "CLOSE"})
"""Allocations and plain steps come by the hundred; the inspector's log has them all."""
_LOOK_BACK = 200
_MAX_SHOWN = 4


class EventTicker(Widget):
    """What last happened to blocks that is worth a word."""

    DEFAULT_CSS = """
    EventTicker { height: 1; padding: 0 1; }
    """

    def __init__(self, view: EngineView) -> None:
        super().__init__()
        self._view = view
        self._num_lines = -1

    def refresh_view(self) -> None:
        """Take over new events."""
        if self._view.num_lines != self._num_lines:
            self._num_lines = self._view.num_lines
            self.refresh()

    def render(self) -> Content:
        """The newest events that fit."""
        lines = [line for line in reversed(self._view.recent_events(_LOOK_BACK)) if line.kind in _TOLD]
        parts = [
            Part(
                rank,
                Content.assemble(
                    (f"{line.step} ", FAINT),
                    (f"{line.kind} ", _COLORS.get(line.kind, MUTED)),
                    (one_line(line.text), MUTED),
                ),
            )
            for rank, line in enumerate(lines[:_MAX_SHOWN])
        ]
        return join(parts, self.content_size.width, " · ") if parts else text("no cache events yet", FAINT)
