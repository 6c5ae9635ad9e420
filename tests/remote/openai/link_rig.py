"""A link to a misbehaving server, and what it says."""

import asyncio
from contextlib import asynccontextmanager

from pagedchat.chat.turns import Turn
from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.events import EngineReady, RequestFailed, RequestFinished, ServerFigures, TextDelta
from pagedchat.remote.openai.address import server_address
from pagedchat.remote.openai.link import OpenAILink
from pagedchat.service.commands import Generate
from tests.misbehaving_server import MisbehavingServer

SECONDS = 20
"""For whatever a test waits for; nothing takes so long."""


class Heard:
    """A link's events, in order; figures are kept apart, for they come when they like."""

    def __init__(self, link):
        self.link = link
        self._events = link.events()
        self.all = []
        self.figures = []

    async def next(self):
        while True:
            event = await asyncio.wait_for(anext(self._events), SECONDS)
            if not isinstance(event, ServerFigures):
                self.all.append(event)
                return event
            self.figures.append(event)

    async def until(self, *kinds):
        while not isinstance(event := await self.next(), kinds):
            pass
        return event

    async def reply(self, prompt, request_id=1, session_id=1, **more):
        """Ask, and wait for the end: the text, and how it ended."""
        turns = more.pop("turns", [Turn("user", prompt)])
        raw = more.pop("raw", False)
        self.link.send(Generate(session_id, request_id, turns, SamplingOverrides(**more), raw))
        return await self.end(request_id)

    async def end(self, request_id):
        while True:
            event = await self.until(RequestFinished, RequestFailed)
            if event.request_id == request_id:
                return self.text(request_id), event

    async def told_figures(self):
        """Once there are any."""
        while not self.figures:
            event = await asyncio.wait_for(anext(self._events), SECONDS)
            (self.figures if isinstance(event, ServerFigures) else self.all).append(event)

    def text(self, request_id):
        return "".join(e.text for e in self.all if isinstance(e, TextDelta) and e.request_id == request_id)


@asynccontextmanager
async def connected(ready=True, address="", environ_key="", **server):
    """A server with these properties, and a link to it that is ready."""
    async with MisbehavingServer(**server) as there:
        link = OpenAILink(server_address(there.url + address, {}, environ_key))
        heard = Heard(link)
        await link.start()
        if ready:
            await heard.until(EngineReady)
        try:
            yield there, heard
        finally:
            await link.close()
