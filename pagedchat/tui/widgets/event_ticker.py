"""One line that tells the last cache events in words, newest first."""

from textual.content import Content
from textual.widget import Widget

from pagedchat.chat.sanitize import one_line
from pagedchat.tui.ascii_text import to_ascii
from pagedchat.tui.engine_view import EngineView
from pagedchat.tui.lines import FAINT, MUTED, Part, join, text

_COLORS = {
    "FORK": "$text-accent",
    "COW": "$text-accent",
    "HIT": "$text-success",
    "PREEMPT": "$text-warning",
    "SWAP": "$text-warning",
    "EVICT": "$text-warning",
    "MISS": "$text-warning",
    "RESUME": "$text-success",
    "LIMIT": "$text-warning",
}
_TOLD = frozenset({*_COLORS, "REWIND", "CLOSE", "PIN", "UNPIN"})
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
        self._seen: tuple[object, int] = (None, 0)

    def refresh_view(self) -> None:
        """Take over new events, or those of another moment."""
        mirror, count = self._view.mirror, self._view.num_lines
        if mirror is not self._seen[0] or count != self._seen[1]:
            self._seen = mirror, count
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
                    (self._plain(one_line(line.text)), MUTED),
                ),
            )
            for rank, line in enumerate(lines[:_MAX_SHOWN])
        ]
        return join(parts, self.content_size.width, " · ") if parts else text("no cache events yet", FAINT)

    def _plain(self, words: str) -> str:
        return to_ascii(words) if getattr(self.app, "ascii", False) else words
