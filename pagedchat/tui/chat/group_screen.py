"""The panes of every chat on a screen, by the groups in which they stand: one engine's chats are a grid of panes.

Knows which pane is whose. What stands around the panes, and which chat has the keyboard, is not known here.
"""

from pagedchat.chat.prompt_history import PromptHistory
from pagedchat.chat.session import ChatSession
from pagedchat.tui.chat.chat_grid import ChatGrid
from pagedchat.tui.chat.chat_pane import ChatPane
from pagedchat.tui.chat.group_heading import GroupHeading
from pagedchat.tui.engine_group import EngineGroup, EngineGroups
from pagedchat.tui.kit.sparse_painting import SparseScreen
from pagedchat.view.chats.desk import ChatDesk
from pagedchat.view.engine_view import EngineView
from pagedchat.view.options import UiOptions


class GroupScreen(SparseScreen):
    """One grid of panes, or several side by side.

    Args:
        groups: all chats, by their engines; those to start with are made here.
        options: what the command line said.
        history: prompts sent before.
    """

    def __init__(self, groups: EngineGroups, options: UiOptions, history: PromptHistory) -> None:
        super().__init__()
        self._groups = groups
        self._history = history
        for group in groups:
            for _ in range(len(group.desk), max(1, options.sessions if group is groups.first else 1)):
                group.desk.new()
        self._grids = [self._new_grid(group) for group in groups]

    @property
    def _desk(self) -> ChatDesk:
        """Of the group of the active chat."""
        return self._groups.shown.desk

    @property
    def _view(self) -> EngineView:
        """Of the same."""
        return self._groups.shown.view

    @property
    def _grid(self) -> ChatGrid:
        """Of the same."""
        return self._grid_of(self._groups.shown)

    def _grid_of(self, group: EngineGroup) -> ChatGrid:
        return next(grid for grid in self._grids if grid.is_of(group.desk))

    def _desk_of(self, chat: ChatSession) -> ChatDesk:
        return self._groups.of(chat).desk

    def _pane(self, session_id: int) -> ChatPane | None:
        """The pane of the chat of this number, in whichever group it is."""
        return next((pane for pane in self._panes if pane.session.session_id == session_id), None)

    @property
    def _panes(self) -> list[ChatPane]:
        return [pane for grid in self._grids for pane in grid.panes]

    def _new_grid(self, group: EngineGroup) -> ChatGrid:
        return ChatGrid(group.desk, group.view, self._history, group.note, GroupHeading(group))

    def _lay_out(self, wanted: int | None, *, zoomed: bool) -> None:
        """So many panes in every group, or only the active one."""
        for grid in self._grids:
            grid.wanted, grid.zoomed = wanted, zoomed

    @property
    def drafts(self) -> dict[int, str]:
        """What is written in each composer, by the numbers of the chats."""
        return {pane.session.session_id: pane.composer.text for pane in self._panes}
