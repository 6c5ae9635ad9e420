"""How HTTP is read: by httptools, which is written in C and takes a third less of a request's time, or by h11.

What httptools does not bound is bounded here: the head of a request, and whatever follows its body. Its answers go
out in fewer pieces, and who wants to know when a client has gone is told by the connection itself, where ASGI would
have a task wait for that with each request. Knows uvicorn.
"""

import asyncio
from collections.abc import Callable
from typing import Any

from pagedchat.server.http.coming import Coming
from pagedchat.server.http.when_gone import WHEN_GONE, WhenGone

MOST_HEAD = 64 * 1024
"""Bytes of a request line and all headers, or of what stands between the pieces of a body and behind it."""
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: 28\r\nconnection: close\r\n\r\nThe request has a huge head."
)


def http_protocol(coming: Coming | None = None) -> "type[asyncio.Protocol] | str":
    """What uvicorn is to read requests with.

    Args:
        coming: is told of those that are read, where that can be.
    """
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol  # noqa: PLC0415 - not everywhere
    except ImportError:
        return "h11"
    return _bounded(HttpToolsProtocol, coming or Coming())


def _bounded(protocol: Any, coming: Coming) -> type[asyncio.Protocol]:
    class BoundedProtocol(protocol):  # type: ignore[misc]  # of a library that may not be there
        """Ends a connection of which much comes in and neither a request nor more of a body."""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self.app = coming.counted(self.config.loaded_app)
            self._num_bytes = 0
            """Since there was something."""
            self._has_something = self._in_body = False
            self._when_gone = WhenGone()

        def data_received(self, data: bytes) -> None:
            self._has_something = False
            super().data_received(data)
            self._num_bytes = 0 if self._has_something else self._num_bytes + len(data)
            if self._num_bytes > MOST_HEAD and not self.transport.is_closing():
                self.transport.write(_TOO_LARGE)
                self.transport.close()

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self.scope["extensions"] = {WHEN_GONE: self._when_gone}
            self._has_something, self._in_body = True, False

        def on_header(self, name: bytes, value: bytes) -> None:
            if not self._in_body:  # behind it nobody reads them
                super().on_header(name, value)

        def on_headers_complete(self) -> None:
            self._in_body = True
            before = self.cycle
            super().on_headers_complete()
            if self.cycle is before:
                return
            if self.scope["method"] != "HEAD":
                self.cycle.transport = _HeadWithBody(self.cycle)
            if self.scope["method"] == "POST" and not self.pipeline:
                coming.add(self.scope)

        def on_body(self, body: bytes) -> None:
            self._has_something = True
            super().on_body(body)

        def on_message_complete(self) -> None:
            self._has_something = True
            super().on_message_complete()

        def connection_lost(self, exc: Exception | None) -> None:
            super().connection_lost(exc)
            self._when_gone.tell()

    return BoundedProtocol


class _HeadWithBody:
    """The connection, for one answer: its head goes out with the beginning of its body, which follows at once.

    Args:
        cycle: uvicorn's, of the answer.
    """

    def __init__(self, cycle: Any) -> None:
        self._cycle = cycle
        self._transport: asyncio.Transport = cycle.transport
        self._head: bytes | None = None
        self._is_past_head = False
        self.is_closing: Callable[[], bool] = cycle.transport.is_closing

    def write(self, data: bytes) -> None:
        if self._is_past_head or not self._cycle.response_started:  # before it there may be a 100 (Continue)
            self._transport.write(data)
        elif self._head is None:
            self._head = data
        else:
            self._is_past_head = True
            self._transport.write(self._head + data)

    def close(self) -> None:
        if self._head is not None and not self._is_past_head:
            self._transport.write(self._head)
        self._transport.close()
