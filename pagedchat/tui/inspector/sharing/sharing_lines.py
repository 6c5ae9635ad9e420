"""The lines of the sharing panel: drawn, and a cursor on the prefixes among them."""

from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.binding import Binding, BindingType
from textual.message import Message
from textual.strip import Strip

from pagedchat.tui.kit.owner_line_view import OwnerLineView
from pagedchat.view.sharing.panel_rows import Pieces
from pagedchat.view.sharing.prefix_tree import PrefixNode

_NAMES = ("dim", "text", "idle", "own", "shared", "good", "wrong", "advice", "pinned", "cursor")


class SharingLines(OwnerLineView):
    """Lines of text, of which the last ones are nodes of the tree."""

    DEFAULT_CSS = """
    SharingLines {
        & > .sharing-lines--dim { color: $foreground 50%; }
        & > .sharing-lines--text { color: $foreground 90%; }
        & > .sharing-lines--idle { color: $foreground 60%; }
        & > .sharing-lines--own { color: $foreground 80%; }
        & > .sharing-lines--shared { color: $text-accent; text-style: bold; }
        & > .sharing-lines--good { color: $text-success; }
        & > .sharing-lines--wrong { color: $text-error; text-style: bold; }
        & > .sharing-lines--advice { color: $text-warning; text-style: bold; }
        & > .sharing-lines--pinned { color: $text-warning; }
        & > .sharing-lines--cursor { color: $accent; text-style: bold reverse; }
    }
    """
    COMPONENT_PREFIX = "sharing-lines"
    COMPONENT_CLASSES: ClassVar[set[str]] = {f"sharing-lines--{name}" for name in _NAMES}
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("up", "move(-1)", "Prefix above", show=False),
        Binding("down", "move(1)", "Prefix below", show=False),
        Binding("enter", "open", "Open its first block", show=False),
    ]

    class Chosen(Message):
        """The cursor stands on this prefix; `None`: on none any more."""

        def __init__(self, node: PrefixNode | None) -> None:
            super().__init__()
            self.node = node

    class Opened(Message):
        """The first block of this prefix was asked for."""

        def __init__(self, node: PrefixNode) -> None:
            super().__init__()
            self.node = node

    def __init__(self) -> None:
        super().__init__()
        self.nodes: list[PrefixNode] = []
        self.cursor = 0
        """Index of the chosen node; nothing is chosen without the focus."""
        self._lines: list[Pieces] = []

    def show(self, lines: list[Pieces], nodes: list[PrefixNode]) -> None:
        """Show these lines, the last of which are the nodes; the cursor stays on the prefix on which it was."""
        chosen, before = self._chosen(), self._lines
        self._lines, self.nodes = lines, nodes
        firsts = {node.blocks[0]: index for index, node in enumerate(nodes)}
        here = firsts.get(chosen.blocks[0]) if chosen else None
        self.cursor = min(self.cursor, max(0, len(nodes) - 1)) if here is None else here
        if len(before) != len(lines):
            self.set_lines(len(lines))
        else:
            self.lines_changed([index for index, line in enumerate(lines) if line != before[index]])
        if self.has_focus and self._chosen() != chosen:
            self.post_message(self.Chosen(self._chosen()))

    def _chosen(self) -> PrefixNode | None:
        return self.nodes[self.cursor] if self.cursor < len(self.nodes) else None

    def _line_of_cursor(self) -> int:
        return len(self._lines) - len(self.nodes) + self.cursor

    # --- keys and mouse -----------------------------------------------------------------------------

    def action_move(self, rows: int) -> None:
        """To the prefix above or below; at the ends the lines scroll on."""
        cursor = max(0, min(self.cursor + rows, len(self.nodes) - 1))
        if cursor == self.cursor:
            self.scroll_relative(y=rows, animate=False)
        else:
            self._choose(cursor)

    def action_open(self) -> None:
        """Ask for the first block of the prefix."""
        if (node := self._chosen()) is not None:
            self.post_message(self.Opened(node))

    def on_click(self, event: events.Click) -> None:
        """Choose a prefix; a second click opens it."""
        offset = event.get_content_offset(self)
        if offset is None:
            return
        index = offset.y + self.scroll_offset.y - (len(self._lines) - len(self.nodes))
        if 0 <= index < len(self.nodes):
            self._choose(index)
            if event.chain == 2:
                self.action_open()

    def on_focus(self) -> None:
        """Show the cursor."""
        self.lines_changed([self._line_of_cursor()])
        self.post_message(self.Chosen(self._chosen()))

    def on_blur(self) -> None:
        """Hide the cursor."""
        self.lines_changed([self._line_of_cursor()])
        self.post_message(self.Chosen(None))

    def _choose(self, cursor: int) -> None:
        before, self.cursor = self._line_of_cursor(), cursor
        line, top = self._line_of_cursor(), self.scroll_offset.y
        self.lines_changed([before, line])
        if not top <= line < top + self.size.height:
            self.scroll_to(y=line if line < top else line - self.size.height + 1, animate=False)
        self.post_message(self.Chosen(self._chosen()))

    # --- drawing ------------------------------------------------------------------------------------

    def build_line(self, index: int) -> Strip:
        """One line; the chosen prefix is reversed as a whole."""
        chosen = self.has_focus and self.nodes and index == self._line_of_cursor()
        line = self._lines[index]
        if chosen:
            return Strip([Segment(text, self.style_of("sharing-lines--cursor")) for text, _ in line])
        return self.strip_of(line)
