"""What the history keeps and gives back, as plain values. Knows no database."""

from dataclasses import dataclass, field

import msgspec

from pagedchat.chat.session import ForkOrigin
from pagedchat.chat.turns import Entry

SERVER = "server:"
"""Before what was asked for, where that is a server."""


@dataclass(frozen=True, slots=True)
class ChatRecord:
    """One chat as it stands: a path through the turns of its tree, and what else belongs to it."""

    chat_id: int
    tree_id: int
    title: str
    turns: tuple[Entry, ...] = ()
    """From the first to the last; each is the parent of the next."""
    open_turn_id: int = 0
    """Of the reply that is being written; 0 where none is, or where it has no text yet."""
    open_text: str = ""
    queue: tuple[str, ...] = ()
    """Prompts that wait to be sent."""
    draft: str = ""
    """What is written in the composer and not sent."""
    system: str | None = None
    settings: str = "{}"
    """The chat's sampling, and what becomes of a full context, as JSON."""
    model: str = ""
    """Which one answered last."""
    origin: ForkOrigin | None = None
    branches: tuple[tuple[Entry, int], ...] = field(default=(), compare=False)
    """Of what is read: every turn of the tree and its parent, 0 where it has none, parents first. They are written
    as turns of the chats that said them."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing in it that anybody wrote."""
        return not (self.turns or self.open_text or self.queue or self.draft.strip())


class PaneRecord(msgspec.Struct, frozen=True):
    """One chat's place on the screen."""

    number: int
    """By which Alt+1 … Alt+9 reach it."""
    chat_id: int | None
    """None where the chat was empty: there is a pane, and nothing to keep of it."""
    beside: int = 0
    """How many groups stood on the left of its own."""


class LayoutRecord(msgspec.Struct, frozen=True):
    """Which chats a program has open, and how they stand."""

    panes: tuple[PaneRecord, ...] = ()
    focused: int = 0
    """The active chat's number."""
    wanted: int | None = None
    """Panes asked for; None: as many as there are chats."""
    zoomed: bool = False
    models: tuple[str, ...] = ()
    """What was asked for where several engines and servers stood side by side, or a single server; from left to
    right, a server as `server:` and its address."""


class FoundChat(msgspec.Struct, frozen=True):
    """One row of a list of chats."""

    number: int
    """By which people name it: `--resume 12`."""
    chat_id: int
    title: str
    num_turns: int
    opening: str
    """The beginning of its first prompt, or of what was drafted."""
    changed: float
    """When it was last written, in seconds as the clock on the wall has them."""
    model: str
    open_in: int | None = None
    """The process that has it open, if one has."""
    passage: str = ""
    """Around what was searched for; empty where only the title has it."""


class FoundChats(msgspec.Struct, frozen=True):
    """What a list shows."""

    chats: tuple[FoundChat, ...]
    num_all: int
    """Chats in the history, those that are not shown included."""
