"""The chats' panes on a screen: where they stand, which of them has the keyboard, and the inspector beside them.

Knows nothing of what is asked of a chat.
"""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.message import Message
from textual.widgets import Input

from pagedchat import bundled
from pagedchat.chat.prompt_history import PromptHistory
from pagedchat.chat.session import ChatSession
from pagedchat.tui.actions import APP_ACTIONS, CHAT_ACTIONS, COMPOSER_ACTIONS, PALETTE
from pagedchat.tui.chat.chat_grid import ChatGrid
from pagedchat.tui.chat.chat_tabs import ChatTabs
from pagedchat.tui.chat.composer import Composer
from pagedchat.tui.chat.engine_status import Status, StatusBanner
from pagedchat.tui.chat.foot_line import CommandHints, EventTicker
from pagedchat.tui.chat.header import HeaderBar
from pagedchat.tui.inspector.inspector_keys import MOVE, OPEN, PANEL_ACTIONS, TIME_ACTIONS, TO_THE_CHAT, with_alt
from pagedchat.tui.kit.draw_turns import FIGURES_SECONDS, ScreenPart
from pagedchat.tui.kit.key_bar import KeyBar
from pagedchat.tui.kit.sparse_painting import SparseScreen
from pagedchat.tui.messages import ChatFocused
from pagedchat.view.chats.desk import ChatDesk
from pagedchat.view.chats.full_context import warning
from pagedchat.view.chats.layout import CHROME_ROWS, LAYOUTS, WIDE_ENOUGH_FOR_PANEL
from pagedchat.view.engine_view import EngineView
from pagedchat.view.options import UiOptions

if TYPE_CHECKING:
    from pagedchat.history.records import LayoutRecord
    from pagedchat.tui.branches.tree_panel import TreePanel
    from pagedchat.tui.inspector.panel import InspectorPanel

TREE_CELLS = 48
"""Columns of the tree of branches, or as much of the width as `tree_panel.py` says."""
CHAT_KEYS = (*COMPOSER_ACTIONS, *CHAT_ACTIONS, *APP_ACTIONS, PALETTE)
"""In the footer while a chat has the keyboard."""
PANEL_KEYS = (OPEN, MOVE, *with_alt((*TIME_ACTIONS, *PANEL_ACTIONS)), *APP_ACTIONS, TO_THE_CHAT, PALETTE)
"""In the footer while a panel beside the chats has it."""


