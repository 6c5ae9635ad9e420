"""One answer to one request: let in, generated, written whole or event by event, and ended early where its client
has gone or the server ends.

Knows admission, bytes and errors; what is generated it is handed.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from pagedchat.errors import PagedChatError
from pagedchat.server.admission import Admission, Answer
from pagedchat.server.http.errors import ApiError, Naming, from_engine, not_ready, unexpected
from pagedchat.server.http.streaming import DONE
from pagedchat.server.http.when_gone import WHEN_GONE, WhenGone

log = logging.getLogger(__name__)

_JSON = [(b"content-type", b"application/json")]
_EVENTS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]
"""The last one is for nginx, which else would collect a stream."""
RETRY_WHEN_FULL = 1
"""Seconds."""


class Writer:
    """The body of one answer.

    Args:
        send: ASGI's.
    """

    def __init__(self, send: Send) -> None:
        self._send = send
        self.begun = False
        """Whether a status has been sent, so that an error can only be one more event."""
        self.has_ended = False

    async def whole(self, body: bytes) -> None:
        """All of it at once, as JSON."""
        await self._begin(_JSON)
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def events(self, frames: bytes) -> None:
        """One event or several. Returns at once, unless the client reads so slowly that much waits for it."""
        if not self.begun:
            await self._begin(_EVENTS)
        await self._send({"type": "http.response.body", "body": frames, "more_body": True})

    async def end(self, frames: bytes = b"") -> None:
        """After the last event, which may be given."""
        if not self.begun:
            await self._begin(_EVENTS)
        self.has_ended = True
        await self._send({"type": "http.response.body", "body": frames, "more_body": False})

    async def _begin(self, headers: list[tuple[bytes, bytes]]) -> None:
        self.begun = True
        await self._send({"type": "http.response.start", "status": 200, "headers": headers})


Work = Callable[[Writer], Awaitable[None]]
"""Generates and writes; cancelled where nobody wants it any more."""


def whole(body: Callable[[], Awaitable[bytes]]) -> Work:
    """Work that has one result."""

    async def work(writer: Writer) -> None:
        await writer.whole(await body())

    return work


def stream(frames: Callable[[], AsyncGenerator[bytes, None]]) -> Work:
    """Work whose results are events, the last of which goes out with the end of the answer."""

    async def work(writer: Writer) -> None:
        async with aclosing(frames()) as each:
            async for frame in each:
                if frame.endswith(DONE):
                    await writer.end(frame)
                    await asyncio.sleep(0)  # the last events of others go out before anything is tidied up
                else:
                    await writer.events(frame)
        if not writer.has_ended:
            await writer.end()

    return work


class GeneratedAnswer(Response):
    """Does the work when it is called, as ASGI does with a response.

    Args:
        admission: lets it in, or not.
        count: sequences that it will have.
        work: what is to be done.
        naming: how errors name what is at fault.
    """

    def __init__(self, admission: Admission, count: int, work: Work, naming: Naming) -> None:
        self._admission = admission
        self._count = count
        self._work = work
        self._naming = naming

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Write the whole answer."""
        refused = self._refused()
        if refused is not None:
            await refused.response()(scope, receive, send)
            return
        writer = Writer(send)
        with self._admission.inside(self._count):
            error = await self._until_over(writer, scope, receive)
        if error is None or writer.has_ended:
            return
        if writer.begun:
            await writer.end(error.event)
        else:
            await error.response()(scope, receive, send)

    def _refused(self) -> ApiError | None:
        match self._admission.ask(self._count):
            case Answer.FULL:
                return ApiError(
                    429, "As many requests wait as may wait. Try again in a moment.",
                    headers={"Retry-After": str(RETRY_WHEN_FULL)},
                )  # fmt: skip
            case Answer.CLOSING:
                return not_ready("The server is about to end.")
        return None

    async def _until_over(self, writer: Writer, scope: Scope, receive: Receive) -> ApiError | None:
        """Until the work is done, its client has gone, or it is cut; what is to be told of it.

        The work is done by the task that is here, which whoever ends it cancels: a task less for each request.
        """
        interruption = _Interruption()
        watched = _watched(scope, receive)
        watched.add(interruption.client_has_gone)
        self._admission.on_cut.add(interruption.is_cut)
        try:
            await self._work(writer)
        except asyncio.CancelledError:
            return interruption.error_or_raise()
        except Exception as error:
            return self._told(error)
        finally:
            interruption.is_over = True
            self._admission.on_cut.discard(interruption.is_cut)
            watched.discard(interruption.client_has_gone)
        return None

    def _told(self, error: Exception) -> ApiError:
        match error:
            case ApiError():
                return error
            case PagedChatError():
                return from_engine(error, self._naming)
        log.error("A request failed.", exc_info=error)
        return unexpected()


class _Interruption:
    """Ends the work of the task that makes it, by cancelling it."""

    def __init__(self) -> None:
        self._task = asyncio.current_task()
        self._error: ApiError | None = None
        self._is_ours = False
        self.is_over = False
        """Set when there is nothing left to end."""

    def client_has_gone(self) -> None:
        """Nobody reads the rest."""
        self._end()

    def is_cut(self) -> None:
        """The server ends."""
        self._end(not_ready("The server ends, and this reply with it."))

    def error_or_raise(self) -> ApiError | None:
        """After a cancellation: what is to be told, where it was ours.

        Raises:
            CancelledError: somebody else's.
        """
        if not self._is_ours or self._task is None or self._task.uncancel():
            raise asyncio.CancelledError
        return self._error

    def _end(self, error: ApiError | None = None) -> None:
        if not self.is_over and not self._is_ours and self._task is not None:
            self._is_ours, self._error = True, error
            self._task.cancel()


def _watched(scope: Scope, receive: Receive) -> "WhenGone | _Awaited":
    """Tells when the client has gone: its connection, where that can, or else a task that waits for it."""
    told: WhenGone | None = scope.get("extensions", {}).get(WHEN_GONE)
    return told if told is not None else _Awaited(receive)


class _Awaited:
    """As `WhenGone`, for one listener, by ASGI's own means."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive

    def add(self, listener: Callable[[], None]) -> None:
        def over(gone: "asyncio.Future[None]") -> None:
            if not gone.cancelled():
                listener()

        self._waiting = asyncio.ensure_future(self._gone())
        self._waiting.add_done_callback(over)

    def discard(self, _listener: Callable[[], None]) -> None:
        self._waiting.cancel()

    async def _gone(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
