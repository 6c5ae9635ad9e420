"""The chats' panes on a screen: where they stand, which of them has the keyboard, and the inspector beside them.

Knows nothing of what is asked of a chat.
"""

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from textual import events, on
from textual.app import ComposeResult
from textual.containers import Horizontal
from textual.geometry import Size
from textual.message import Message
from textual.widgets import Input

from pagedchat.chat.prompt_history import PromptHistory
from pagedchat.chat.session import ChatSession
from pagedchat.tui.actions import APP_ACTIONS, CHAT_ACTIONS, COMPOSER_ACTIONS, PALETTE, KeyAction
from pagedchat.tui.chat.alternatives_panel import AlternativesPanel
from pagedchat.tui.chat.chat_grid import ChatGrid
from pagedchat.tui.chat.chat_tabs import ChatTabs
from pagedchat.tui.chat.composer import Composer
from pagedchat.tui.chat.engine_status import Status, StatusBanner
from pagedchat.tui.chat.foot_line import CommandHints, EventTicker
from pagedchat.tui.chat.group_screen import GroupScreen
from pagedchat.tui.chat.header import HeaderBar
from pagedchat.tui.engine_group import EngineGroup, EngineGroups
from pagedchat.tui.inspector.inspector_keys import MOVE, OPEN, PANEL_ACTIONS, TIME_ACTIONS, TO_THE_CHAT, with_alt
from pagedchat.tui.kit.draw_turns import FIGURES_SECONDS, ScreenPart
from pagedchat.tui.kit.key_bar import KeyBar, keys_of
from pagedchat.tui.kit.keys_in_turn import may_move
from pagedchat.tui.messages import ChatFocused, EngineStateChanged
from pagedchat.view.chats.full_context import warning
from pagedchat.view.chats.layout import CHROME_ROWS, LAYOUTS, WIDE_ENOUGH_FOR_PANEL, groups_beside, visible_page
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


