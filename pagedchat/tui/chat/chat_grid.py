"""The panes of a group in rows and columns: which are shown, how large, which is the active one; what is selected.

Where a second group stands beside it, a heading says whose they are.
"""

from collections.abc import Iterator
from functools import partial

from textual import on
from textual.app import ComposeResult
from textual.containers import Container

from pagedchat.chat.prompt_history import PromptHistory
from pagedchat.chat.session import ChatSession
from pagedchat.tui.chat.chat_pane import ChatPane
from pagedchat.tui.chat.group_heading import GroupHeading
from pagedchat.tui.chat.transcript import Transcript
from pagedchat.tui.kit.draw_turns import FIGURES_SECONDS, TEXT_SECONDS, ScreenPart
from pagedchat.tui.messages import EngineStateChanged
from pagedchat.view.chats.desk import ChatDesk
from pagedchat.view.chats.layout import GRIDS, GRIDS_OF_TWO, choose_layout, visible_page
from pagedchat.view.engine_view import EngineView


class ChatGrid(Container):
    """One pane a chat. Panes for which there is no room are kept, out of sight."""

    DEFAULT_CSS = """
    ChatGrid { layout: grid; width: 1fr; height: 1fr; }
    """

    def __init__(
        self,
        desk: ChatDesk,
        view: EngineView,
        history: PromptHistory,
        note: str = "",
        heading: GroupHeading | None = None,
    ) -> None:
        """`note` is said about the model in every empty chat; `heading` is seen where there are two groups."""
        super().__init__()
        self._heading = heading
        self.titled = False
        """Whether the heading is seen."""
        self._shown_id = 0
        """The chat that was the active one when one of these was."""
        self._desk = desk
        self._view = view
        self._history = history
        self._note = note
        self.zoomed = False
        """Whether only the active pane is shown."""
        self.wanted: int | None = None
        """Panes asked for; `None`: as many as there are chats."""
        self.layout_size = 1
        """Panes there is room for, of those that are wanted."""
        self._selected: frozenset[int] = frozenset()
        """Blocks of the selected text, as they were last told to the view."""

    def compose(self) -> ComposeResult:
        """Panes of the chats that are there from the start."""
        if self._heading is not None:
            yield self._heading
        for session in self._desk:
            yield self._new_pane(session)

    def is_of(self, desk: ChatDesk) -> bool:
        """Whether its chats are those of this desk."""
        return self._desk is desk

    @property
    def panes(self) -> list[ChatPane]:
        """All panes in order, shown or not; without those of closed chats, which stay among the children for a
        moment, and whose numbers other chats may have by then."""
        chats = {id(chat) for chat in self._desk}
        return [pane for pane in self.children if isinstance(pane, ChatPane) and id(pane.session) in chats]

    @property
    def hides_some(self) -> bool:
        """Whether a chat has no pane on the screen."""
        return not all(pane.display for pane in self.panes)

    def pane(self, session_id: int) -> ChatPane | None:
        """The pane of this chat."""
        return next((pane for pane in self.panes if pane.session.session_id == session_id), None)

    async def add(self, session: ChatSession, after: ChatSession | None = None) -> None:
        """A pane for this chat, at the end or to the right of another."""
        neighbour = self.pane(after.session_id) if after is not None else None
        await self.mount(self._new_pane(session), after=neighbour)

    def say_of_the_model(self, note: str) -> None:
        """Said in every empty chat."""
        self._note = note
        for pane in self.panes:
            pane.transcript.say_of_the_model(note)

    def _new_pane(self, session: ChatSession) -> ChatPane:
        return ChatPane(session, self._view, self._history, self._note, self._desk.reading)

    def arrange_panes(self, active_id: int, width: int, height: int, *, beside: bool = False) -> None:
        """Show the page of panes that holds the active one, or the one that was, in a room of so many cells.

        Args:
            active_id: the active chat, which may be one of another group.
            width, height: of the room.
            beside: whether another group stands beside this one.
        """
        is_here = self._desk.get(active_id) is not None
        if is_here:
            self._shown_id = active_id
        if self._heading is not None:
            self._heading.show(self.titled, active=is_here)
            height -= self.titled
        self.layout_size = choose_layout(len(self._desk), self.wanted, width, height, beside=beside)
        size = 1 if self.zoomed else self.layout_size
        shown = visible_page([chat.session_id for chat in self._desk], self._shown_id, size)
        columns, rows = (GRIDS_OF_TWO if beside else GRIDS)[size]
        columns = min(columns, max(1, len(shown)))
        rows = max(1, -(-len(shown) // columns))
        self.styles.grid_size_columns, self.styles.grid_size_rows = columns, rows
        spare = columns * rows - len(shown)
        for pane in self.panes:
            session_id = pane.session.session_id
            pane.display = session_id in shown
            pane.styles.column_span = 1 + (spare if session_id == shown[-1] else 0)
            pane.set_class(session_id == active_id, "-active")

    def refresh_view(self) -> None:
        """Draw what changed in the panes that can be seen."""
        for part in self.parts():
            part.draw()

    def parts(self) -> Iterator[ScreenPart]:
        """The same piece by piece."""
        if self._heading is not None and self._heading.display:
            yield ScreenPart(self._heading, self._heading.refresh_view, FIGURES_SECONDS)
        for pane in self.panes:
            if pane.display:
                yield ScreenPart(pane.transcript, pane.refresh_text, TEXT_SECONDS)
                yield ScreenPart(pane, partial(self._show_figures, pane), FIGURES_SECONDS)
        if self._selected:
            yield ScreenPart(self, self._follow_selection)

    def _show_figures(self, pane: ChatPane) -> None:
        """The limit is that of when it is drawn: the engine may have become ready since the turn was given out."""
        pane.refresh_figures(self._desk.context_limit)

    # --- text and blocks ----------------------------------------------------------------------------

    @on(Transcript.SelectionChanged)
    def _selection_changed(self, event: Transcript.SelectionChanged) -> None:
        event.stop()
        self._follow_selection()

    def _follow_selection(self) -> None:
        """The blocks of the selected text are highlighted; another highlight is left alone when there is none."""
        selected = frozenset[int]().union(*(pane.selected_blocks() for pane in self.panes if pane.display))
        if selected == self._selected:
            return
        if selected or self._view.highlighted == self._selected:
            self._view.highlighted = selected
            self.post_message(EngineStateChanged())
        self._selected = selected
