"""An engine link on which replies of programs go past steps: those who fold steps take their time.

A fast engine tells hundreds of steps at a time, which take longer to fold than some of them took. So steps come in
small pieces, with a turn of the event loop after each, and what a program waits for comes before those that wait.
All else keeps its place.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Iterator

from pagedchat.events import Detokenized, EngineEvent, RequestOutputs, RequestRefused, Steps, Tokenized, TokenTexts
from pagedchat.service.commands import AnyCommand, EngineLink
from pagedchat.service.event_queue import MAX_WAITING, num_parts

_PIECE = 256
"""Parts of steps that are folded in a row: a step of N sequences has 1 + N, and one for each cache event."""
_OF_PROGRAMS = (RequestOutputs, RequestRefused, Tokenized, Detokenized)


class StepsBehind:
    """Passes everything on as it is, but for the order.

    Args:
        link: an engine.
        limit: parts of steps that may wait here; more wait where they come from.
    """

    def __init__(self, link: EngineLink, limit: int = MAX_WAITING) -> None:
        self._link = link
        self._limit = limit
        self._waiting: deque[EngineEvent] = deque()
        self._num_others = self._num_parts = 0
        """Of those that wait: events that nothing goes past; parts of all."""

    async def start(self) -> None:
        """Start the engine."""
        await self._link.start()

    async def restart(self) -> None:
        """Start it anew."""
        await self._link.restart()

    async def switch(self, model: str) -> None:
        """Start it anew with another model."""
        await self._link.switch(model)

    def beside(self, model: str) -> EngineLink:
        """Another engine."""
        return self._link.beside(model)

    def send(self, command: AnyCommand) -> None:
        """Queue a command."""
        self._link.send(command)

    async def events(self) -> AsyncIterator[EngineEvent]:
        """All events from now on. While none waits they are passed on as they come, by nobody else."""
        source = self._link.events()
        coming: asyncio.Future[EngineEvent | None] | None = None
        try:
            while True:
                if not self._waiting:
                    event = await (coming or _next_of(source))
                    coming = None
                    if event is None:
                        return
                    if not _is_long(event):
                        yield event
                        continue
                    self._put(event)
                if coming is None and self._num_parts <= self._limit:
                    coming = asyncio.ensure_future(_next_of(source))
                if coming is not None and coming.done() and (event := coming.result()) is not None:
                    coming = None
                    if self._goes_past(event):
                        yield event
                    else:
                        self._put(event)
                    continue
                yield self._next()
                await asyncio.sleep(0)
        finally:
            if coming is not None:
                coming.cancel()

    async def close(self) -> None:
        """End the engine."""
        await self._link.close()

    def _goes_past(self, event: EngineEvent) -> bool:
        return isinstance(event, _OF_PROGRAMS) and not self._num_others

    def _put(self, event: EngineEvent) -> None:
        for piece in _pieces(event) if isinstance(event, Steps) else [event]:
            self._waiting.append(piece)
            self._num_parts += num_parts(piece)
        self._num_others += not isinstance(event, Steps | TokenTexts)

    def _next(self) -> EngineEvent:
        event = self._waiting.popleft()
        self._num_parts -= num_parts(event)
        self._num_others -= not isinstance(event, Steps | TokenTexts)
        return event


async def _next_of(source: AsyncIterator[EngineEvent]) -> EngineEvent | None:
    """None after the last one."""
    return await anext(source, None)


def _is_long(event: EngineEvent) -> bool:
    return isinstance(event, Steps) and num_parts(event) > _PIECE


def _pieces(steps: Steps) -> Iterator[Steps]:
    """The same in several, each about as long as may be; what one step has stays together."""
    reports = steps.reports
    count = max(1, len(reports) * _PIECE // num_parts(steps))
    for start in range(0, len(reports), count):
        yield Steps(reports[start : start + count])
