"""A line for each request, where they are wanted: method, path, status, seconds; nothing of what was said."""

import sys
import time

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from pagedchat.chat.sanitize import one_line


class RequestLog:
    """Middleware that writes to standard error."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass it on, and tell of it when it is over."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        started, status = time.perf_counter(), 0

        async def watched(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self._app(scope, receive, watched)
        finally:
            seconds = time.perf_counter() - started
            told = status or "left"
            print(
                one_line(f"{scope['method']} {scope['path']} {told} {seconds:.3f} s"), file=sys.stderr, flush=True
            )
