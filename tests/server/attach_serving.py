"""A server with /attach alone, on a port of its own in the test's loop, over the engine of `hub_walk`."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import uvicorn
from starlette.applications import Starlette

from pagedchat import events as ev
from pagedchat.remote.address import Address, address_of
from pagedchat.remote.attached import AttachedLink
from pagedchat.server.attach import AttachServer
from pagedchat.service.commands import AnyCommand
from tests.server.hub_walk import RigLink

PATIENCE = 10.0


@dataclass
class Served:
    link: RigLink
    attach: AttachServer
    port: int
    server: uvicorn.Server

    @property
    def address(self) -> Address:
        return address_of("--attach", f"127.0.0.1:{self.port}")


@asynccontextmanager
async def serving(link: RigLink | None = None, port: int = 0, **options: Any) -> AsyncIterator[Served]:
    link = link or RigLink(500)
    link.answers_by_itself = True
    attach = AttachServer(link.hub, **options)
    app = Starlette(routes=[attach.route])
    config = uvicorn.Config(app, port=port, log_config=None, lifespan="off", timeout_graceful_shutdown=1)
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    running = asyncio.create_task(server.serve())
    while not server.started:
        assert not running.done()
        await asyncio.sleep(0)
    try:
        yield Served(link, attach, server.servers[0].sockets[0].getsockname()[1], server)
    finally:
        attach.close()
        server.should_exit = True
        await running


class Terminal:
    """An attached link, and what it has said."""

    def __init__(self, served: Served, **options: Any) -> None:
        self.link = AttachedLink(served.address, **({"key": "a user"} | options))
        self.heard: list[ev.EngineEvent] = []
        self._listening: asyncio.Task[None] | None = None
        self._changed = asyncio.Event()

    async def __aenter__(self) -> "Terminal":
        await self.link.start()
        self._listening = asyncio.create_task(self._listen())
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.link.close()
        await self.wait_for_end()

    async def wait_for_end(self) -> None:
        assert self._listening is not None
        await self._listening

    async def _listen(self) -> None:
        async for event in self.link.events():
            self.heard.append(event)
            self._changed.set()

    def send(self, *commands: AnyCommand) -> None:
        for command in commands:
            self.link.send(command)

    async def kill(self) -> None:
        """As `kill -9`: the connection ends, and nothing is said."""
        connection = self.link._connection
        running = self.link._running
        self.link._closing = True
        connection.transport.abort()
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        self.link._events.put(None)
        await self.wait_for_end()

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.heard if isinstance(event, kind)]

    async def until(self, holds: Callable[[], Any]) -> None:
        async with asyncio.timeout(PATIENCE):
            while not holds():
                self._changed.clear()
                await self._changed.wait()

    async def until_heard(self, kind: type, count: int = 1) -> Any:
        await self.until(lambda: len(self.of(kind)) >= count)
        return self.of(kind)[count - 1]

    def text(self, request_id: int) -> str:
        return "".join(delta.text for delta in self.of(ev.TextDelta) if delta.request_id == request_id)


async def until(holds: Callable[[], Any]) -> None:
    """For what no event tells."""
    async with asyncio.timeout(PATIENCE):
        while not holds():  # noqa: ASYNC110 - what is waited for is the server's, which tells no test
            await asyncio.sleep(0.001)
