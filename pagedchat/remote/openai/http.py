"""The official client over an HTTP client that trusts no server: nothing is followed elsewhere, nothing is endless.

A key goes to the address that it was given for and to no other, so redirects are answers like all others. What a
server may send is bounded in bytes while it comes, before anything is made of it: a line of a stream, an answer.
Nothing is asked again by itself; when to try again is the link's business, and seen on the screen.
"""

import importlib
import re
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING, Any

from pagedchat.errors import PagedChatError
from pagedchat.remote.tls import trusting
from pagedchat.units import format_size

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from pagedchat.remote.openai.address import ServerAddress

CONNECT_SECONDS = 10.0
MOST_LINE = 1 << 20
"""Bytes of one line of a stream: a piece of a reply."""
MOST_STREAM = 64 << 20
"""Bytes of a whole stream: 200,000 tokens as servers wrap them."""
MOST_ANSWER = 8 << 20
"""Bytes of any other answer."""
BOUNDS = "pagedchat.bounds"
"""Under which a response has its `Bounds`, among its extensions."""
_LAST_LINE = re.compile(rb"[\r\n]data: ?\[DONE\]")
_LAST_LINE_BYTES = 16
NO_KEY = "none"
"""Sent to servers that want no key: the client does not go without."""


class TooMuchError(Exception):
    """A server sends more than any answer has; says of what."""


def open_client(address: "ServerAddress", key: str) -> "AsyncOpenAI":
    """A client for one server.

    Raises:
        PagedChatError: the extra that it needs is not installed, or nobody can be believed over TLS.
    """
    try:
        import openai  # noqa: PLC0415 - an extra, and half a second of imports
    except ImportError:
        raise PagedChatError(
            "Panes on other servers need the openai package.", "pip install 'pagedchat[remote]' has it."
        ) from None
    trusted = trusting() if address.url.startswith("https:") else True
    http_client = next(kind for kind in openai.DefaultAsyncHttpxClient.__mro__ if kind.__name__ == "AsyncClient")
    http = importlib.import_module(http_client.__module__.partition(".")[0])  # httpx, or httpx2 from 3.x on
    client = openai.AsyncOpenAI(
        api_key=key or NO_KEY,
        base_url=address.url,
        max_retries=0,
        default_headers={"Accept-Encoding": "identity"},  # what is compressed has no bound
        http_client=openai.DefaultAsyncHttpxClient(
            follow_redirects=False,
            verify=trusted,
            timeout=openai.Timeout(None, connect=CONNECT_SECONDS),  # silence is watched by the link, which shows it
            event_hooks={"response": [_bounding(http)]},
        ),
    )
    client.organization = client.project = None  # of the environment, and meant for another server
    return client


def _bounding(http: Any) -> Any:
    """Called with every response before its body is read."""

    class Bounded(http.AsyncByteStream):  # type: ignore[misc]  # of whichever httpx there is
        """A body that ends with an error where it is too long."""

        def __init__(self, body: Any, bounds: "Bounds") -> None:
            self._body, self._bounds = body, bounds

        async def __aiter__(self) -> AsyncIterator[bytes]:
            async for chunk in self._body:
                self._bounds.take(chunk)
                yield chunk

        async def aclose(self) -> None:
            await self._body.aclose()

    async def bound(response: Any) -> None:
        if response.headers.get("content-encoding", "identity").lower() not in ("identity", ""):
            raise TooMuchError("a compressed answer, which was not asked for")
        is_stream = response.headers.get("content-type", "").startswith("text/event-stream")
        response.extensions[BOUNDS] = bounds = Bounds(is_stream)
        response.stream = Bounded(response.stream, bounds)

    return bound


class Bounds:
    """Counts the bytes of one answer, and sees a stream's last line."""

    def __init__(self, is_stream: bool) -> None:
        self.has_ended = False
        """Whether the stream was closed as streams are: `data: [DONE]`. Some servers tell their end only so."""
        self._is_stream = is_stream
        self._total = self._line = 0
        self._tail = b"\n"

    def take(self, chunk: bytes) -> None:
        """So many more came.

        Raises:
            TooMuchError: they are too many.
        """
        self._total += len(chunk)
        most = MOST_STREAM if self._is_stream else MOST_ANSWER
        if self._total > most:
            raise TooMuchError(f"more than {format_size(most)}")
        if self._is_stream:
            self._tail = self._tail[-_LAST_LINE_BYTES:] + chunk
            self.has_ended = self.has_ended or bool(_LAST_LINE.search(self._tail))
            first, *others = chunk.split(b"\n")
            longest = max(self._line + len(first), *map(len, others), 0)
            self._line = len(others[-1]) if others else self._line + len(first)
            if longest > MOST_LINE:
                raise TooMuchError(f"a line of more than {format_size(MOST_LINE)}")
