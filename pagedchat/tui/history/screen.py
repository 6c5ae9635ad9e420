"""All chats that are kept: searched as one types, opened, renamed, deleted, brought back."""

from pathlib import PurePath
from typing import ClassVar

from textual import on
from textual.app import ComposeResult
from textual.binding import Binding, BindingType
from textual.containers import Vertical
from textual.content import Content
from textual.screen import ModalScreen
from textual.widgets import Input, Static

from pagedchat.chat.sanitize import one_line
from pagedchat.errors import PagedChatError
from pagedchat.history.records import FoundChat
from pagedchat.tui.history.chat_list import ChatList
from pagedchat.tui.history.past_chats import PastChats
from pagedchat.tui.kit.lines import MUTED
from pagedchat.tui.kit.textual_quirks import start_work
from pagedchat.view.chats.past_chats import how_many, name_of
from pagedchat.view.sentences.words import to_ascii

_SEARCH = "Search all that was said, and titles"
_KEYS = "Esc closes · Enter opens · ^R renames · ^D deletes · ^Z undoes"
_NAME_KEYS = "Enter renames · Esc leaves the name as it is"
MAX_NAME = 80


class HistoryScreen(ModalScreen[None]):
    """The search has the keyboard; all other keys are about the chosen chat.

    Args:
        past: what can be done.
        words: what is searched for at first.
    """

    CSS_PATH: ClassVar[str | PurePath | list[str | PurePath] | None] = "screen.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding("escape,ctrl+s", "leave", "close", priority=True),
        Binding("up", "move(-1)", "up", priority=True),
        Binding("down", "move(1)", "down", priority=True),
        Binding("pageup", "page(-1)", "page up", priority=True),
        Binding("pagedown", "page(1)", "page down", priority=True),
        Binding("ctrl+r", "rename", "rename", priority=True),
        Binding("ctrl+d", "delete", "delete", priority=True),
        Binding("ctrl+z", "undo", "undo", priority=True),
    ]

    def __init__(self, past: PastChats, words: str = "") -> None:
        super().__init__()
        self._past = past
        self._words = words
        self._renamed: FoundChat | None = None
        """The chat whose name is being written."""
        self._input = Input(words, placeholder=_SEARCH, compact=True)
        self._list = ChatList()
        self._foot = Static("", markup=False)

    def compose(self) -> ComposeResult:
        """Search, list, what there is to say."""
        with Vertical() as box:
            self._box = box
            yield self._input
            yield self._list
            yield self._foot

    def on_mount(self) -> None:
        """The frame's characters are those that the program may draw."""
        self._box.set_class(bool(getattr(self.app, "ascii", False)), "-ascii")
        self._title("History", _KEYS)
        self._say("Reading the history")
        self._refresh()

    def _title(self, title: str, keys: str) -> None:
        self._box.border_title = title
        self._box.border_subtitle = to_ascii(keys) if getattr(self.app, "ascii", False) else keys

    # --- the list -----------------------------------------------------------------------------------

    def _refresh(self) -> None:
        """Ask again; an answer that comes too late is dropped."""
        start_work(self, self._find, "find", exclusive=True)

    async def _find(self) -> None:
        try:
            found = await self._past.find(self._words)
        except PagedChatError as error:
            self._list.show((), ())
            self._say(str(error), bad=True)
            return
        here = {chat.chat_id for chat in found.chats if self._past.opened(chat.chat_id) is not None}
        self._list.show(found.chats, here)
        self._say(" ".join(filter(None, (how_many(found, self._words), self._past.problem))))

    def _say(self, text: str, *, bad: bool = False) -> None:
        self._foot.update(Content.styled(one_line(text), "$text-error" if bad else MUTED))

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
        if self._renamed is None and event.value != self._words:
            self._words = event.value
            self._list.choose_first()
            self._refresh()

    def action_move(self, steps: int) -> None:
        """To the next chat, or the one before."""
        if self._renamed is None:
            self._list.move(steps)

    def action_page(self, pages: int) -> None:
        """As many chats as are in sight."""
        self.action_move(pages * self._list.num_in_sight)

    # --- what is done with a chat -------------------------------------------------------------------

    @on(Input.Submitted)
    async def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        if self._renamed is not None:
            await self._rename(self._renamed, event.value)
        elif self._list.chosen is not None:
            await self._open(self._list.chosen)

    @on(ChatList.Opened)
    async def _clicked(self, event: ChatList.Opened) -> None:
        event.stop()
        await self._open(event.chat)

    async def _open(self, chat: FoundChat) -> None:
        try:
            await self._past.open(chat)
        except PagedChatError as error:
            self._say(str(error), bad=True)
        else:
            self.dismiss()

    def action_rename(self) -> None:
        """The chosen chat's name is written where the search was."""
        chat = self._list.chosen
        if chat is not None and self._renamed is None:
            self._renamed = chat
            self._title("Rename", _NAME_KEYS)
            self._input.max_length = MAX_NAME
            self._input.value = name_of(chat)[:MAX_NAME]
            self._input.select_all()

    async def _rename(self, chat: FoundChat, name: str) -> None:
        if one_line(name):
            try:
                await self._past.rename(chat, name)
            except PagedChatError as error:
                self._leave_name()
                self._say(str(error), bad=True)
                return
        self._leave_name()
        self._refresh()

    def _leave_name(self) -> None:
        """Search again."""
        self._title("History", _KEYS)
        self._input.max_length = 0
        self._input.value = self._words
        self._renamed = None

    async def action_delete(self) -> None:
        """Take the chosen chat away."""
        chat = self._list.chosen
        if chat is None or self._renamed is not None:
            return
        try:
            await self._past.delete(chat)
        except PagedChatError as error:
            self._say(str(error), bad=True)
        else:
            self.app.notify(f"Deleted “{name_of(chat)}”. ^Z brings it back.", timeout=3)
            self._refresh()

    async def action_undo(self) -> None:
        """Have the chat back that was deleted last."""
        if self._renamed is not None:
            return
        try:
            name = await self._past.undo()
        except PagedChatError as error:
            self._say(str(error), bad=True)
        else:
            self.app.notify(f"“{name}” is back.", timeout=3)
            self._refresh()

    def action_leave(self) -> None:
        """Back to the chats, or from a name to the search."""
        if self._renamed is not None:
            self._leave_name()
        else:
            self.dismiss()
