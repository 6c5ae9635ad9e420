"""Begins and ends a tour in the program: its chats get panes, its box stands at the foot of every screen."""

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING

from textual.screen import Screen
from textual.timer import Timer

from pagedchat.chat.session import ChatSession
from pagedchat.errors import PagedChatError
from pagedchat.tui.kit.key_bar import KeyBar
from pagedchat.tui.kit.textual_quirks import start_work
from pagedchat.tui.tour.tour_box import TourBox
from pagedchat.view.sentences.server_words import no_blocks
from pagedchat.view.tour.guide import TourGuide
from pagedchat.view.tour.stage import Stage

if TYPE_CHECKING:
    from pagedchat.tui.screens import ScreensApp


_LOOK_SECONDS = 0.2
"""How soon the box follows the user to another screen."""


class Tour:
    """One tour of the program.

    Args:
        app: where it is given.
        clock: seconds.
    """

    def __init__(self, app: "ScreensApp", clock: Callable[[], float]) -> None:
        self._app = app
        self._opened_inspector = False
        self._timer: Timer | None = None
        self._focused_before = app.chats.focused_chat.session_id
        stage = Stage(app.view, app.desk, app.engine.send, self._show_chat, self._close)
        self.guide = TourGuide(app.view, stage, clock)

    async def begin(self) -> None:
        """With the inspector in sight, at the present moment.

        Raises:
            PagedChatError: there is no engine to show it on.
        """
        if self._app.view.server is not None:
            raise no_blocks(self._app.view.server)
        if self._app.view.live is None:
            raise PagedChatError("The tour is given on a running engine.", "Wait until it is ready.")
        self._app.go_to_step(None)
        self._opened_inspector = self._app.inspector is None
        await self._app.show_inspector()
        self.guide.begin()
        self._timer = self._app.set_interval(_LOOK_SECONDS, self.look)  # the engine may rest meanwhile

    def look(self) -> None:
        """Follow the engine, and the user from screen to screen."""
        self.guide.look()
        screen = self._app.screen
        if screen.is_modal:
            return
        boxes = list(screen.query(TourBox))
        for box in boxes:
            box.refresh_view()
        if not boxes:
            self._mount_box(screen)

    def _mount_box(self, screen: Screen[object]) -> None:
        key_bars = list(screen.query(KeyBar))
        if key_bars:
            screen.mount(TourBox(self.guide), before=key_bars[0])
            self._app.chats.place_panes()

    def move(self, steps: int) -> bool:
        """Go on or back; false after the last step."""
        if steps > 0:
            return self.guide.next()
        self.guide.back()
        return True

    async def leave(self) -> None:
        """Everything as it was before."""
        if self._timer is not None:
            self._timer.stop()
        self.guide.leave()
        for screen in self._app.screen_stack:
            await screen.query(TourBox).remove()
        if self._opened_inspector and self._app.inspector is not None:
            await self._app.action_inspector()
        self._app.chats.action_focus_number(self._focused_before)

    def _show_chat(self, chat: ChatSession, source: ChatSession | None) -> None:
        start_work(self._app.chats, partial(self._open_pane, chat, source), "tour")

    async def _open_pane(self, chat: ChatSession, source: ChatSession | None) -> None:
        chats = self._app.chats
        await chats.add_pane(chat, after=source)
        chats.show_chat(chat)

    def _close(self, chat: ChatSession) -> None:
        if len(self._app.groups.of(chat).desk) > 1:
            self._app.chats.close_chat(chat)
