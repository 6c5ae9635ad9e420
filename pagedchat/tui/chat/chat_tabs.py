"""A line with all chats, shown when not all of them have a pane; a click opens one."""

from collections.abc import Sequence

from textual import events
from textual.content import Content
from textual.message import Message
from textual.widget import Widget

from pagedchat.chat.sanitize import one_line
from pagedchat.chat.session import ChatSession
from pagedchat.tui.chat.pane_title import state_sign
from pagedchat.tui.kit.lines import MUTED
from pagedchat.view.engine_view import EngineView


class ChatTabs(Widget):
    """One tab a chat, with its state."""

    DEFAULT_CSS = """
    ChatTabs { height: 1; padding: 0 1; }
    """

    class Chosen(Message):
        """A tab was clicked."""

        def __init__(self, session_id: int) -> None:
            super().__init__()
            self.session_id = session_id

    def __init__(self) -> None:
        super().__init__()
        self._tabs: list[tuple[int, Content]] = []
        self._focused = 0

    def show(self, sessions: Sequence[tuple[ChatSession, EngineView]], focused: int) -> None:
        """Show these chats, each with its engine; the focused one stands out."""
        tabs = [
            (session.session_id, _tab(session, view, session.session_id == focused)) for session, view in sessions
        ]
        if (tabs, focused) != (self._tabs, self._focused):
            self._tabs, self._focused = tabs, focused
            self.refresh()

    def render(self) -> Content:
        """All tabs, cut to the width."""
        line = Content("  ").join([content for _, content in self._tabs])
        return line.truncate(self.content_size.width, ellipsis=True)

    def on_click(self, event: events.Click) -> None:
        """Find the tab under the mouse."""
        offset = event.get_content_offset(self)
        start = 0
        for session_id, content in self._tabs:
            if offset is not None and start <= offset.x < start + content.cell_length:
                self.post_message(self.Chosen(session_id))
            start += content.cell_length + 2


def _tab(session: ChatSession, view: EngineView, focused: bool) -> Content:
    style = "bold underline $text-primary" if focused else MUTED
    return Content.assemble(state_sign(session, view), " ", (one_line(session.label), style))
