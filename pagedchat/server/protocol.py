"""How HTTP is read: by httptools, which is written in C and takes a third less of a request's time, or by h11.

What httptools does not bound is bounded here: the head of a request, and whatever follows its body. Knows uvicorn.
"""

import asyncio
from typing import Any

MOST_HEAD = 64 * 1024
"""Bytes of a request line and all headers, or of what stands between the pieces of a body and behind it."""
_TOO_LARGE = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: text/plain; charset=utf-8\r\n"
    b"content-length: 28\r\nconnection: close\r\n\r\nThe request has a huge head."
)


def http_protocol() -> "type[asyncio.Protocol] | str":
    """What uvicorn is to read requests with."""
    try:
        from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol  # noqa: PLC0415 - not everywhere
    except ImportError:
        return "h11"
    return _bounded(HttpToolsProtocol)


def _bounded(protocol: Any) -> type[asyncio.Protocol]:
    class BoundedProtocol(protocol):  # type: ignore[misc]  # of a library that may not be there
        """Ends a connection of which much comes in and neither a request nor more of a body."""

        def __init__(self, *args: Any, **options: Any) -> None:
            super().__init__(*args, **options)
            self._num_bytes = 0
            """Since there was something."""
            self._has_something = self._in_body = False

        def data_received(self, data: bytes) -> None:
            self._has_something = False
            super().data_received(data)
            self._num_bytes = 0 if self._has_something else self._num_bytes + len(data)
            if self._num_bytes > MOST_HEAD and not self.transport.is_closing():
                self.transport.write(_TOO_LARGE)
                self.transport.close()

        def on_message_begin(self) -> None:
            super().on_message_begin()
            self._has_something, self._in_body = True, False

        def on_header(self, name: bytes, value: bytes) -> None:
            if not self._in_body:  # behind it nobody reads them
                super().on_header(name, value)

        def on_headers_complete(self) -> None:
            self._in_body = True
            super().on_headers_complete()

        def on_body(self, body: bytes) -> None:
            self._has_something = True
            super().on_body(body)

        def on_message_complete(self) -> None:
            self._has_something = True
            super().on_message_complete()

    return BoundedProtocol
