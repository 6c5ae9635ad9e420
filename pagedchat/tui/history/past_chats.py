"""What can be done with past chats: find, open, rename, delete, and have the last deleted one back.

Every answer of the history is awaited, never waited for. Knows the desk and the panes; draws nothing.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol, TypeVar

from pagedchat.chat.session import ChatSession
from pagedchat.errors import PagedChatError
from pagedchat.history.keeper import HistoryKeeper
from pagedchat.history.opened import OpenHistory
from pagedchat.history.records import FoundChat, FoundChats
from pagedchat.history.run import set_origins
from pagedchat.history.sessions import session_of
from pagedchat.history.thread import HistoryThread
from pagedchat.tui.chat.screen import ChatScreen
from pagedchat.tui.engine_group import EngineGroups
from pagedchat.view.chats.past_chats import name_of

T = TypeVar("T")


class ProgramWithChats(Protocol):
    """The program, as far as past chats become present ones."""

    groups: EngineGroups
    """All chats, by their engines."""
    chats: ChatScreen
    """Those on the screen."""

    def look_at_chats(self) -> None:
        """Hand over what has changed."""

    def say(self, message: str) -> None:
        """One short sentence that goes away by itself."""


class PastChats:
    """The history as the screens use it.

    Args:
        app: the program.
        thread: the history.
        keeper: who is told what was opened.
    """

    def __init__(self, app: ProgramWithChats, thread: HistoryThread, keeper: HistoryKeeper) -> None:
        self._app = app
        self._thread = thread
        self._keeper = keeper

    @property
    def problem(self) -> str:
        """Why what is new is not kept now; empty while it is."""
        return "" if self._thread.problem is None else str(self._thread.problem)

    def opened(self, chat_id: int) -> ChatSession | None:
        """The chat, if it is open here."""
        return next((chat for chat in self._app.groups.chats if chat.chat_id == chat_id), None)

    async def find(self, words: str) -> FoundChats:
        """The chats that have these words; the last ones if there are none.

        Raises:
            PagedChatError: the history cannot be read.
        """
        self._app.look_at_chats()
        return await self._ask(lambda history: history.search.chats(words))

    async def open(self, chat: FoundChat) -> None:
        """Bring a chat onto the screen: to its pane, or into a new one, in the place of an empty chat.

        Raises:
            PagedChatError: it cannot be read, or is gone.
        """
        session = self.opened(chat.chat_id)
        if session is None:
            session = await self._reopen(chat)
        self._app.chats.focus_chat(session)

    async def _reopen(self, chat: FoundChat) -> ChatSession:
        found = await self._ask(lambda history: history.chat(chat.chat_id))
        if found is None:
            raise PagedChatError(f"“{name_of(chat)}” is not in the history any more.")
        record, about = found
        desk = self._app.groups.shown.desk
        session = session_of(record, desk.free_id())
        set_origins([session], self._app.groups.chats)
        if not about:  # else it is a fork, and new
            self._keeper.know([session])
        before = self._app.chats.focused_chat
        desk.add(session)
        await self._app.chats.add_pane(session)
        if self._is_untouched(before):
            self._app.chats.close_chat(before)
        if about:
            self._app.say(about)
        return session

    def _is_untouched(self, chat: ChatSession) -> bool:
        return not (chat.entries or chat.busy or chat.queue or self._app.chats.drafts.get(chat.session_id))

    async def rename(self, chat: FoundChat, name: str) -> None:
        """Call a chat something else.

        Raises:
            PagedChatError: another program has it open, or it cannot be written.
        """
        session = self.opened(chat.chat_id)
        if session is not None:
            self._app.groups.of(session).desk.rename(session, name)
            return
        _refuse_others(chat)
        await self._ask(lambda history: history.store.rename(chat.chat_id, name))

    async def delete(self, chat: FoundChat) -> None:
        """Take a chat off the lists, and off the screen.

        Raises:
            PagedChatError: another program has it open, or it cannot be written.
        """
        _refuse_others(chat)
        session = self.opened(chat.chat_id)
        if session is not None:
            await self._close(session)
        await self._ask(lambda history: history.store.delete(chat.chat_id))

    async def delete_open(self, session: ChatSession) -> str:
        """Delete a chat that is open here; returns what it was called.

        Raises:
            PagedChatError: it cannot be written.
        """
        label = session.label
        self._app.look_at_chats()
        await self._close(session)
        await self._ask(lambda history: history.store.delete(session.chat_id))
        return label

    async def _close(self, session: ChatSession) -> None:
        """The last one of its group makes way for an empty one."""
        desk = self._app.groups.of(session).desk
        if len(desk) == 1:
            await self._app.chats.add_pane(desk.new())
        self._app.chats.close_chat(session)

    async def undo(self) -> str:
        """Have the chat back that was deleted last; returns its name.

        Raises:
            PagedChatError: none was, or it cannot be written.
        """
        deleted = await self._ask(lambda history: history.store.last_deleted())
        if deleted is None:
            raise PagedChatError("There is no deleted chat to have back.")
        chat_id, name = deleted
        await self._ask(lambda history: history.store.restore(chat_id))
        return name

    async def _ask(self, question: Callable[[OpenHistory], T]) -> T:
        return await asyncio.wrap_future(self._thread.ask(question))


def _refuse_others(chat: FoundChat) -> None:
    if chat.open_in is not None:
        raise PagedChatError(f"“{name_of(chat)}” is open in another pagedchat, process {chat.open_in}.")
