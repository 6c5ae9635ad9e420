"""The screens of an engine whose chats are kept: looks at them as they change, and says what becomes of that.

Nothing here waits for the disk; a program that keeps nothing runs without all of it.
"""

import asyncio
import sys
from typing import TYPE_CHECKING

from pagedchat.chat.sanitize import one_line
from pagedchat.chat.session import ChatSession
from pagedchat.errors import PagedChatError
from pagedchat.tui.server_app import ServerApp
from pagedchat.view.options import UiOptions

if TYPE_CHECKING:
    from pagedchat.history.keeper import HistoryKeeper
    from pagedchat.history.run import RunHistory
    from pagedchat.tui.history.past_chats import PastChats

LOOK_SECONDS = 0.5
"""Between two looks at what grows: replies, drafts, how the panes stand."""
_NEWS_SECONDS = 10
"""For which a sentence stays on the screen."""


class KeepingApp(ServerApp):
    """Hands the chats to the history, if there is one."""

    kept: "RunHistory | None" = None
    """The history of this run; None where nothing is kept."""
    _keeper: "HistoryKeeper | None" = None
    _past: "PastChats | None" = None
    _keeps = False
    """Whether there is to be one."""

    def keep(self, options: UiOptions) -> None:
        """Before the program runs: whether its chats are kept, and what was reopened."""
        self.kept = options.history
        self._keeps = options.keeps or options.history is not None

    def on_mount(self) -> None:
        """Nothing of this is needed for the first frame."""
        if self._keeps:
            self.call_after_refresh(self._start_keeping)

    def _start_keeping(self) -> None:
        from pagedchat.history.keeper import HistoryKeeper  # noqa: PLC0415 - not for the first frame
        from pagedchat.history.run import begin  # noqa: PLC0415 - as above
        from pagedchat.tui.history.past_chats import PastChats  # noqa: PLC0415 - as above

        self.kept = history = self.kept or begin()
        self._keeper = HistoryKeeper(history.thread)
        self._keeper.know(history.reopened.unchanged)
        for sentence in history.reopened.said:
            self.notify(one_line(sentence), timeout=_NEWS_SECONDS)
        self.groups.on_change = self.look_at_chats
        self._past = PastChats(self, history.thread, self._keeper)
        self.look_at_chats()  # something may have been typed already
        self.set_interval(LOOK_SECONDS, self._look_again)

    def _look_again(self) -> None:
        self.look_at_chats()
        if self.kept is not None:
            for sentence in self.kept.thread.take_news():
                bad = self.kept.thread.problem is not None
                self.notify(one_line(sentence), severity="error" if bad else "warning", timeout=_NEWS_SECONDS)

    def look_at_chats(self, *, all_of_it: bool = False) -> None:
        """Hand over what has changed."""
        if self._keeper is not None:
            from pagedchat.history.keeper import ChatPlace  # noqa: PLC0415 - not for the first frame

            places = [
                ChatPlace(chat, group.model_id, beside=place)
                for place, group in enumerate(self.groups)
                for chat in group.desk
            ]
            self._keeper.look(places, self.chats.drafts, self.chats.standing, all_of_it=all_of_it)

    # --- past chats ---------------------------------------------------------------------------------

    @property
    def past_chats(self) -> "PastChats":
        """What can be done with the chats that are kept.

        Raises:
            PagedChatError: none are.
        """
        if self._past is None:
            raise PagedChatError("This run keeps no history.", "Start pagedchat without --ephemeral.")
        return self._past

    @property
    def keeps_chats(self) -> bool:
        """Unless what is written cannot be kept now."""
        return self.kept is not None and self.kept.thread.problem is None

    def show_history(self, words: str = "") -> None:
        """A list of all chats, of those that have these words.

        Raises:
            PagedChatError: none are kept.
        """
        from pagedchat.tui.history.screen import HistoryScreen  # noqa: PLC0415 - not for the first frame

        self.push_screen(HistoryScreen(self.past_chats, words))

    def action_history(self) -> None:
        """A list of all chats."""
        if not self.screen.is_modal:
            with self.complaining():
                self.show_history()

    async def delete_chat(self, chat: ChatSession) -> None:
        """Take a chat off the screen and off the lists; for a day it can be had back.

        Raises:
            PagedChatError: it cannot be deleted.
        """
        name = one_line(await self.past_chats.delete_open(chat))
        self.say(f"Deleted “{name}”. ^S, then ^Z brings it back.")

    # --- leaving ------------------------------------------------------------------------------------

    def lost_by_leaving(self, num_busy: int) -> str:
        """Besides replies, what could be kept if one waited."""
        lost = [super().lost_by_leaving(num_busy)]
        thread = self.kept.thread if self.kept is not None else None
        if thread is not None and thread.problem is not None and thread.problem.may_pass and thread.is_behind:
            lost.append(one_line(str(thread.problem)))
        return " ".join(filter(None, lost))

    async def before_leaving(self) -> None:
        """All that was typed and said is written."""
        self.look_at_chats(all_of_it=True)
        if self.kept is not None:
            await asyncio.to_thread(self.kept.thread.close)

    def end_keeping(self) -> None:
        """After the program, however it ended: write what was not written yet, or say that it cannot be."""
        if self.kept is not None and not self.kept.thread.close() and self.kept.thread.problem is not None:
            print(f"pagedchat: {one_line(self.kept.thread.problem.at_the_end)}", file=sys.stderr)
