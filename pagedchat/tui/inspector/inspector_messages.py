"""What the inspector's widgets ask for, carried to the engine and to the chats.

Handlers are found by their names, so that nothing of the inspector is imported for the first frame.
"""

from typing import TYPE_CHECKING

from pagedchat.errors import PagedChatError
from pagedchat.service.commands import AnyCommand, Evict, Pause, Pin, Resume, SetPace, StepOnce, Unpin
from pagedchat.view.engine_view import EngineView

if TYPE_CHECKING:
    from pagedchat.tui.chat.screen import ChatScreen
    from pagedchat.tui.inspector.panel import InspectorPanel
    from pagedchat.tui.inspector.pool.block_detail import BlockDetail
    from pagedchat.tui.inspector.pool.block_map import BlockMap
    from pagedchat.tui.inspector.scrub_bar import ScrubBar
    from pagedchat.tui.inspector.tables.block_tables import BlockTables
    from pagedchat.view.past.time_travel import TimeTravel


class InspectorMessages:
    """The part of the app that hears the inspector."""

    view: EngineView
    time_travel: "TimeTravel"

    @property
    def chats(self) -> "ChatScreen":
        """The screen of the chats."""
        raise NotImplementedError

    def send(self, command: AnyCommand) -> None:
        """Ask the engine."""
        raise NotImplementedError

    def complain(self, error: PagedChatError) -> None:
        """Say what went wrong."""
        raise NotImplementedError

    def redraw(self) -> None:
        """Draw what changed, now."""
        raise NotImplementedError

    # --- the scheduler ------------------------------------------------------------------------------

    def set_paused(self, paused: bool) -> None:
        """Hold the scheduler, or let it run."""
        self.send(Pause() if paused else Resume())

    def step(self, count: int) -> None:
        """So many steps of the paused scheduler; one that runs is paused first."""
        self.send(StepOnce(count) if self.view.paused else Pause())

    def on_inspector_panel_pause_toggled(self, message: "InspectorPanel.PauseToggled") -> None:
        """The inspector's own key for it."""
        self.set_paused(message.paused)

    def on_inspector_panel_step_requested(self, message: "InspectorPanel.StepRequested") -> None:
        """As above."""
        self.step(message.count)

    def on_inspector_panel_pace_requested(self, message: "InspectorPanel.PaceRequested") -> None:
        """Slow motion."""
        self.send(SetPace(message.seconds))

    # --- blocks -------------------------------------------------------------------------------------

    def on_block_detail_pin_toggled(self, message: "BlockDetail.PinToggled") -> None:
        """Keep the block, or let it go; the engine answers."""
        self.send(Pin(message.block_id) if message.pinned else Unpin(message.block_id))

    def on_block_detail_evict_requested(self, message: "BlockDetail.EvictRequested") -> None:
        """Free the block; the engine answers."""
        self.send(Evict(message.block_id))

    def on_block_map_block_chosen(self, message: "BlockMap.BlockChosen") -> None:
        """Its text lights up in the chats."""
        self.chats.light_block(message.block_id)

    def on_block_tables_block_chosen(self, message: "BlockTables.BlockChosen") -> None:
        """As above."""
        self.chats.light_block(message.block_id)

    # --- time ---------------------------------------------------------------------------------------

    def on_scrub_bar_scrubbed(self, message: "ScrubBar.Scrubbed") -> None:
        """To a recorded step."""
        self.go_to_step(message.step)

    def on_inspector_panel_step_chosen(self, message: "InspectorPanel.StepChosen") -> None:
        """As above, from the timeline."""
        self.go_to_step(message.step)

    def go_to_step(self, step: int | None) -> None:
        """To a recorded step, or to the present."""
        try:
            if step is None:
                self.time_travel.live()
            else:
                self.time_travel.goto(step)
        except PagedChatError as error:
            self.complain(error)
        self.redraw()
