"""What the inspector's widgets ask for, carried to the engine and to the chats.

Handlers are found by their names, so that nothing of the inspector is imported for the first frame.
"""

from typing import TYPE_CHECKING

from pagedchat.tui.messages import BlockChosen, PaceRequested, PauseToggled, StepChosen, StepRequested
from pagedchat.tui.screens import ScreensApp

if TYPE_CHECKING:
    from pagedchat.tui.inspector.pool.block_detail import BlockDetail


class InspectorListener(ScreensApp):
    """The part of the app that hears the inspector."""

    # --- the engine ---------------------------------------------------------------------------------

    def on_pause_toggled(self, message: PauseToggled) -> None:
        """The inspector's own key for it."""
        self.action_pause()

    def on_step_requested(self, message: StepRequested) -> None:
        """As above."""
        with self.complaining():
            self.engine.step()

    def on_pace_requested(self, message: PaceRequested) -> None:
        """Slow motion."""
        with self.complaining():
            self.engine.set_pace(message.seconds)

    def on_block_detail_pin_toggled(self, message: "BlockDetail.PinToggled") -> None:
        """Keep the block, or let it go; the engine answers."""
        with self.complaining():
            if message.pinned:
                self.engine.pin(message.block_id)
            else:
                self.engine.unpin(message.block_id)

    def on_block_detail_evict_requested(self, message: "BlockDetail.EvictRequested") -> None:
        """Free the block; the engine answers."""
        with self.complaining():
            self.engine.evict(message.block_id)

    # --- what is shown ------------------------------------------------------------------------------

    def on_block_chosen(self, message: BlockChosen) -> None:
        """Its text lights up in the chats."""
        self.chats.light_block(message.block_id)

    def on_step_chosen(self, message: StepChosen) -> None:
        """The whole screen follows."""
        with self.complaining():
            self.go_to_step(message.step)