class PaneScreen(GroupScreen):
    """Header, banner, tabs, panes, last events and keys; one of the chats is the active one.

    Args:
        groups: all chats, by their engines; those to start with are made here.
        options: what the command line said.
        history: prompts sent before.
    """

    AUTO_FOCUS = ""

    class CanBeTypedIn(Message):
        """There is a composer, and it has the keyboard."""

    def __init__(self, groups: EngineGroups, options: UiOptions, history: PromptHistory) -> None:
        super().__init__(groups, options, history)
        before = options.history.reopened.layout if options.history is not None else None
        active = (groups.get(before.focused) if before else None) or groups.chats[0]
        self._focused_id = active.session_id
        groups.shown = groups.of(active)
        self._placed_in = Size()
        """The screen's size when the panes got their places."""
        self.takes_keys = False
        """Whether there is a composer already."""
        self._panel: InspectorPanel | None = None
        """The inspector beside the chats, while it is open."""
        self._tree: TreePanel | None = None
        """The tree of branches beside the chats, while it is open."""
        self._header = HeaderBar(self._view, groups.shown.expected)
        self._banner = StatusBanner()
        self._tabs = ChatTabs()
        if before is not None:
            self._lay_out(before.wanted if before.wanted in LAYOUTS else None, zoomed=before.zoomed)
        self._ticker = EventTicker(self._view)
        self._hints = CommandHints()
        self._keys = KeyBar(CHAT_KEYS, num_always=2)

    def compose(self) -> ComposeResult:
        """From the top to the bottom."""
        yield self._header
        yield self._banner
        yield self._tabs
        with Horizontal(id="body"):
            yield from self._grids
        yield self._ticker
        yield self._hints
        yield self._keys

    @property
    def _has_text(self) -> bool:
        """Whether the text of all chats in sight is laid out."""
        return all(pane.transcript.is_laid_out for pane in self._panes if pane.display)

    def on_mount(self) -> None:
        """Begin in the first chat, or where it was left, with what was typed into it already."""
        if any(chat.entries for chat in self._groups.chats):
            self.paint_when_made(lambda: self._has_text)
        self.focus_chat(self.focused_chat)
        self.takes_keys = True
        self.post_message(self.CanBeTypedIn())

    # --- groups -------------------------------------------------------------------------------------

    async def add_group(self, group: EngineGroup) -> None:
        """Its chats stand beside the others from now on."""
        grid = self._new_grid(group)
        grid.wanted, grid.zoomed = self._grids[0].wanted, False
        await self.query_one("#body").mount(grid, after=self._grids[-1])
        self._grids.append(grid)
        self._lay_out(grid.wanted, zoomed=False)
        self.focus_chat(group.desk.chats[0])

    def drop_group(self, group: EngineGroup) -> None:
        """Its chats go; it is still one of the groups, and not the only one."""
        grid = self._grid_of(group)
        other = next(each for each in self._groups if each is not group)
        self.focus_chat(other.desk.get(other.desk.focused_id) or other.desk.chats[0])
        self._grids.remove(grid)
        grid.remove()

    def _show_group(self, group: EngineGroup) -> None:
        """Header, last events, tree and inspector are about this engine from now on."""
        if group is self._groups.shown:
            return
        self._groups.shown = group
        self._header.follow(group.view, group.expected)
        self._ticker.follow(group.view)
        if self._tree is not None:
            self._tree.follow(group.desk, group.view)
        if self._panel is not None:
            self.light_block(None)
            self._panel.remove()
            self._panel = self._new_panel()
            self.query_one("#body").mount(self._panel)
        self.post_message(EngineStateChanged())

    # --- drawing ------------------------------------------------------------------------------------

    def show_model(self, group: EngineGroup) -> None:
        """What is being loaded, until the engine says what it found."""
        if group is self._groups.shown:
            self._header.follow(group.view, group.expected)
        self._grid_of(group).say_of_the_model(group.note)

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
        for grid in self._grids:
            if grid.display:
                yield from grid.parts()
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
        chats = [(chat, group.view) for group in self._groups for chat in group.desk]
        self._tabs.show(chats, self._focused_id)

    def on_screen_resume(self, event: events.ScreenResume) -> None:
        """While another screen hid this one it was not drawn."""
        self.refresh_view()

    @on(Composer.CandidatesChanged)
    def _candidates_changed(self, event: Composer.CandidatesChanged) -> None:
        self._hints.show(event.candidates)
        self._ticker.display = not event.candidates

    def light_block(self, block_id: int | None) -> None:
        """Light up the text that this block of the shown engine holds, in every chat that has it."""
        for pane in self._panes:
            pane.light_block(block_id if pane in self._grid.panes else None)

    # --- layout -------------------------------------------------------------------------------------

    def on_resize(self, event: events.Resize) -> None:
        """Fewer panes where there is less room; no room for the inspector beside them."""
        if event.size == self._placed_in:
            return
        if self._panel is not None and event.size.width < WIDE_ENOUGH_FOR_PANEL:
            self._close_panel()
        self._arrange()

    def place_panes(self) -> None:
        """Give every pane its place; the keyboard stays where it is."""
        shown = self._shown_groups()
        self._placed_in = self.size
        width = self.size.width
        if self._panel is not None:  # which is as wide as a group
            width = width * len(shown) // (len(shown) + 1)
        if self._tree is not None:
            width -= min(TREE_CELLS, width * 45 // 100)
        tour_rows = sum(box.outer_size.height for box in self.query("TourBox"))
        shown = self._shown_groups(width)
        beside, room = len(shown) > 1, width // len(shown)
        for grid in self._grids:
            grid.titled, grid.display = len(self._groups) > 1, grid in shown
            grid.arrange_panes(self._focused_id, room, self.size.height - CHROME_ROWS - tour_rows, beside=beside)
        self._tabs.display = any(grid.hides_some or not grid.display for grid in self._grids)
        self.call_after_refresh(self.refresh_view)

    def _shown_groups(self, width: int = 0) -> list[ChatGrid]:
        """Those that stand beside each other in so much of the width, or all of it, the active one among them."""
        if self._grid.zoomed or len(self._grids) == 1:
            return [self._grid]
        most = groups_beside(len(self._grids), self.size.width, width or self.size.width)
        places = visible_page(range(len(self._grids)), self._grids.index(self._grid), most)
        return [self._grids[place] for place in places]

    def _arrange(self) -> None:
        self.place_panes()
        self._refocus()

    async def add_pane(self, chat: ChatSession, after: ChatSession | None = None) -> None:
        """A pane for a chat of a desk, at the end of its group or to the right of another."""
        await self._grid_of(self._groups.of(chat)).add(chat, after=after)
        self.place_panes()

    async def add_missing_panes(self) -> None:
        """A pane for each chat that has come to a desk by itself."""
        shown = {id(pane.session) for pane in self._panes}
        for chat in self._groups.chats:
            if id(chat) not in shown:
                await self.add_pane(chat)

    async def move_pane(self, chat: ChatSession, source: EngineGroup, target: EngineGroup) -> None:
        """A chat, and what is written in its composer, goes from one group to another; the last one of its group
        makes way for an empty one."""
        draft = self.drafts.get(chat.session_id, "")
        if len(source.desk) == 1:
            await self.add_pane(source.desk.new())
        pane = self._pane(chat.session_id)
        source.desk.hand_over(chat, target.desk)
        if pane is not None:
            pane.display = False
            pane.remove()
        if draft.strip():
            chat.return_prompt(draft)
        await self.add_pane(chat)

    def show_chat(self, chat: ChatSession) -> None:
        """Bring a chat into sight; the keyboard stays where it is."""
        self._focused_id = chat.session_id
        self._show_group(self._groups.of(chat))
        self.place_panes()

    # --- what is kept of it -------------------------------------------------------------------------

    @property
    def standing(self) -> "LayoutRecord":
        """How the panes stand, without their chats."""
        from pagedchat.history.records import LayoutRecord  # noqa: PLC0415 - not for the first frame

        return LayoutRecord(
            focused=self._focused_id, wanted=self._grid.wanted, zoomed=self._grid.zoomed,
            models=self._groups.asked_for,
        )  # fmt: skip

    # --- the active chat ----------------------------------------------------------------------------

    @property
    def focused_chat(self) -> ChatSession:
        """The active chat."""
        return self._groups.get(self._focused_id) or self._desk.chats[0]

    def focus_chat(self, chat: ChatSession) -> None:
        """This chat is the active one from now on, and has the keyboard."""
        self._activate(chat)
        self._arrange()

    def _activate(self, chat: ChatSession) -> None:
        self._focused_id = chat.session_id
        self._show_group(self._groups.of(chat))
        self._desk.focus(chat)

    def _refocus(self) -> None:
        """The active chat has the keyboard, unless the tour is being read."""
        pane = self._pane(self._focused_id)
        if pane is not None and not self.query("TourBox:focus"):
            pane.take_focus()

    @on(ChatFocused)
    def _chat_focused(self, event: ChatFocused) -> None:
        """A click may have chosen another chat. The message may be old: what has the keyboard now, counts."""
        chat, pane = self._groups.get(event.session_id), self._pane(event.session_id)
        if chat is not None and pane is not None and self.focused in (pane.composer, pane.alternatives):
            self._show_focus(chat)

    def _show_focus(self, chat: ChatSession) -> None:
        if chat.session_id != self._focused_id:
            self._activate(chat)
            self.place_panes()

    def on_descendant_focus(self, event: events.DescendantFocus) -> None:
        """The footer shows the keys of the part that has the keyboard."""
        self._keys.show(self._keys_of_focus())

    def _keys_of_focus(self) -> Sequence[KeyAction]:
        if keys := keys_of(self.focused):
            return (*keys, *APP_ACTIONS, PALETTE)
        if self.in_panel:
            return PANEL_KEYS if self._view.server is None else (MOVE, *APP_ACTIONS, TO_THE_CHAT, PALETTE)
        if self._tree is not None and self._in_tree:
            return (*self._tree.KEYS, *APP_ACTIONS, PALETTE)
        return CHAT_KEYS

    def is_typing(self, event: events.Event) -> bool:
        """Whether this is text for the active chat, though a panel beside it, or nothing, has the keyboard."""
        if may_move(event):
            return False
        if self.focused is None or self._in_tree or isinstance(self.focused, AlternativesPanel):
            return True
        return self.in_panel and not isinstance(self.focused, Input)

    # --- tree of branches ---------------------------------------------------------------------------

    @property
    def _in_tree(self) -> bool:
        return self._tree is not None and self.focused is not None and self._tree in self.focused.ancestors

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
            self._panel = self._new_panel()
            await self.query_one("#body").mount(self._panel)
        self._arrange()

    def _new_panel(self) -> "InspectorPanel":
        from pagedchat.tui.inspector.panel import InspectorPanel  # noqa: PLC0415 - not for the first frame

        return InspectorPanel(self._view)

    def _close_panel(self) -> None:
        if self._panel is not None:
            self._panel.remove()
            self._panel = None
            self.light_block(None)
