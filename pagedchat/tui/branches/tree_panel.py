"""The tree of the active chat beside the chats: every branch, who stands on it, and the blocks that these hold of
their own and those that they share. What comes of a choice is not known here.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.message import Message
from textual.widgets import OptionList, Static
from textual.widgets.option_list import Option

from pagedchat.chat.sanitize import one_line
from pagedchat.chat.session import ChatSession
from pagedchat.tui.actions import KeyAction, remapped
from pagedchat.tui.chat.pane_title import state_sign
from pagedchat.tui.kit.lines import FAINT, MUTED, content_to_ascii
from pagedchat.view.chats.branches import BranchRow, branch_rows
from pagedchat.view.chats.desk import ChatDesk
from pagedchat.view.engine_view import EngineView
from pagedchat.view.sentences.words import count

MOST_ROWS = 2000
"""Of a tree that has more the newest are left out, and that is said."""
_TEXT = 200
"""Characters of a turn that a row may show."""
_WHO = {"user": "you ", "assistant": "ai  ", "system": "sys "}


class TreePanel(Vertical):
    """Follows the active chat.

    Args:
        desk: all chats.
        view: what is known of the engine.
        active: says which chat is the active one.
    """

    DEFAULT_CSS = """
    TreePanel { width: 48; max-width: 45%; border: round $foreground 25%; border-title-color: $text-muted; }
    TreePanel.-ascii { border: ascii $foreground 25%; }
    TreePanel:focus-within { border: round $primary; }
    TreePanel.-ascii:focus-within { border: ascii $primary; }
    TreePanel OptionList {
        height: 1fr; border: none; padding: 0; background: transparent; text-wrap: nowrap; text-overflow: ellipsis;
    }
    TreePanel OptionList:focus { border: none; }
    TreePanel #tree-note { height: auto; padding: 0 1; }
    """
    KEYS = (
        KeyAction("tree.go", "enter", "select", "go there", "", ""),
        KeyAction("chat.fork", "f9", "fork", "fork there", "", ""),
        KeyAction("tree.leave", "escape", "leave", "to the chat", "", ""),
    )
    """In the footer while it has the keyboard. No letter is among them: letters are written into the chat."""
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,f2,alt+down", "leave", "to the chat"),
        Binding("f9", "fork", "fork there", id="chat.fork"),
    ]

    @dataclass
    class Chosen(Message):
        """The active chat is to stand there."""

        turn_id: int

    @dataclass
    class ForkWanted(Message):
        """A new chat is to stand there."""

        turn_id: int

    class Left(Message):
        """Back to the chat."""

    def __init__(self, desk: ChatDesk, view: EngineView, active: Callable[[], ChatSession]) -> None:
        super().__init__()
        self._desk = desk
        self._view = view
        self._active = active
        self._rows: list[BranchRow] = []
        self._drawn: object = None

    def compose(self) -> ComposeResult:
        """The rows, and what the keys do."""
        yield OptionList()
        fork = remapped(self.KEYS[1], getattr(self.app, "keys", {})).key_display
        keys = f"(own+shared blocks) · Enter goes there · {fork} forks there · Esc back to the chat"
        yield Static(Content.styled(keys, FAINT), id="tree-note")

    def follow(self, desk: ChatDesk, view: EngineView) -> None:
        """The active chat is one of these from now on."""
        self._desk, self._view = desk, view

    def on_mount(self) -> None:
        """The frame's characters are those that the program may draw."""
        self.set_class(bool(getattr(self.app, "ascii", False)), "-ascii")
        self.refresh_view()

    @property
    def rows(self) -> list[BranchRow]:
        """What is shown, from the top to the bottom."""
        return self._rows

    @property
    def _list(self) -> OptionList:
        return self.query_one(OptionList)

    # --- drawing ------------------------------------------------------------------------------------

    def refresh_view(self) -> None:
        """Take over what changed."""
        active = self._active()
        chats = [chat for chat in self._desk if chat.tree is active.tree]
        told = [(chat.session_id, chat.label, chat.state, self._blocks(chat)) for chat in chats]
        shown = (id(active.tree), active.tree.version, active.session_id, [chat.version for chat in chats], told)
        if shown == self._drawn:
            return
        other = self._drawn is None or self._drawn[:3] != shown[:3]  # type: ignore[index]  # as it was made
        self._drawn = shown
        self._draw(active, chats, move=other)

    def _draw(self, active: ChatSession, chats: list[ChatSession], *, move: bool) -> None:
        before = self._list.highlighted
        self._rows = branch_rows(active, chats)[:MOST_ROWS]
        self._list.clear_options()
        self._list.add_options([Option(self._line(row)) for row in self._rows])
        here = next((i for i, row in enumerate(self._rows) if active in row.chats), None)
        if self._rows:
            self._list.highlighted = here if move or before is None else min(before, len(self._rows) - 1)
        self.border_title = Content(self._title(active, chats))

    def _title(self, active: ChatSession, chats: list[ChatSession]) -> str:
        turns = f"{len(self._rows)} of {len(active.tree)} turns" if len(self._rows) == MOST_ROWS else count(
            len(self._rows), "turn"
        )  # fmt: skip
        return f"Tree of {one_line(active.label)}: {turns}, {count(len(chats), 'chat')}"

    def _line(self, row: BranchRow) -> Content:
        """Where several chats stand their numbers will do: none of them is to be cut off."""
        style = "" if row.on_path else MUTED
        parts: list[tuple[str, str] | Content] = [(row.guide, FAINT), (_WHO[row.entry.turn.role], FAINT)]
        for chat in row.chats:
            called = one_line(chat.label) if len(row.chats) == 1 else str(chat.session_id)
            parts += [state_sign(chat, self._view), (f" {called}{self._blocks(chat)} ", "bold")]
        parts.append((one_line(row.entry.turn.text[:_TEXT]), style))
        line = Content.assemble(*parts)
        return content_to_ascii(line) if getattr(self.app, "ascii", False) else line

    def _blocks(self, chat: ChatSession) -> str:
        """What it holds now, as the engine reported it; empty where it holds nothing."""
        mirror = self._view.mirror
        if mirror is None or chat.session_id not in mirror.sequences:
            return ""
        own, shared = self._view.blocks_of(chat.session_id)
        return f" ({own}+{shared})" if own + shared else ""

    # --- choosing -----------------------------------------------------------------------------------

    def take_focus(self) -> None:
        """The rows have the keyboard."""
        self._list.focus()

    @on(OptionList.OptionSelected)
    def _selected(self, event: OptionList.OptionSelected) -> None:
        event.stop()
        self.post_message(self.Chosen(self._rows[event.option_index].entry.turn_id))

    def action_fork(self) -> None:
        """A new chat that stands on the highlighted turn."""
        place = self._list.highlighted
        if place is not None:
            self.post_message(self.ForkWanted(self._rows[place].entry.turn_id))

    def action_leave(self) -> None:
        """Back to the chat; the tree stays."""
        self.post_message(self.Left())
