"""One line that tells what a command being typed may become, and how it is used."""

from typing import TYPE_CHECKING

from textual.content import Content
from textual.widget import Widget

from pagedchat.tui.kit.lines import FAINT, MUTED, LinePart, join, text

if TYPE_CHECKING:
    from pagedchat.tui.commands.registry import Candidate


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
