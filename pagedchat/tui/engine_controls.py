"""What is asked of the engine, by key, by slash command or in the inspector: one method for each wish.

Here is only checked that there is an engine to ask. What it makes of a limit, a pin or an eviction is its own
answer, an `EngineNotice`. Knows neither Textual nor who asks.
"""

from collections.abc import Callable

from pagedchat.errors import PagedChatError
from pagedchat.service.commands import (
    AnyCommand,
    Evict,
    FlushCache,
    Pause,
    Pin,
    Resume,
    SetLimit,
    SetPace,
    StepOnce,
    Unpin,
)
from pagedchat.view.engine_view import EngineView
from pagedchat.view.sentences.server_words import no_blocks, no_past, not_held, not_ours
from pagedchat.view.state.engine import EngineState


class EngineControls:
    """Every method raises `PagedChatError` where there is no engine to ask; all but `live` send commands.

    `send` is the bare way, unchecked.

    Args:
        view: what is known of the engine.
        send: takes commands to it.
    """

    def __init__(self, view: EngineView, send: Callable[[AnyCommand], None]) -> None:
        self._view = view
        self.send = send

    def live(self) -> EngineState:
        """The engine as it is now, whatever moment is shown.

        Raises:
            PagedChatError: there is none, or a server in its place.
        """
        if self._view.server is not None:
            raise no_blocks(self._view.server)
        if self._view.live is None:
            raise PagedChatError("The engine is not running.", "Wait until it is ready, or type /restart.")
        return self._view.live

    def check_pool(self) -> None:
        """Whether its pool takes commands from here.

        Raises:
            PagedChatError: it is a server's.
        """
        if self._view.server is not None:
            raise not_ours(self._view.server)

    def check_recorded(self) -> None:
        """Whether what it does is recorded.

        Raises:
            PagedChatError: a server answers, which does not tell it.
        """
        if self._view.server is not None:
            raise no_past(self._view.server)

    def _ask(self, *commands: AnyCommand) -> None:
        if self._view.server is not None and isinstance(commands[0], Pause | Resume | StepOnce | SetPace):
            raise not_held(self._view.server)
        self.check_pool()
        self.live()
        for command in commands:
            self.send(command)

    # --- the scheduler ------------------------------------------------------------------------------

    def pause(self) -> None:
        """Hold the scheduler before its next step."""
        self._ask(Pause())

    def run(self) -> None:
        """Let the scheduler run on."""
        self._ask(Resume())

    def toggle_pause(self) -> None:
        """Hold the scheduler that runs, or let the paused one run on."""
        if self._view.paused:
            self.run()
        else:
            self.pause()

    def step(self, count: int = 1) -> None:
        """So many steps of the paused scheduler; one that runs is paused first and takes these and no more."""
        before = () if self._view.paused else (Pause(),)
        self._ask(*before, StepOnce(count))

    def set_pace(self, seconds: float) -> None:
        """Slow motion: a step takes at least so long; 0 runs as fast as can be."""
        self._ask(SetPace(seconds))

    # --- the pool -----------------------------------------------------------------------------------

    def limit(self, num_blocks: int | None) -> None:
        """The pool uses at most so many blocks; None lifts the limit."""
        self._ask(SetLimit(num_blocks))

    def pin(self, block_id: int) -> None:
        """Keep a block from eviction."""
        self._ask(Pin(block_id))

    def unpin(self, block_id: int | None) -> None:
        """Let a pinned block be evicted again; None: every one."""
        self._ask(Unpin(block_id))

    def evict(self, block_id: int) -> None:
        """Make a cached block free."""
        self._ask(Evict(block_id))

    def flush(self) -> None:
        """Make every cached block free."""
        self._ask(FlushCache())
