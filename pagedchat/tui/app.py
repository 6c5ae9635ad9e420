"""The program on the screen: the screens around an engine, the tour through them, and all of it by name.

Nothing imported here may load torch or a tokenizer: the first frame is drawn before anything heavy begins.
"""

import time
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, ClassVar

from textual.app import SystemCommand
from textual.binding import BindingType
from textual.command import Provider
from textual.screen import Screen

from pagedchat.chat.prompt_history import PromptHistory, default_path
from pagedchat.errors import PagedChatError
from pagedchat.service.commands import EngineLink
from pagedchat.settings.remembered import remember_theme
from pagedchat.tui.actions import APP_ACTIONS, PALETTE, bindings
from pagedchat.tui.attached_app import AttachedApp
from pagedchat.tui.inspector.inspector_keys import ALT_KEYS
from pagedchat.tui.kit.terminal_app import run_on_terminal
from pagedchat.tui.kit.textual_quirks import teach_terminal_keys
from pagedchat.view.options import UiOptions

if TYPE_CHECKING:
    from pathlib import Path

    from pagedchat.tui.tour.start import Tour
    from pagedchat.tui.tour.tour_box import TourBox

__all__ = ["PagedChatApp", "UiOptions", "run_app"]


def _palette_provider() -> "type[Provider]":
    from pagedchat.tui.palette import PaletteCommands  # noqa: PLC0415 - not needed for the first frame

    return PaletteCommands


class PagedChatApp(AttachedApp):
    """Chats side by side on one engine.

    Args:
        link: the engine, not yet started.
        options: what the command line said.
        history: prompts sent before; by default those kept on disk.
        clock: seconds, for how long loading takes.
    """

    TITLE = "pagedchat"
    CSS_PATH = "app.tcss"
    BINDINGS: ClassVar[list[BindingType]] = [*bindings((*APP_ACTIONS, PALETTE))]
    ENABLE_COMMAND_PALETTE = True
    COMMANDS: ClassVar[set[type[Provider] | Callable[[], type[Provider]]]] = {_palette_provider}

    def __init__(
        self,
        link: EngineLink,
        options: UiOptions,
        history: PromptHistory | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(link, options, PromptHistory(default_path()) if history is None else history, clock)
        self.keep(options)
        teach_terminal_keys(ALT_KEYS)
        self._remember_in: Path | None = None
        if options.theme:
            self.theme = options.theme
        self._remember_in = options.remember_in
        self.tour: Tour | None = None
        """The tour, while one is being given."""

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """All actions by name, the layouts, and the slash commands."""
        from pagedchat.tui.palette import palette_commands  # noqa: PLC0415 - not needed for the first frame

        return palette_commands(self)

    def watch_theme(self, old: str, new: str) -> None:
        """Colours that were chosen are those of the next run, too."""
        if self._remember_in is not None and old != new:
            remember_theme(self._remember_in, new)

    # --- the tour -----------------------------------------------------------------------------------

    def follow_engine(self) -> None:
        """How the engine is, what it has to say, and the tour."""
        super().follow_engine()
        if self.tour is not None:
            self.tour.look()

    @property
    def tells_news(self) -> bool:
        """The tour tells by itself what it does to the pool."""
        return self.tour is None

    async def action_tour(self) -> None:
        """Begin the tour, or end the one that is being given.

        Raises:
            PagedChatError: there is no engine to show it on.
        """
        if self.tour is not None:
            await self._leave_tour()
            return
        from pagedchat.tui.tour.start import Tour  # noqa: PLC0415 - as above

        tour = Tour(self, self.clock)
        await tour.begin()
        self.tour = tour
        self.redraw()

    async def on_tour_box_moved(self, message: "TourBox.Moved") -> None:
        """On, or back."""
        if self.tour is not None and not self.tour.move(message.steps):
            await self._leave_tour()
        self.redraw()

    async def on_tour_box_left(self, message: "TourBox.Left") -> None:
        """Enough."""
        await self._leave_tour()

    async def close_model(self) -> None:
        """End one of two engines; a tour, whose engine it may be, ends first."""
        await self._leave_tour()
        await super().close_model()

    async def _leave_tour(self) -> None:
        tour, self.tour = self.tour, None
        if tour is not None:
            await tour.leave()
        self.redraw()


def run_app(link: EngineLink, options: UiOptions) -> int:
    """Run until the user quits.

    Returns:
        The exit status.

    Raises:
        PagedChatError: the engine could not start; what the screen said is then said on the way out too. Or the
            screen failed.
    """
    app = PagedChatApp(link, options, PromptHistory() if options.ephemeral else None)
    try:
        exit_code = run_on_terminal(app)
    finally:
        app.end_keeping()
    if app.failure is not None and not app.ended_from_outside:
        raise PagedChatError(app.failure.message, app.failure.hint)
    return exit_code
