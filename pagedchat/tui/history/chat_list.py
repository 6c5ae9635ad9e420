"""Past chats below one another, two lines each, one of them chosen. Knows no history: it shows what it is given."""

import time
from collections.abc import Collection, Sequence
from typing import ClassVar

from rich.segment import Segment
from textual import events
from textual.message import Message
from textual.strip import Strip

from pagedchat.history.records import FoundChat
from pagedchat.tui.kit.line_view import LineView
from pagedchat.view.chats.past_chats import past_chat_row
from pagedchat.view.sentences.words import to_ascii

_LINES = 2


class ChatList(LineView, can_focus=False):
    """The keys reach it through the screen, whose search has the keyboard."""

    COMPONENT_CLASSES: ClassVar[set[str]] = {"number", "title", "facts", "passage", "chosen"}

    DEFAULT_CSS = """
    ChatList {
        & > .number { color: $foreground 40%; }
        & > .title { color: $foreground; text-style: bold; }
        & > .facts { color: $foreground 60%; }
        & > .passage { color: $foreground 60%; }
        & > .chosen { color: $text-primary; text-style: bold reverse; }
    }
    """

    class Opened(Message):
        """A chat was clicked."""

        def __init__(self, chat: FoundChat) -> None:
            super().__init__()
            self.chat = chat

    def __init__(self) -> None:
        super().__init__()
        self._chats: Sequence[FoundChat] = ()
        self._open_here: Collection[int] = ()
        self._index = 0
        self._now = 0.0

    def show(self, chats: Sequence[FoundChat], open_here: Collection[int]) -> None:
        """These chats, of which some are open here; the same one stays chosen, if it is there."""
        chosen = self.chosen
        ids = [chat.chat_id for chat in chats]
        if chosen is not None and chosen.chat_id in ids:
            self._index = ids.index(chosen.chat_id)
        self._chats, self._open_here, self._now = chats, open_here, time.time()
        self._index = max(0, min(self._index, len(chats) - 1))
        self.set_lines(_LINES * len(chats))
        self._scroll_to_chosen()

    @property
    def chosen(self) -> FoundChat | None:
        """The chat that keys are about."""
        return self._chats[self._index] if self._index < len(self._chats) else None

    def choose_first(self) -> None:
        """Other words, another list: from the top."""
        self._index = 0

    def move(self, steps: int) -> None:
        """So many chats down, or up."""
        if self._chats:
            before, self._index = self._index, max(0, min(self._index + steps, len(self._chats) - 1))
            self.lines_changed([_LINES * index + line for index in (before, self._index) for line in range(_LINES)])
            self._scroll_to_chosen()

    @property
    def num_in_sight(self) -> int:
        """Chats that the height allows."""
        return max(1, self.size.height // _LINES)

    def _scroll_to_chosen(self) -> None:
        top, height = self.scroll_offset.y, self.size.height
        first = _LINES * self._index
        if first < top:
            self.scroll_to(y=first, animate=False)
        elif first + _LINES > top + height:
            self.scroll_to(y=first + _LINES - height, animate=False)

    def on_resize(self) -> None:
        """Lines are made for a width."""
        self.set_lines(self.num_lines)

    def on_click(self, event: events.Click) -> None:
        """Choose what was clicked; a second click opens it."""
        index = (event.y + self.scroll_offset.y) // _LINES
        if index < len(self._chats):
            self.move(index - self._index)
            if event.chain > 1:
                self.post_message(self.Opened(self._chats[index]))

    def build_line(self, index: int) -> Strip:
        """The first line of a chat, or the second."""
        number, second = divmod(index, _LINES)
        chat = self._chats[number]
        row = past_chat_row(chat, self.size.width, open_here=chat.chat_id in self._open_here, now=self._now)
        chosen = number == self._index
        if second:
            indent = " " * len(row.number)
            return Strip([Segment(indent), Segment(row.passage, self.style_of("passage"))])
        title, facts = row.title, row.facts
        if getattr(self.app, "ascii", False):
            title, facts = to_ascii(title), to_ascii(facts)
        return Strip([
            Segment(row.number, self.style_of("number")),
            Segment(title, self.style_of("chosen" if chosen else "title")),
            Segment(facts, self.style_of("facts")),
        ])  # fmt: skip
