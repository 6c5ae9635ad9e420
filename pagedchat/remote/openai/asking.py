"""One request on its way: asked, waited for, its text passed on as it comes, and how it ended.

Text is passed on thirty times a second at most, however small its pieces are. Silence is watched from outside, by
`look`, so that it is seen on the screen while it lasts.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

from pagedchat.cache_events import FinishReason
from pagedchat.errors import PagedChatError
from pagedchat.events import (
    EngineEvent,
    RequestFailed,
    RequestFinished,
    RequestStarted,
    RequestWaits,
    TextDelta,
)
from pagedchat.remote.openai.http import BOUNDS
from pagedchat.remote.openai.plain import at
from pagedchat.remote.openai.reply import ReplyReader
from pagedchat.remote.openai.told import Told, is_busy, refuses_usage, retry_after

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from pagedchat.remote.openai.request import Asked

FLUSH_SECONDS = 1 / 30
SLICE_SECONDS = 0.004
"""After so much work without a pause the keyboard gets its turn."""
QUIET_SECONDS = 2.0
"""So long a wait needs no word."""
PAUSES = (1.0, 3.0, 8.0)
"""Before a busy server is asked again, where it does not say how long to wait."""
_WAYS_ON = {True: "/continue goes on from here, /regen asks again.", False: "/regen asks again."}
"""Behind a reply that was cut short, where the server is known to go on in the middle of one, and where not."""
LONGEST_PAUSE = 30.0
"""A server that wants to be left alone for longer is not asked again by itself."""


class Asking:
    """A request of one session.

    Args:
        ids: session and request.
        asked: what the server is asked.
        client: over which.
        told: makes sentences of errors.
        emit: hears the request's events.
        timeout: seconds of silence after which it is given up.
        before: text of the reply that was there before, to be told first.
        clock: seconds.
    """

    def __init__(
        self,
        ids: tuple[int, int],
        asked: "Asked",
        client: "AsyncOpenAI",
        told: Told,
        emit: Callable[[EngineEvent], None],
        timeout: float,
        before: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._ids = ids
        self._asked = asked
        self._client = client
        self._told = told
        self._emit = emit
        self._timeout = timeout
        self._clock = clock
        self.text = before
        """All of the reply so far, as it was told."""
        self.finished: RequestFinished | None = None
        """Its last event, where it came to an end."""
        self.is_over = False
        self._reader = ReplyReader()
        self._unsent = before
        self._flushed = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._began = self._heard = clock()
        self._first: float | None = None
        self._waits_for = "an answer"
        self._gave_up = False
        self._task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Ask."""
        self._task = asyncio.create_task(self._run(), name=f"request {self._ids}")

    # --- from outside -------------------------------------------------------------------------------

    def look(self) -> None:
        """To be called about once a second: says how long nothing has come, and ends what was silent too long."""
        if self.is_over or self._task is None:
            return
        silent = self._clock() - self._heard
        if silent >= self._timeout:
            self._gave_up = True
            self._task.cancel()
        elif silent >= QUIET_SECONDS:
            self._say(f"waits for {self._waits_for}: {silent:.0f} s of {self._timeout:.0f}, Esc stops it")

    def stop(self) -> None:
        """The user has had enough: it ends with the text that it has."""
        if not self.is_over:
            self._end("abort")

    def drop(self) -> None:
        """Nobody listens any more."""
        self._close()

    def fail(self, error: PagedChatError) -> None:
        """It ends with an error; the text stays."""
        if not self.is_over:
            self._flush()
            self._close()
            ways = _WAYS_ON[self._asked.continues] if self.text else ""
            self._emit(RequestFailed(*self._ids, error.message, f"{error.hint} {ways}".strip()))

    async def gone(self) -> None:
        """Wait until nothing of it is left."""
        if self._task is not None:
            await asyncio.wait({self._task})

    # --- the request --------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            await self._read(await self._open())
        except asyncio.CancelledError:
            if self._gave_up:
                self.fail(self._told.silent(self._timeout))
        except Exception as error:  # of the client, of HTTP, of JSON: whatever a server can cause
            self.fail(self._told.error(error))

    async def _open(self) -> AsyncIterator[Any]:
        """The stream, once the server gives one; a busy one is asked again a few times."""
        for pause in (*PAUSES, None):
            try:
                return await self._ask()
            except Exception as error:
                if not is_busy(error):
                    raise
                seconds = retry_after(error)
                if pause is None or (seconds is not None and seconds > LONGEST_PAUSE):
                    raise
                await self._wait_out(pause if seconds is None else seconds, error)
        raise AssertionError("the last try returns or raises")

    async def _ask(self) -> AsyncIterator[Any]:
        chat = self._client.chat.completions if not self._asked.raw else self._client.completions
        try:
            stream: AsyncIterator[Any] = await chat.create(**self._asked.arguments)
        except Exception as error:
            if not refuses_usage(error) or "stream_options" not in self._asked.arguments:
                raise
            self._asked = self._asked.without_usage()
            stream = await chat.create(**self._asked.arguments)
        return stream

    async def _wait_out(self, seconds: float, error: Exception) -> None:
        """The server is busy."""
        self._heard = self._clock() + seconds
        message = self._told.error(error).message.rstrip(".")
        self._say(f"{message}; asked again in {seconds:.0f} s")
        await asyncio.sleep(seconds)

    async def _read(self, stream: AsyncIterator[Any]) -> None:
        self._heard, self._waits_for = self._clock(), "the first token"
        self._emit(RequestStarted(*self._ids, 0, 0))
        self._flush()  # of what was there before
        try:
            rested = time.monotonic()
            async for piece in stream:
                self._take(piece)
                if time.monotonic() - rested > SLICE_SECONDS:  # pieces that came together are read without a pause
                    await asyncio.sleep(0)
                    rested = time.monotonic()
        finally:
            await _close(stream)
        self._add(self._reader.end())
        bounds = (at(stream, "response", "extensions") or {}).get(BOUNDS)
        if self._reader.reason is None and not (bounds is not None and bounds.has_ended):
            raise self._told.cut()
        self._end(self._reader.reason or "stop")

    def _take(self, piece: Any) -> None:
        error = at(piece, "error")
        if error:
            words = self._told.quoted(str(at(error, "message") or error))
            raise PagedChatError(f"{self._told.name} ended the reply with an error: {words}.")
        text = self._reader.take(piece)
        if text:
            self._heard, self._waits_for = self._clock(), "more"
            self._first = self._heard if self._first is None else self._first
        self._add(text)

    # --- what is told -------------------------------------------------------------------------------

    def _say(self, message: str) -> None:
        self._emit(RequestWaits(*self._ids, message))

    def _add(self, text: str) -> None:
        if not text:
            return
        self.text += text
        self._unsent += text
        due = self._flushed + FLUSH_SECONDS - self._clock()
        if due <= 0:
            self._flush()
        elif self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(due, self._flush)

    def _flush(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if self._unsent and not self.is_over:
            text, self._unsent = self._unsent, ""
            self._flushed = self._clock()
            self._emit(TextDelta(*self._ids, text, self._reader.num_tokens))

    def _end(self, reason: FinishReason) -> None:
        self._flush()
        now, reader = self._clock(), self._reader
        first = (self._first if self._first is not None else now) - self._began
        self.finished = RequestFinished(
            *self._ids, reason, reader.num_prompt_tokens, reader.num_cached_tokens, reader.num_tokens, first,
            now - self._began, reader.num_cached_tokens,
        )  # fmt: skip
        self._close()
        self._emit(self.finished)

    def _close(self) -> None:
        self.is_over = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None and self._task is not asyncio.current_task():
            self._task.cancel()


async def _close(stream: Any) -> None:
    close = at(stream, "close")
    if close is not None:
        await close()
