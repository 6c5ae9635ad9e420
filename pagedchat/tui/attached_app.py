"""The screens where the engine is a server's: what the server decides is said, and leaving does not end it.

Does nothing of its own where the engine is this program's.
"""

from collections.abc import Callable

from textual import on

from pagedchat.chat.prompt_history import PromptHistory
from pagedchat.chat.sanitize import one_line
from pagedchat.errors import PagedChatError
from pagedchat.service.commands import EngineLink
from pagedchat.tui.keeping_app import KeepingApp
from pagedchat.tui.kit.front_screens import LeaveScreen
from pagedchat.tui.messages import EngineStateChanged
from pagedchat.view.key_names import with_keys
from pagedchat.view.options import UiOptions
from pagedchat.view.sentences.words import count


class AttachedApp(KeepingApp):
    """As `KeepingApp`."""

    def __init__(
        self, link: EngineLink, options: UiOptions, history: PromptHistory, clock: Callable[[], float]
    ) -> None:
        super().__init__(link, options, history, clock)
        self._where = one_line(options.attached)

    # --- what the server decides --------------------------------------------------------------------

    def _check_own(self) -> None:
        """Whether the engine is this program's.

        Raises:
            PagedChatError: it is a server's.
        """
        if self._where:
            raise PagedChatError(
                f"The server at {self._where} decides which model runs.",
                "Start another one with pagedchat serve --model NAME, or pagedchat without --attach.",
            )

    async def action_model(self) -> None:
        """Choose another model from a list."""
        with self.complaining():
            self._check_own()
            await super().action_model()

    async def switch_model(self, name: str) -> None:
        """Load another model in place of this one.

        Raises:
            PagedChatError: the server decides, or there can be no such model.
        """
        self._check_own()
        await super().switch_model(name)

    async def open_beside(self, name: str) -> None:
        """Load another model beside this one.

        Raises:
            PagedChatError: the server decides, or there can be no such model.
        """
        self._check_own()
        await super().open_beside(name)

    def action_restart(self) -> None:
        """Start the engine again; of a server, try again to reach it."""
        group = self.groups.shown
        reached = self.view.attachment is not None and not self.view.attachment.lost
        if self._where and reached and not group.has_no_engine:
            with self.complaining():
                raise PagedChatError(
                    f"The server at {self._where} starts its engine again by itself, if it ends.",
                    with_keys("Its other clients have chats on it. ^Q leaves it."),
                )
        elif self._where:
            self._restart_if(group, True)
        else:
            super().action_restart()

    # --- chats that come back -----------------------------------------------------------------------

    @on(EngineStateChanged)
    async def _place_chats(self) -> None:
        """What a terminal that is gone has left gets panes."""
        if self._where and self.screen_stack and self.chats.is_mounted:
            await self.chats.add_missing_panes()

    # --- leaving ------------------------------------------------------------------------------------

    async def action_quit(self) -> None:
        """Leave the server: its chats go on there, unless they are to be closed. A second time it waits for
        nothing."""
        if not self._where or self._quitting:
            await super().action_quit()
        elif isinstance(self.screen, LeaveScreen):
            self._leave_server("detach")
        elif self._has_chats_there:
            self.push_screen(LeaveScreen(f"Leave {self._where}?", self._goes_on()), self._leave_server)
        else:
            self._leave_server("detach")

    @property
    def _has_chats_there(self) -> bool:
        return self.view.failure is None and any(chat.entries or chat.busy for chat in self.groups.chats)

    def _goes_on(self) -> str:
        busy = self.groups.num_busy
        replies = (
            f" {'A reply is' if busy == 1 else f'{busy} replies are'} being written, and will be." if busy else ""
        )
        chats = count(sum(bool(chat.entries) or chat.busy for chat in self.groups.chats), "chat")
        return f"Its engine goes on, and keeps {chats} for a while.{replies} pagedchat --attach comes back to them."

    def _leave_server(self, choice: str | None) -> None:
        if choice is not None:
            link = self.groups.first.link
            if choice == "close" and hasattr(link, "closes_chats"):
                link.closes_chats = True
            self._quit_if(True)
