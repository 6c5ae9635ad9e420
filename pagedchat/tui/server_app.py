"""Servers beside an engine of this machine or in its place: asked by name, their models chosen, chats moved there.

What a server is asked, and how, is behind its link; here it is a group like any other.
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from textual import on

from pagedchat.chat.sanitize import one_line
from pagedchat.chat.session import ChatSession, Notice
from pagedchat.config import DEFAULT_MODEL
from pagedchat.errors import PagedChatError
from pagedchat.tui.engine_app import EngineApp
from pagedchat.tui.engine_group import EngineGroup
from pagedchat.tui.messages import EngineStateChanged
from pagedchat.view.sentences.words import count

if TYPE_CHECKING:
    from pagedchat.remote.openai.address import ServerAddress

LOCAL = "local"
"""What `/server` calls this machine."""


class ServerApp(EngineApp):
    """The part of the app that knows of servers."""

    # --- which server -------------------------------------------------------------------------------

    def choose_server(self) -> None:
        """A list of the servers of the settings file, and this machine.

        Raises:
            PagedChatError: none are named there.
        """
        known = list(self._options.known_servers.values())
        if not known:
            raise PagedChatError(
                "The settings file names no servers.",
                "Type /server URL, or write [servers.NAME] with url into the file.",
            )
        lines = [f"{server.name}  {server.url}" for server in known]
        choices = [server.text for server in known]
        self.choose(
            "Which server?", [*lines, "this machine"], lambda index: self.open_server([*choices, LOCAL][index])
        )

    async def open_server(self, text: str) -> None:
        """Open a group of chats on a server by its name or URL; `local` and a model: on this machine.

        Raises:
            PagedChatError: there is none of this name, it is no URL, or there are too many.
        """
        place, _, model = text.partition(" ")
        if place == LOCAL:
            await self._open_local(model.strip())
            return
        await self._show_group(self.groups.open_server(self._address(text)))

    def _address(self, text: str) -> "ServerAddress":
        from pagedchat.remote.openai.address import server_address  # noqa: PLC0415 - only who has a server

        return server_address(text, self._options.known_servers, self._options.api_key_env)

    async def _open_local(self, model: str) -> None:
        if model:
            from pagedchat.tui.models.named import checked_model  # noqa: PLC0415 - as above

            model = await asyncio.to_thread(checked_model, model)
        await self._show_group(self.groups.open_local(model or DEFAULT_MODEL))

    async def _show_group(self, group: EngineGroup) -> None:
        group.desk.new()
        await self.chats.add_group(group)
        if group.server is not None:
            self._start_group(group)
        else:
            self._start_second()

    # --- which of its models ------------------------------------------------------------------------

    @on(EngineStateChanged)
    def _count_seconds(self) -> None:
        """A server may be asked again by the next prompt: how long it takes counts from then on."""
        for group in self.groups:
            if group.server is not None and group.view.loading is not group.asked:
                group.asked, group.started = group.view.loading, self.clock()

    @on(EngineStateChanged)
    def _offer_models(self) -> None:
        """Once a server has told that it has several."""
        for group in self.groups:
            choice = group.view.choice
            if choice is not None and choice is not group.offered and not self.screen.is_modal:
                group.offered = choice
                self._choose_model(group)

    async def action_model(self) -> None:
        """Choose another model from a list: the server's, where one answers."""
        if self.groups.shown.server is None:
            await super().action_model()
            return
        with self.complaining():
            self._choose_model(self.groups.shown)

    def _choose_model(self, group: EngineGroup) -> None:
        names = _models_of(group)
        if not names:
            raise PagedChatError(f"{one_line(group.name)} has told no models yet.", "Wait, or ask again with F12.")

        def chosen(index: int) -> None:
            self._switch_if(group, names[index], group in self.groups)

        self.choose(f"Which model of {one_line(group.server.name if group.server else group.name)}?", names, chosen)

    async def switch_model(self, name: str) -> None:
        """Load another model in place of this one; of a server, go on with another of its models.

        Raises:
            PagedChatError: there can be no such model.
        """
        group = self.groups.shown
        if group.server is None:
            await super().switch_model(name)
            return
        _check_model(group, name)
        self._switch_if(group, name, True)

    def _switch_if(self, group: EngineGroup, name: str, sure: bool | None) -> None:
        if group.server is not None and sure:
            group.server = group.server.with_model(name)
        super()._switch_if(group, name if group.server is None else group.server.text, sure)

    async def open_beside(self, name: str) -> None:
        """Load another model beside this one; of a server, another of its models.

        Raises:
            PagedChatError: there are too many already, or there can be no such model.
        """
        group = self.groups.shown
        if group.server is None:
            await super().open_beside(name)
            return
        _check_model(group, name)
        await self._show_group(self.groups.open(name))

    # --- from one to another ------------------------------------------------------------------------

    def action_move_chat(self) -> None:
        """Have the active chat go on elsewhere."""
        with self.complaining():
            self.choose_place(self.chats.focused_chat)

    def choose_place(self, chat: ChatSession) -> None:
        """Move a chat: where there are two groups to the other, else to the one that is chosen.

        Raises:
            PagedChatError: there is no other.
        """
        here = self.groups.of(chat)
        others = [group for group in self.groups if group is not here]
        if not others:
            raise PagedChatError(
                "There is nowhere to move it to.",
                "/server URL opens a server beside this one, /model --beside a model.",
            )
        lines = [one_line(group.name) for group in others]
        if len(others) == 1:
            self.call_later(self._move_complaining, chat, others[0])
        else:
            self.choose("Move the chat where?", lines, lambda index: self.move_chat(chat, others[index]))

    async def _move_complaining(self, chat: ChatSession, group: EngineGroup) -> None:
        with self.complaining():
            await self.move_chat(chat, group)

    async def move_chat(self, chat: ChatSession, group: EngineGroup) -> None:
        """Have a chat go on in another group. All of its text stays; a reply that is being written goes on there.

        Raises:
            PagedChatError: it stands there already.
        """
        source = self.groups.of(chat)
        if source is group:
            raise PagedChatError(f"{one_line(chat.label)} is at {one_line(group.name)} already.")
        empty = self._untouched(group)
        goes_on = bool(chat.busy and chat.open_text) and _continues(group)
        await self.chats.move_pane(chat, source, group)
        if empty is not None:
            self.chats.close_chat(empty)
        if goes_on:
            group.desk.go_on(chat)
        chat.notify(Notice(_moved(chat, source, group, goes_on=goes_on), error=False))
        self.chats.focus_chat(chat)
        self.redraw()

    def _untouched(self, group: EngineGroup) -> ChatSession | None:
        """The only chat of a group, if nobody has written anything in it."""
        chats = list(group.desk)
        if len(chats) != 1 or chats[0].entries or chats[0].busy or chats[0].queue:
            return None
        return None if self.chats.drafts.get(chats[0].session_id) else chats[0]


def _models_of(group: EngineGroup) -> Sequence[str]:
    """All that the server has told."""
    if group.view.choice is not None:
        return group.view.choice.names
    return group.view.server.server.models if group.view.server is not None else []


def _check_model(group: EngineGroup, name: str) -> None:
    from pagedchat.remote.openai.models import check_model  # noqa: PLC0415 - only who has a server

    check_model(group.server.name if group.server is not None else "", _models_of(group), name)


def _continues(group: EngineGroup) -> bool:
    """Whether a reply can be gone on with there."""
    return group.view.server.server.continues if group.view.server is not None else group.view.live is not None


def _moved(chat: ChatSession, source: EngineGroup, group: EngineGroup, *, goes_on: bool) -> str:
    """What the move means, and what it costs."""
    moved = f"Moved from {one_line(source.name)} to {one_line(group.name)}"
    if goes_on:
        return f"{moved}: the reply goes on there, after its turns were computed anew."
    if not chat.entries:
        return f"{moved}."
    cut = " Alt+R goes on with the reply." if chat.can_go_on else ""
    turns = count(len(chat.entries), "turn")
    return f"{moved}: the next prompt sends {turns}, computed anew but for what a cache has of them.{cut}"
