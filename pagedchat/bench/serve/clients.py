"""A server in a process of its own, and clients that stream from it over the loopback, all in one event loop.

The clients are a few lines each, as they share the processor with what they measure: they write a request, and note
when something comes. Knows HTTP as far as our own server speaks it.
"""

import asyncio
import json
import re
import subprocess
import time
from collections.abc import Sequence
from types import TracebackType
from typing import Self

import psutil

from pagedchat.bench.serve.streams import Stream
from pagedchat.errors import PagedChatError
from pagedchat.own_process import command, environment

_URL = re.compile(r" at http://([\d.]+):(\d+)/v1")
_EVENT, _DONE = b"data: {", b"data: [DONE]"
_TOKENS = re.compile(rb'"completion_tokens":(\d+)')
_SECONDS_TO_END = 20


class ServerProcess:
    """`pagedchat serve`; to be used in a `with`.

    Args:
        options: of its command line.

    Raises:
        PagedChatError: it does not start.
    """

    def __init__(self, options: Sequence[str]) -> None:
        self._options = options

    def __enter__(self) -> Self:
        arguments = [*command("pagedchat"), "serve", "--port", "0", *self._options]
        self._process = subprocess.Popen(  # noqa: S603 - a module of our own
            arguments, stdout=subprocess.PIPE, env=environment(), text=True
        )
        assert self._process.stdout is not None  # noqa: S101 - asked for above
        found = _URL.search(self._process.stdout.readline())
        if found is None:
            raise PagedChatError("The server did not start.", "What it said stands above.")
        self._host, self._port = found[1], int(found[2])
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        self._process.wait(_SECONDS_TO_END)
        if self._process.stdout is not None:
            self._process.stdout.close()

    def processor_seconds(self) -> float:
        """That the server has used, its engine left out."""
        times = psutil.Process(self._process.pid).cpu_times()
        return times.user + times.system

    def run(self, prompts: list[list[int]], new_tokens: int) -> list[Stream]:
        """A client for each prompt, all at once.

        Raises:
            PagedChatError: one of them got something else than a whole stream.
        """
        return asyncio.run(self._run(prompts, new_tokens))

    async def _run(self, prompts: list[list[int]], new_tokens: int) -> list[Stream]:
        loop = asyncio.get_running_loop()
        clients = [_Client(_request(prompt, new_tokens), loop.create_future()) for prompt in prompts]
        for client in clients:
            await loop.create_connection(lambda client=client: client, self._host, self._port)
        for client in clients:
            client.ask()
        return list(await asyncio.gather(*(client.done for client in clients)))


class _Client(asyncio.Protocol):
    """One connection and one stream."""

    def __init__(self, request: bytes, done: "asyncio.Future[Stream]") -> None:
        self._request = request
        self.done = done
        self._stream = Stream()
        self._tail = b""
        """Of what came last, in which an event may have begun."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport

    def ask(self) -> None:
        """Now."""
        self._started = time.perf_counter()
        assert isinstance(self._transport, asyncio.Transport)  # noqa: S101 - what a connection is
        self._transport.write(self._request)

    def data_received(self, data: bytes) -> None:
        now = time.perf_counter() - self._started
        data = self._tail + data
        if b'"text":' in data:
            self._stream.times += [now] * data.count(b'"text":')
        self._tail = b"" if data.endswith(b"\n") else data[data.rfind(b"\n") + 1 :]
        if _DONE in data:
            found = _TOKENS.search(data)
            self._stream.num_tokens = int(found[1]) if found else len(self._stream.times)
            self._transport.close()
            if not self.done.done():
                self.done.set_result(self._stream)

    def connection_lost(self, error: Exception | None) -> None:
        if not self.done.done():
            self.done.set_exception(
                PagedChatError("The server ended a stream early.", "Look at what it said above.")
            )


def _request(prompt: list[int], new_tokens: int) -> bytes:
    body = json.dumps(
        {
            "prompt": prompt, "max_tokens": new_tokens, "temperature": 0, "ignore_eos": True, "stream": True,
            "stream_options": {"include_usage": True},
        }
    ).encode()  # fmt: skip
    head = (
        "POST /v1/completions HTTP/1.1", "Host: localhost", "Connection: close", "Content-Type: application/json",
        f"Content-Length: {len(body)}", "", "",
    )  # fmt: skip
    return "\r\n".join(head).encode() + body
