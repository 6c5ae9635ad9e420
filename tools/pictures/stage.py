"""The real program on a screen that nobody sees: its engine, the model in the box, keys as a user presses them."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from textual.pilot import Pilot

from pagedchat.chat.prompt_history import PromptHistory
from pagedchat.config import CacheConfig, EngineConfig
from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.service.client import EngineClient
from pagedchat.tui.app import PagedChatApp, UiOptions
from pagedchat.tui.chat.composer import Composer
from tools.pictures.rows import Row, rows_of

NUM_BLOCKS = 256


class Stage:
    """One run of the program."""

    def __init__(self, app: PagedChatApp, pilot: Pilot[None]) -> None:
        self.app = app
        self.pilot = pilot
        self.frames: list[tuple[float, tuple[Row, ...]]] = []

    async def press(self, *keys: str) -> None:
        """One key after the other."""
        await self.pilot.press(*keys)
        await self.settle()

    async def type(self, text: str) -> None:
        """Into the composer that has the keyboard."""
        composer = self.app.focused
        if not isinstance(composer, Composer):
            raise TypeError("no composer has the keyboard")
        composer.insert(text)
        await self.settle()

    async def ask(self, text: str) -> None:
        """A prompt, and all of its reply."""
        await self.type(text)
        await self.press("enter")
        await self.rest()

    async def rest(self) -> None:
        """Until nothing is written any more."""
        while self.app.view.info is None or self.app.desk.num_busy:
            await self.pilot.pause(0.05)
        await self.settle()

    async def settle(self) -> None:
        """What was asked for is drawn."""
        await self.pilot.pause(0.15)
        self.app.redraw()
        await self.pilot.pause(0.05)

    def shot(self, seconds: float = 1.0) -> None:
        """The screen as it is, shown so long."""
        self.frames.append((seconds, rows_of(self.app)))


@asynccontextmanager
async def on_stage(columns: int, rows: int, theme: str) -> AsyncIterator[Stage]:
    """The program with one chat, once its engine is ready."""
    link = EngineClient(EngineConfig(cache=CacheConfig(num_blocks=NUM_BLOCKS)))
    options = UiOptions(overrides=SamplingOverrides(seed=4), ephemeral=True)
    app = PagedChatApp(link, options, PromptHistory())
    app.animation_level = "none"
    app.theme = theme
    async with app.run_test(size=(columns, rows), notifications=False) as pilot:
        stage = Stage(app, pilot)
        await stage.rest()
        try:
            yield stage
        finally:
            await link.close()
