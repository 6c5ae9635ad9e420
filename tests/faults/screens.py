"""What a user has in front of them without drawing it: chats, banner and recording over a real engine process."""

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from pagedchat import events as ev
from pagedchat.chat.session import ChatSession
from pagedchat.config import EngineConfig, ModelConfig
from pagedchat.service.client import EngineClient
from pagedchat.service.commands import AnyCommand
from pagedchat.trace.recorder import Recorder
from pagedchat.tui.bridge import EngineBridge
from pagedchat.tui.chat.engine_status import engine_status
from pagedchat.view.chats.desk import ChatDesk
from pagedchat.view.engine_view import EngineView
from pagedchat.view.options import UiOptions
from pagedchat.view.sentences.engine_words import EngineNews
from tests.faults.gated_engine import GATED_ENTRY, Gates

PATIENCE = 60.0


class Screens:
    """The program between its screen and its engine process.

    Args:
        folder: for log, recording and orders to the engine.
        entry: the command that starts an engine.
    """

    def __init__(self, folder: Path, entry: Sequence[str] = GATED_ENTRY) -> None:
        self.gates = Gates(folder)
        self.trace = folder / "run.trace"
        self.client = EngineClient(EngineConfig(model=ModelConfig(model=str(folder))), folder / "log", entry)
        self.view = EngineView()
        self.desk = ChatDesk(self.client.send, UiOptions())
        self.banners: list[str] = []
        """What the banner has said, one after the other."""
        self.heard: list[ev.EngineEvent] = []
        self.reads = asyncio.Event()
        """Whether what comes is read."""
        self.reads.set()
        self._folded = asyncio.Event()
        self._news = EngineNews(self.view)
        self.news: list[str] = []
        self.bridge = EngineBridge(self, self.view, self.desk, self._show_banner, Recorder(self.trace))

    # --- between bridge and client ------------------------------------------------------------------

    async def start(self) -> None:
        await self.client.start()

    async def restart(self) -> None:
        await self.client.restart()

    async def close(self) -> None:
        await self.client.close()

    def send(self, command: AnyCommand) -> None:
        self.client.send(command)

    async def events(self) -> AsyncIterator[ev.EngineEvent]:
        async for event in self.client.events():
            await self.reads.wait()
            yield event
            self.heard.append(event)
            self.news += [news.text for news in self._news.take()]
            self._folded.set()

    def _show_banner(self, _: object) -> None:
        banner = engine_status(self.view, self.bridge.died, 0.0, 200).content.plain
        if banner and banner not in self.banners[-1:]:
            self.banners.append(banner)

    # --- what is done and waited for ----------------------------------------------------------------

    def ask(self, prompt: str, max_tokens: int | None = None) -> ChatSession:
        """In a chat of its own."""
        chat = self.desk.new()
        chat.set_sampling("max_tokens", max_tokens)
        self.desk.submit(chat, prompt)
        return chat

    async def until(self, holds: Callable[[], object]) -> None:
        """Until something holds, looked at after each event."""
        async with asyncio.timeout(PATIENCE):
            while not holds():
                self._folded.clear()
                await self._folded.wait()

    async def until_ready(self) -> None:
        await self.until(lambda: self.view.live)

    async def arrival(self) -> str:
        """The phase whose gate the engine has come to."""
        async with asyncio.timeout(PATIENCE):
            return await self.gates.arrival()

    def died(self) -> ev.EngineDied | None:
        """The last death."""
        return next((event for event in reversed(self.heard) if isinstance(event, ev.EngineDied)), None)


@asynccontextmanager
async def screens(folder: Path, entry: Sequence[str] = GATED_ENTRY) -> AsyncIterator[Screens]:
    """On an engine that has just been started."""
    program = Screens(folder, entry)
    running = asyncio.create_task(program.bridge.run())
    try:
        yield program
    finally:
        await program.close()
        await running
        program.gates.close()
