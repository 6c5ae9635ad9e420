"""How HTTP is read: what is too large is told, whichever library reads it."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any

import pytest
import uvicorn

from pagedchat.server.http.coming import Coming
from pagedchat.server.http.protocol import _HeadWithBody, http_protocol
from pagedchat.server.http.when_gone import WHEN_GONE
from pagedchat.server.listening import listen

HEAD = b"GET / HTTP/1.1\r\nhost: localhost\r\n"
POST = b"POST / HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n0\r\n"


async def app(scope: Any, receive: Any, send: Any) -> None:
    while (await receive()).get("more_body"):
        pass
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@asynccontextmanager
async def serving(
    served: Any = app, coming: Coming | None = None
) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    listener = listen("127.0.0.1", 0)
    config = uvicorn.Config(
        served, http=http_protocol(coming), lifespan="off", log_config=None, timeout_graceful_shutdown=1
    )
    server = uvicorn.Server(config)
    server.install_signal_handlers = lambda: None  # type: ignore[attr-defined]
    running = asyncio.create_task(server.serve(sockets=[listener]))
    reader, writer = await asyncio.open_connection(*listener.getsockname())
    try:
        async with asyncio.timeout(10):
            yield reader, writer
    finally:
        writer.transport.abort()
        server.should_exit = True
        await running


@pytest.mark.parametrize("request_bytes", [HEAD + b"\r\n", POST + b"\r\n"], ids=["head", "chunked"])
async def test_connections_are_kept_from_request_to_request(request_bytes: bytes) -> None:
    async with serving() as (reader, writer):
        for _ in range(3):
            writer.write(request_bytes)
            assert (await reader.readuntil(b"\r\n\r\nok")).startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize(
    ("begun", "more"),
    [
        (HEAD + b"x: ", b"a" * 4096),
        (HEAD + b"x", b"a" * 4096),
        (HEAD, b"x: y\r\n" * 700),
        (b"GET /", b"a" * 4096),
        (POST + b"x: ", b"a" * 4096),
        (POST, b"x: y\r\n" * 700),
    ],
    ids=["value", "name", "headers", "path", "value behind the body", "headers behind the body"],
)
async def test_what_has_no_end_ends_the_connection(begun: bytes, more: bytes) -> None:
    async with serving() as (reader, writer):
        writer.write(begun)
        with suppress(ConnectionError):  # it may be closed while more is written
            while not reader.at_eof():
                writer.write(more)
                await writer.drain()
                await asyncio.sleep(0)
            assert (await reader.read()).startswith((b"HTTP/1.1 431", b"HTTP/1.1 400"))


# --- what is coming -----------------------------------------------------------------------------------


@pytest.mark.parametrize("method", [b"POST", b"GET"])
async def test_requests_count_as_coming_from_when_they_are_read_until_they_are_worked_on(method: bytes) -> None:
    coming, seen = Coming(), list[int]()

    async def looking(scope: Any, receive: Any, send: Any) -> None:
        seen.append(coming())
        await app(scope, receive, send)

    async with serving(looking, coming) as (first, writer):
        address = writer.get_extra_info("peername")
        others = [await asyncio.open_connection(*address) for _ in range(4)]
        await asyncio.sleep(0.05)  # they are accepted
        head = method + b" / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\nhi"
        for each in (writer, *(other for _, other in others)):
            each.write(head)  # and these are read in one turn of the event loop: nothing is awaited
        for reader in (first, *(reader for reader, _ in others)):
            await reader.readuntil(b"\r\n\r\nok")
        for _, other in others:
            other.transport.abort()
    assert seen == ([4, 3, 2, 1, 0] if method == b"POST" else [0] * 5)
    assert coming() == 0


async def test_requests_behind_one_another_are_not_awaited() -> None:
    coming, seen = Coming(), list[int]()

    async def slow(scope: Any, receive: Any, send: Any) -> None:
        seen.append(coming())
        await asyncio.sleep(0.01)
        await app(scope, receive, send)

    async with serving(slow, coming) as (reader, writer):
        writer.write(b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\n\r\nhi" * 3)
        for _ in range(3):
            await reader.readuntil(b"\r\n\r\nok")
    assert seen == [0, 0, 0]


# --- what goes out ------------------------------------------------------------------------------------


class Cycle:
    """As much of an answer of uvicorn's as matters."""

    def __init__(self) -> None:
        self.response_started = False
        self.transport: Any = self
        self.sent: list[bytes] = []
        self.is_closed = False

    def write(self, data: bytes) -> None:
        self.sent.append(data)

    def close(self) -> None:
        self.is_closed = True

    def is_closing(self) -> bool:
        return self.is_closed


def test_the_head_goes_out_with_the_beginning_of_the_body() -> None:
    cycle = Cycle()
    transport = _HeadWithBody(cycle)
    transport.write(b"100 Continue")
    cycle.response_started = True
    for piece in (b"head ", b"body", b"more", b"end"):
        transport.write(piece)
    assert cycle.sent == [b"100 Continue", b"head body", b"more", b"end"]
    assert not transport.is_closing()


def test_a_head_without_a_body_goes_out_before_the_connection_is_closed() -> None:
    cycle = Cycle()
    transport = _HeadWithBody(cycle)
    cycle.response_started = True
    transport.write(b"head")
    transport.close()
    assert (cycle.sent, cycle.is_closed) == ([b"head"], True)


async def test_an_answer_to_head_has_a_head_and_nothing_else() -> None:
    async with serving() as (reader, writer):
        for _ in range(2):
            writer.write(HEAD.replace(b"GET", b"HEAD") + b"\r\n")
            assert (await reader.readuntil(b"\r\n\r\n")).startswith(b"HTTP/1.1 200 OK")


# --- who has gone -------------------------------------------------------------------------------------


async def test_who_wants_to_hear_that_a_client_has_gone_is_told_once() -> None:
    gone, asked = asyncio.Event(), asyncio.Event()
    told: list[str] = []

    async def waits(scope: Any, receive: Any, send: Any) -> None:
        when_gone = scope["extensions"][WHEN_GONE]
        when_gone.add(lambda: told.append("never"))
        when_gone.discard(when_gone._listeners[0])
        when_gone.add(lambda: (told.append("gone"), gone.set()))
        asked.set()
        await gone.wait()
        when_gone.add(lambda: told.append("late"))

    async with serving(waits) as (_, writer):
        writer.write(HEAD + b"\r\n")
        await asked.wait()
        assert told == []
        writer.transport.abort()
        await gone.wait()
        await asyncio.sleep(0)
        assert told == ["gone", "late"]


async def test_small_writes_are_not_held_back() -> None:
    accepted: list[int] = []

    def on_connect(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        accepted.append(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY))
        writer.close()

    listener = listen("127.0.0.1", 0)
    async with await asyncio.start_server(on_connect, sock=listener):
        reader, writer = await asyncio.open_connection(*listener.getsockname())
        await reader.read()
        writer.close()
    assert accepted == [1]