class PaneScreen(SparseScreen):
    """Header, banner, tabs, panes, last events and keys; one of the chats is the active one.

    Args:
        desk: all chats; those to start with are made here.
        view: what is known of the engine.
        options: what the command line said.
        history: prompts sent before.
    """

    AUTO_FOCUS = ""

    class CanBeTypedIn(Message):
        """There is a composer, and it has the keyboard."""

    def __init__(self, desk: ChatDesk, view: EngineView, options: UiOptions, history: PromptHistory) -> None:
        super().__init__()
        self._desk = desk
        self._view = view
        for _ in range(len(desk), max(1, options.sessions)):
            desk.new()
        before = options.history.reopened.layout if options.history is not None else None
        self._focused_id = before.focused if before and desk.get(before.focused) else desk.chats[0].session_id
        self.takes_keys = False
        """Whether there is a composer already."""
        self._panel: InspectorPanel | None = None
        """The inspector beside the chats, while it is open."""
        self._tree: TreePanel | None = None
        """The tree of branches beside the chats, while it is open."""
        self._header = HeaderBar(view, options.model)
        self._banner = StatusBanner()
        self._tabs = ChatTabs()
        self._grid = ChatGrid(desk, view, history, bundled.note(options.model))
        if before is not None:
            self._grid.wanted = before.wanted if before.wanted in LAYOUTS else None
            self._grid.zoomed = before.zoomed
        self._ticker = EventTicker(view)
        self._hints = CommandHints()
        self._keys = KeyBar(CHAT_KEYS, num_always=2)

    def compose(self) -> ComposeResult:
        """From the top to the bottom."""
        yield self._header
        yield self._banner
        yield self._tabs
        with Horizontal(id="body"):
            yield self._grid
        yield self._ticker
        yield self._hints
        yield self._keys

    def on_mount(self) -> None:
        """Begin in the first chat, or where it was left, with what was typed into it already."""
        self.focus_chat(self.focused_chat)
        self.takes_keys = True
        self.post_message(self.CanBeTypedIn())

    # --- drawing ------------------------------------------------------------------------------------

    def show_model(self, model: str) -> None:
        """What is being loaded, until the engine says what it found."""
        self._header.show_model(model)
        self._grid.say_of_the_model(bundled.note(model))

    def show_status(self, status: Status) -> None:
        """Say that the engine is not simply running, or that it is."""
        self._banner.show(status)

    def refresh_view(self) -> None:
        """Draw what changed since the last call."""
        for part in self.parts():
            part.draw()

    def parts(self) -> Iterator[ScreenPart]:
        """The same piece by piece; neighbours on the screen follow each other, for they are painted together."""
        yield ScreenPart(self._header, self._header.refresh_view, FIGURES_SECONDS)
        if self._tabs.display:
            yield ScreenPart(self._tabs, self._show_tabs)
        yield from self._grid.parts()
        if self._panel is not None:
            yield from self._panel.parts()
        if self._tree is not None:
            yield ScreenPart(self._tree, self._tree.refresh_view, FIGURES_SECONDS)
        yield ScreenPart(self._ticker, self._refresh_ticker, FIGURES_SECONDS)

    def _refresh_ticker(self) -> None:
        """The last events, after a word of the active chat's context where it is nearly full."""
        mirror, chat = self._view.mirror, self.focused_chat
        sequence = mirror.sequences.get(chat.session_id) if mirror and self._view.past is None else None
        used = len(sequence.token_ids) if sequence else 0
        self._ticker.refresh_view(warning(chat, used, self._desk.context_limit))

    def _show_tabs(self) -> None:
        self._tabs.show(self._desk.chats, self._focused_id, self._view)

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        """While another screen hid this one it was not drawn."""
        self.refresh_view()

    @on(Composer.CandidatesChanged)
    def _candidates_changed(self, event: Composer.CandidatesChanged) -> None:
        self._hints.show(event.candidates)
        self._ticker.display = not event.candidates

    def light_block(self, block_id: int | None) -> None:
        """Light up the text that this block holds, in every chat that has it."""
        for pane in self._grid.panes:
            pane.light_block(block_id)

    # --- layout -------------------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        """Fewer panes where there is less room; no room for the inspector beside them."""
        if self._panel is not None and event.size.width < WIDE_ENOUGH_FOR_PANEL:
            self._close_panel()
        self._arrange()

    def place_panes(self) -> None:
        """Give every pane its place; the keyboard stays where it is."""
        width = self.size.width // 2 if self._panel is not None else self.size.width
        if self._tree is not None:
            width -= min(TREE_CELLS, width * 45 // 100)
        tour_rows = sum(box.outer_size.height for box in self.query("TourBox"))
        self._grid.arrange_panes(self._focused_id, width, self.size.height - CHROME_ROWS - tour_rows)
        self._tabs.display = self._grid.hides_some
        self.call_after_refresh(self.refresh_view)

    def _arrange(self) -> None:
        self.place_panes()
        self._refocus()

    async def add_pane(self, chat: ChatSession, after: ChatSession | None = None) -> None:
        """A pane for a chat of the desk, at the end or to the right of another."""
        await self._grid.add(chat, after=after)
        self.place_panes()

    def show_chat(self, chat: ChatSession) -> None:
        """Bring a chat into sight; the keyboard stays where it is."""
        self._focused_id = chat.session_id
        self.place_panes()

    # --- what is kept of it -------------------------------------------------------------------------

    @property
    def drafts(self) -> dict[int, str]:
        """What is written in each composer, by the numbers of the chats."""
        return {pane.session.session_id: pane.composer.text for pane in self._grid.panes}

    @property
    def standing(self) -> "LayoutRecord":
        """How the panes stand, without their chats."""
        from pagedchat.history.records import LayoutRecord  # noqa: PLC0415 - not for the first frame

        return LayoutRecord(focused=self._focused_id, wanted=self._grid.wanted, zoomed=self._grid.zoomed)

    # --- the active chat ----------------------------------------------------------------------------

    @property
    def focused_chat(self) -> ChatSession:
        """The active chat."""
        return self._desk.get(self._focused_id) or self._desk.chats[0]

    def focus_chat(self, chat: ChatSession) -> None:
        """This chat is the active one from now on, and has the keyboard."""
        self._focused_id = chat.session_id
        self._desk.focus(chat)
        self._arrange()

    def _refocus(self) -> None:
        """The active chat has the keyboard, unless the tour is being read."""
        pane = self._grid.pane(self._focused_id)
        if pane is not None and not self.query("TourBox:focus"):
            pane.take_focus()

    @on(ChatFocused)
    def _chat_focused(self, event: ChatFocused) -> None:
        """A click may have chosen another chat. The message may be old: what has the keyboard now, counts."""
        chat, pane = self._desk.get(event.session_id), self._grid.pane(event.session_id)
        if chat is not None and pane is not None and self.focused is pane.composer:
            self._show_focus(chat)

    def _show_focus(self, chat: ChatSession) -> None:
        if chat.session_id != self._focused_id:
            self._focused_id = chat.session_id
            self._desk.focus(chat)
            self.place_panes()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """The footer shows the keys of the part that has the keyboard."""
        self._keys.show(PANEL_KEYS if self.in_panel else CHAT_KEYS)

    def is_typing(self, event: events.Event) -> bool:
        """Whether this is text for the active chat, though a panel beside it, or nothing, has the keyboard."""
        if isinstance(event, events.Key) and (not event.is_printable or event.key.startswith("alt+")):
            return False
        return self.focused is None or (self.in_panel and not isinstance(self.focused, Input))

    # --- tree of branches ---------------------------------------------------------------------------

    async def toggle_tree(self) -> None:
        """Show the tree of the active chat's branches beside the chats and go into it, or put it away."""
        if self._tree is not None:
            self._tree.remove()
            self._tree = None
            self._arrange()
            return
        from pagedchat.tui.branches.tree_panel import TreePanel  # noqa: PLC0415 - not for the first frame

        self._tree = TreePanel(self._desk, self._view, lambda: self.focused_chat)
        await self.query_one("#body").mount(self._tree, before=0)
        self.place_panes()
        self._tree.take_focus()

    # --- inspector ----------------------------------------------------------------------------------

    @property
    def panel(self) -> "InspectorPanel | None":
        """The inspector, while it stands beside the chats."""
        return self._panel

    @property
    def in_panel(self) -> bool:
        """Whether the inspector beside the chats has the keyboard."""
        return self._panel is not None and self.focused is not None and self._panel in self.focused.ancestors

    def to_the_chat(self) -> None:
        """The active chat has the keyboard again."""
        self._refocus()

    async def toggle_panel(self) -> None:
        """Open the inspector beside the chats, or close it."""
        if self._panel is not None:
            self._close_panel()
        else:
            from pagedchat.tui.inspector.panel import InspectorPanel  # noqa: PLC0415 - not for the first frame

            self._panel = InspectorPanel(self._view)
            await self.query_one("#body").mount(self._panel)
        self._arrange()

    def _close_panel(self) -> None:
        if self._panel is not None:
            self._panel.remove()
            self._panel = None
            self.light_block(None)
