"""How replies are decoded where that is more than a token a step: the beams of a search, or several answers to one
prompt, as a tree of blocks that grows and is pruned; drafts as slots, those that hold and those that do not.
"""

from typing import ClassVar

from textual.app import ComposeResult
from textual.containers import Vertical
from textual.content import Content
from textual.strip import Strip

from pagedchat.tui.kit.owner_line_view import OwnerLineView
from pagedchat.view.engine_view import EngineView
from pagedchat.view.groups.rows import Context, Pieces, group_rows
from pagedchat.view.owners import owner_number
from pagedchat.view.speculation.rows import draft_rows

_NAMES = ("dim", "text", "quote", "own", "shared", "copied", "good", "pruned")


class GroupLines(OwnerLineView):
    """Lines of pieces."""

    DEFAULT_CSS = """
    GroupLines {
        & > .group-lines--dim { color: $foreground 50%; }
        & > .group-lines--text { color: $foreground 90%; }
        & > .group-lines--quote { color: $foreground 75%; }
        & > .group-lines--own { color: $foreground 80%; }
        & > .group-lines--shared { color: $text-accent; text-style: bold; }
        & > .group-lines--copied { color: $text-warning; }
        & > .group-lines--good { color: $text-success; }
        & > .group-lines--pruned { color: $text-error; }
    }
    """
    COMPONENT_PREFIX = "group-lines"
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"group-lines--{name}" for name in _NAMES}

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[Pieces] = []

    def show(self, lines: list[Pieces]) -> None:
        """Show these lines."""
        before, self._lines = self._lines, lines
        if len(before) != len(lines):
            self.set_lines(len(lines))
        else:
            self.lines_changed([index for index, line in enumerate(lines) if line != before[index]])

    def build_line(self, index: int) -> Strip:
        """One line."""
        return self.strip_of(self._lines[index])


class GroupPanel(Vertical):
    """Stands in the place of the block tables when it is asked for."""

    DEFAULT_CSS = """
    GroupPanel { height: 1fr; }
    """

    def __init__(self, view: EngineView) -> None:
        super().__init__()
        self.view = view
        self.lines = GroupLines()
        self._seen: object = None

    def compose(self) -> ComposeResult:
        """Everything scrolls together."""
        yield self.lines

    def on_mount(self) -> None:
        """Say what is seen."""
        self.border_title = Content("Beams and drafts")

    def refresh_view(self) -> None:
        """Follow the engine, or the moment that is shown."""
        mirror = self.view.mirror
        if mirror is None or not self.lines.size:
            return
        width = self.lines.scrollable_content_region.width
        seen = (mirror, mirror.num_reports, dict(self.view.labels), width, len(self.view.token_texts))
        if seen == self._seen:
            return
        self._seen = seen
        context = Context(
            mirror, self.view.token_texts, self.view.name,
            lambda seq_id: owner_number(seq_id, self.view.name(seq_id)), width,
            bool(getattr(self.app, "ascii", False)),
        )  # fmt: skip
        shown = self.view.shown
        counters = mirror.last.counters if mirror.last is not None else None
        drafts = draft_rows(list(shown.drafts.steps), counters, context)
        self.lines.show([*group_rows(shown.groups.last, context), [], *drafts])
