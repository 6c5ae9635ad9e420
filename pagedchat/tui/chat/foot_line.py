"""The line under the panes: the last cache events in words, or what a command that is being typed may become."""

from collections import deque
from typing import TYPE_CHECKING

from textual.content import Content
from textual.widget import Widget

from pagedchat.chat.sanitize import one_line
from pagedchat.engine.mirror import CacheMirror
from pagedchat.tui.kit.lines import FAINT, MUTED, LinePart, join, text
from pagedchat.view.engine_view import EngineView
from pagedchat.view.sentences.event_lines import EventLine
from pagedchat.view.sentences.words import to_ascii

if TYPE_CHECKING:
    from pagedchat.tui.commands.registry import Candidate

_COLORS = {
    "FORK": "$text-accent",
    "COW": "$text-accent",
    "HIT": "$text-success",
    "PREEMPT": "$text-warning",
    "SWAP": "$text-warning",
    "EVICT": "$text-warning",
    "MISS": "$text-warning",
    "RESUME": "$text-success",
    "WAIT": "$text-warning",
    "LIMIT": "$text-warning",
}
_TOLD = frozenset({*_COLORS, "REWIND", "CLOSE", "PIN", "UNPIN"})
"""Allocations and plain steps come by the hundred; the inspector's log has them all."""
_MAX_SHOWN = 4


class EventTicker(Widget):
    """What last happened to blocks that is worth a word, the newest first."""

    DEFAULT_CSS = """
    EventTicker { height: 1; padding: 0 1; }
    """

    def __init__(self, view: EngineView) -> None:
        super().__init__()
        self.auto_links = False
        self._view = view
        self._mirror: CacheMirror | None = None
        self._num_seen = 0
        """Lines looked through, those without a word here among them."""
        self._of_server = False
        """Whether a server was shown last, of which there is nothing to tell."""
        self._told: deque[EventLine] = deque(maxlen=_MAX_SHOWN)
        self._warning = ""

    def follow(self, view: EngineView) -> None:
        """Tell what happens in this engine from now on."""
        if view is not self._view:
            self._view, self._mirror, self._num_seen = view, None, 0
            self._told.clear()
            self.refresh()

    def refresh_view(self, warning: str = "") -> None:
        """Take over new events, or those of another moment, and what is to be said before them."""
        if warning != self._warning:
            self._warning = warning
            self.refresh()
        mirror, count = self._view.mirror, self._view.num_lines
        of_server, self._of_server = self._of_server, self._view.server is not None
        if mirror is not self._mirror or of_server != self._of_server:
            self._told.clear()
            self.refresh()
        fresh = count if mirror is not self._mirror else count - self._num_seen
        self._mirror, self._num_seen = mirror, count
        told = [line for line in self._view.recent_events(fresh) if line.kind in _TOLD] if fresh else []
        self._told.extend(told)
        if told or 0 < fresh == count:  # the first events, told or not, change why there is nothing to tell
            self.refresh()

    def render(self) -> Content:
        """The newest events that fit."""
        lines = reversed(self._told)
        parts = [
            LinePart(
                rank,
                Content.assemble(
                    (f"{line.step} ", FAINT),
                    (f"{line.kind} ", _COLORS.get(line.kind, MUTED)),
                    (self._plain(one_line(line.text)), MUTED),
                ),
            )
            for rank, line in enumerate(lines)
        ]
        if self._warning:
            warned = LinePart(0, text(self._plain(self._warning), "$text-warning"))
            parts = [warned, *(part._replace(rank=part.rank + 1) for part in parts)]
        return join(parts, self.content_size.width, " · ") if parts else text(self._nothing(), FAINT)

    def _nothing(self) -> str:
        """Why there is nothing to tell: blocks may well have been allocated."""
        if self._view.server is not None:
            return "this server does not tell its blocks"
        if self._view.attached_to:  # what was before that is not known
            return "nothing shared, copied or evicted since this terminal attached"
        return "nothing shared, copied or evicted so far" if self._num_seen else "no cache events yet"

    def _plain(self, words: str) -> str:
        return to_ascii(words) if getattr(self.app, "ascii", False) else words


class CommandHints(Widget):
    """Stands in the place of the last events while a command is being typed."""

    DEFAULT_CSS = """
    CommandHints { height: 1; padding: 0 1; display: none; background: $surface; }
    """

    def __init__(self) -> None:
        super().__init__()
        self._candidates: list[Candidate] = []

    def show(self, candidates: "list[Candidate]") -> None:
        """Show these; none hides the line."""
        self._candidates = candidates
        self.display = bool(candidates)
        self.refresh()

    def render(self) -> Content:
        """The candidates; a single one with what it does."""
        return hints_line(self._candidates, self.content_size.width)


def hints_line(candidates: "list[Candidate]", width: int) -> Content:
    """As many as fit, in order."""
    if len(candidates) == 1:
        only = candidates[0]
        return join(
            [LinePart(0, text(only.label, "bold $text-primary")), LinePart(1, text(only.help, MUTED))], width
        )
    parts = [LinePart(rank, text(candidate.label, "$text-primary")) for rank, candidate in enumerate(candidates)]
    return join([*parts, LinePart(len(parts), text("Tab completes", FAINT))], width)
