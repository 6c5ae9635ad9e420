"""Some of the clients of a server that is measured, in a process of their own: `python -m
pagedchat.bench.serve.client_child HOST PORT`.

A line of JSON on standard input names the prompts of a run. When every client has a connection that has answered
once, this says so in a line, and asks when it is told to by another; the last line has what came, and when. The
clients are a few lines each: they write a request, and note when something comes. Knows HTTP as far as our own
server speaks it.
"""

import asyncio
import json
import re
import sys
import time
from dataclasses import asdict
from functools import partial

from pagedchat.bench.serve.streams import Stream
from pagedchat.errors import PagedChatError, first_line

_EVENT_TEXT, _ERROR, _DONE = b'"text":', b'{"error":', b"data: [DONE]"
_TOKENS = re.compile(rb'"completion_tokens":(\d+)')
_FIRST = b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"
_PATIENCE = 10.0
"""Seconds for a connection's first answer."""


def main() -> None:
    """Do run after run, until standard input ends."""
    host, port = sys.argv[1], int(sys.argv[2])
    for line in sys.stdin:
        asked = json.loads(line)
        try:
            asyncio.run(_run(host, port, asked["prompts"], asked["new_tokens"]))
        except (PagedChatError, OSError, TimeoutError) as error:
            _say({"error": first_line(error)})


async def _run(host: str, port: int, prompts: list[list[int]], new_tokens: int) -> None:
    loop = asyncio.get_running_loop()
    clients = [_Client(request(prompt, new_tokens)) for prompt in prompts]
    for client in clients:
        await loop.create_connection(partial(_same, client), host, port)
    async with asyncio.timeout(_PATIENCE):
        await asyncio.gather(*(client.is_known for client in clients))
    _say({"ready": len(clients)})
    sys.stdin.readline()
    before = time.process_time()
    for client in clients:
        client.ask()
    streams = await asyncio.gather(*(client.done for client in clients))
    _say({"streams": [asdict(stream) for stream in streams], "seconds": time.process_time() - before})


class _Client(asyncio.Protocol):
    """One connection and one stream.

    Args:
        request: its bytes.
    """

    def __init__(self, request: bytes) -> None:
        self._request = request
        loop = asyncio.get_running_loop()
        self.is_known: asyncio.Future[None] = loop.create_future()
        """Done when the server has answered the connection's first question."""
        self.done: asyncio.Future[Stream] = loop.create_future()
        self._stream = Stream()
        self._tail = b""
        """Of what came last, in which an event may have begun."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        assert isinstance(transport, asyncio.Transport)  # noqa: S101 - what a connection is
        self._transport = transport
        transport.write(_FIRST)

    def ask(self) -> None:
        """Now."""
        self._started = time.perf_counter()
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        if not self.is_known.done():
            self.is_known.set_result(None)
            return
        now = time.perf_counter() - self._started
        data = self._tail + data
        if _EVENT_TEXT in data:
            self._stream.times += [now] * data.count(_EVENT_TEXT)
        self._tail = b"" if data.endswith(b"\n") else data[data.rfind(b"\n") + 1 :]
        if _ERROR in data:
            self._transport.abort()
        elif _DONE in data:
            found = _TOKENS.search(data)
            self._stream.num_tokens = int(found[1]) if found else len(self._stream.times)
            self._transport.close()
            if not self.done.done():
                self.done.set_result(self._stream)

    def connection_lost(self, error: Exception | None) -> None:
        failure = PagedChatError("The server ended a stream early.", "Look at what it said above.")
        for future in (self.is_known, self.done):
            if not future.done():
                future.set_exception(failure)


def _same(client: _Client) -> _Client:
    """What makes the protocol of a connection."""
    return client


def request(prompt: list[int], new_tokens: int) -> bytes:
    """One that asks for a stream of so many tokens, by the sampling of the engine without a server: where nothing
    is said, a server takes what a checkpoint recommends."""
    body = json.dumps(
        {
            "prompt": prompt, "max_tokens": new_tokens, "temperature": 0, "repetition_penalty": 1,
            "ignore_eos": True, "stream": True, "stream_options": {"include_usage": True},
        }
    ).encode()  # fmt: skip
    head = (
        "POST /v1/completions HTTP/1.1", "Host: localhost", "Content-Type: application/json",
        f"Content-Length: {len(body)}", "", "",
    )  # fmt: skip
    return "\r\n".join(head).encode() + body


def _say(answer: dict[str, object]) -> None:
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
