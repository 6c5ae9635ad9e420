"""Asks a server for its `/metrics` again and again, more often while it answers us. Knows nothing of requests."""

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from pagedchat.events import EngineEvent, ServerFigures
from pagedchat.remote.openai.told import Told

if TYPE_CHECKING:
    from openai import AsyncOpenAI

BUSY_SECONDS, IDLE_SECONDS, NONE_SECONDS = 1.0, 5.0, 60.0
"""Between two questions: while a reply is being written, while none is, and to a server that has no figures."""
PATIENCE = 5.0


class Observing:
    """The questions, until `stop`.

    Args:
        client: over which; the address it was made for and no other hears its key.
        url: of the figures, at the same host.
        told: makes sentences of errors.
        emit: hears the figures.
        is_busy: whether a reply is being written.
    """

    def __init__(
        self,
        client: "AsyncOpenAI",
        url: str,
        told: Told,
        emit: Callable[[EngineEvent], None],
        is_busy: Callable[[], bool],
    ) -> None:
        self._client = client
        self._url = url
        self._told = told
        self._emit = emit
        self._is_busy = is_busy
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """From now on."""
        self._task = asyncio.create_task(self._run(), name="figures")

    def stop(self) -> None:
        """No more."""
        if self._task is not None:
            self._task.cancel()

    async def _run(self) -> None:
        from pagedchat.remote.openai.figures import read_figures  # noqa: PLC0415 - a parser that few need

        while True:
            try:
                async with asyncio.timeout(PATIENCE):
                    figures = await asyncio.to_thread(read_figures, await self._text())
            except TimeoutError:
                figures = ServerFigures(f"Its /metrics did not answer within {PATIENCE:.0f} s.")
            except Exception as error:  # whatever a server can cause; figures are a courtesy
                figures = ServerFigures(_why_none(error, self._told))
            self._emit(figures)
            none = bool(figures.problem)
            await asyncio.sleep(NONE_SECONDS if none else BUSY_SECONDS if self._is_busy() else IDLE_SECONDS)

    async def _text(self) -> str:
        """The answer's text; its length is bounded like that of all answers."""
        answer: Any = await self._client.get(self._url, cast_to=str)
        return answer if isinstance(answer, str) else ""


def _why_none(error: Exception, told: Told) -> str:
    status = getattr(error, "status_code", None)
    if status == 404:
        return "It has no /metrics."
    if status in (400, 401, 403, 405, 501):
        return f"It does not tell its /metrics ({status}); llama.cpp does with --metrics."
    return told.error(error).message
