"""The WebSocket at which terminals attach: what comes in is checked, what the engine says goes out.

A foreign client may send anything: each message has bounds and is read as what it must be, or the connection ends
with one sentence. Browsers are turned away, whose pages could reach a server on this machine. Knows Starlette, the
hub and its seats; no HTTP API.
"""

import asyncio
import math
import secrets
from collections.abc import AsyncIterator, Collection, Iterator
from contextlib import asynccontextmanager, suppress
from typing import Any, TypeVar

from starlette.responses import JSONResponse
from starlette.routing import WebSocketRoute
from starlette.websockets import WebSocket, WebSocketDisconnect

from pagedchat import __version__
from pagedchat.errors import PagedChatError
from pagedchat.server.client_queue import ClientQueue
from pagedchat.server.hub import EngineHub
from pagedchat.server.hub_client import HubClient
from pagedchat.server.numbers import MOST_NUMBER
from pagedchat.server.seats import KEEP_SECONDS, Seat, Seats
from pagedchat.service.attaching import (
    MOST_CHATS,
    PATH,
    PIECE,
    PROTOCOL,
    TAKEN_OVER,
    Heard,
    Hello,
    Leave,
    Refused,
    Told,
    Welcome,
    hello_reader,
    terminal_reader,
)
from pagedchat.service.commands import AnyCommand, SetPace, StepOnce
from pagedchat.service.wire import FrameReader, FrameWriter, WireError

HELLO_SECONDS = 10.0
"""For which a connection may say nothing at first."""
MOST_STEPS = 1_000_000
MOST_ONLOOKERS = 32
_GOING_AWAY, _NOT_UNDERSTOOD = 1001, 1008

T = TypeVar("T")


class AttachServer:
    """All terminals that are attached, or were.

    Args:
        hub: the engine.
        api_keys: of which one must be sent; none: nobody is asked for one.
        keep_seconds: for which chats of a terminal that is gone are kept.
    """

    def __init__(
        self, hub: EngineHub, *, api_keys: Collection[str] = (), keep_seconds: float = KEEP_SECONDS
    ) -> None:
        self._hub = hub
        self._api_keys = [key.encode() for key in api_keys]
        self.seats = Seats(hub, keep_seconds)
        self.num_onlookers = 0
        """Connections that only look on."""
        self.route = WebSocketRoute(PATH, self.endpoint)
        """To be mounted."""

    async def endpoint(self, socket: WebSocket) -> None:
        """One connection, from its beginning to its end."""
        if not await self._may_enter(socket):
            return
        await socket.accept()
        with suppress(WebSocketDisconnect, RuntimeError):  # the latter: written to one that has just gone
            try:
                await self._serve(socket, await self._hello(socket))
            except (PagedChatError, WireError) as error:
                hint = error.hint if isinstance(error, PagedChatError) else "Is it a pagedchat of this version?"
                await _send(socket, FrameWriter().frame(Refused(_sentence(error), hint)))
                await socket.close(_NOT_UNDERSTOOD)

    def close(self) -> None:
        """Give up what terminals have left."""
        self.seats.close()

    # --- who comes in -------------------------------------------------------------------------------

    async def _may_enter(self, socket: WebSocket) -> bool:
        if "origin" in socket.headers:
            await _turn_away(socket, 403, "Browsers are not let in here.")
        elif not self._has_key(socket):
            await _turn_away(socket, 401, "The API key is missing or wrong.")
        else:
            return True
        return False

    def _has_key(self, socket: WebSocket) -> bool:
        scheme, _, key = socket.headers.get("authorization", "").partition(" ")
        given = key.strip().encode() if scheme.lower() == "bearer" else b""
        matches = [secrets.compare_digest(given, known) for known in self._api_keys]
        return not matches or any(matches)

    async def _hello(self, socket: WebSocket) -> Hello:
        try:
            async with asyncio.timeout(HELLO_SECONDS):
                hello = await anext(_messages(socket, hello_reader()))
        except (TimeoutError, StopAsyncIteration):
            raise PagedChatError("The terminal did not say what it wants.", "Try again.") from None
        if hello.version != PROTOCOL:
            raise PagedChatError(
                f"This server is pagedchat {__version__} (protocol {PROTOCOL}); the terminal speaks "
                f"protocol {hello.version}.",
                "Both must be of the same version.",
            )
        _check_chats(hello.chats)
        return hello

    # --- one connection -----------------------------------------------------------------------------

    async def _serve(self, socket: WebSocket, hello: Hello) -> None:
        if hello.role == "onlooker":
            async with self._onlooker() as client:
                welcome = Welcome(PROTOCOL, __version__, "", False, 0)
                await _Connection(socket, client, None).run(welcome)
            return
        await self._serve_terminal(socket, hello)

    async def _serve_terminal(self, socket: WebSocket, hello: Hello) -> None:
        connection = _Connection(socket)
        drop = connection.drop
        seat, resumed = self.seats.take(hello, drop)
        try:
            connection.client, connection.seat = seat.client, seat
            await connection.run(Welcome(PROTOCOL, __version__, seat.name, resumed, seat.heard))
        finally:
            self.seats.leave(seat, drop, close_chats=connection.closes_chats)

    @asynccontextmanager
    async def _onlooker(self) -> AsyncIterator[HubClient]:
        if self.num_onlookers >= MOST_ONLOOKERS:
            raise PagedChatError(f"{MOST_ONLOOKERS} look on already.", "End one of them, and try again.")
        client = self._hub.client("onlooker")
        self.num_onlookers += 1
        try:
            yield client
        finally:
            self.num_onlookers -= 1
            await client.close()


class _Connection:
    """What goes to and fro, until one side ends."""

    def __init__(self, socket: WebSocket, client: HubClient | None = None, seat: Seat | None = None) -> None:
        self._socket = socket
        self.client: Any = client
        self.seat = seat
        self.closes_chats = False
        self._writer = FrameWriter()
        self._told_heard = 0
        self._work: tuple[asyncio.Task[None], ...] = ()
        self._dropped = False

    def drop(self) -> None:
        """Another connection takes this one's place."""
        self._dropped = True
        for task in self._work:
            task.cancel()

    async def run(self, welcome: Welcome) -> None:
        """Until one side ends.

        Raises:
            WireError: what comes in is no message, or not one that a terminal may send.
        """
        await _send(self._socket, self._writer.frame(welcome))
        self._told_heard = welcome.heard
        reading = asyncio.create_task(self._read())
        writing = asyncio.create_task(self._write(self.client.queue))
        self._work = reading, writing
        try:
            await asyncio.wait(self._work, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for task in self._work:
                task.cancel()
            results = await asyncio.gather(*self._work, return_exceptions=True)
        if self._dropped:
            await self._socket.close(TAKEN_OVER)
        for result in results:
            if isinstance(result, WireError | PagedChatError):
                raise result
        if not self._dropped and results[0] is not None:
            await self._socket.close(_GOING_AWAY)  # it was the hub that ended

    async def _read(self) -> None:
        async for message in _messages(self._socket, terminal_reader()):
            match message:
                case Told(serial=serial, command=command):
                    self._carry_out(serial, _checked(command))
                case Leave(close_chats=close_chats):
                    self.closes_chats = close_chats
                    return

    def _carry_out(self, serial: int, command: AnyCommand) -> None:
        if self.seat is not None:
            self.seat.take(serial, command)
        else:
            self.client.send(command)

    async def _write(self, queue: ClientQueue) -> None:
        """Only this waits for a terminal that reads slowly: what it has not taken yet is the queue's to bound."""
        while (event := await queue.get()) is not None:
            frames = bytearray(self._writer.frame(event))
            if self.seat is not None and self.seat.heard != self._told_heard:
                self._told_heard = self.seat.heard
                frames += self._writer.frame(Heard(self._told_heard))
            while len(frames) < PIECE and (more := queue.take_one()) is not None:
                frames += self._writer.frame(more)
            await _send(self._socket, frames)


async def _send(socket: WebSocket, frames: bytes | bytearray) -> None:
    for piece in _pieces(bytes(frames)):
        await socket.send_bytes(piece)


def _pieces(data: bytes) -> Iterator[bytes]:
    for start in range(0, len(data), PIECE):
        yield data[start : start + PIECE]


async def _messages(socket: WebSocket, reader: "FrameReader[T]") -> AsyncIterator[T]:
    """What a terminal says, until it says no more.

    Raises:
        WireError: what it says is no message.
    """
    while True:
        message = await socket.receive()
        if message["type"] != "websocket.receive":
            return
        data = message.get("bytes")
        if data is None:
            raise WireError("A text came in, where there are only bytes.")
        for one in reader.feed(data):
            yield one


async def _turn_away(socket: WebSocket, status: int, sentence: str) -> None:
    """Before there is a connection."""
    if "websocket.http.response" in socket.scope.get("extensions", {}):
        await socket.send_denial_response(JSONResponse({"error": {"message": sentence}}, status))
    else:
        await socket.close(_NOT_UNDERSTOOD)


def _check_chats(chats: list[tuple[int, int]]) -> None:
    numbers = [number for number, _ in chats]
    sound = len(set(numbers)) == len(numbers) <= MOST_CHATS
    if not sound or not all(0 < number <= MOST_NUMBER // 2 for number in numbers):
        raise PagedChatError("The numbers of the terminal's chats make no sense.", "Start it anew.")


def _checked(command: AnyCommand) -> AnyCommand:
    """Bounds that types do not have; those of sampling and of blocks are checked where these are known.

    Raises:
        WireError: no terminal sends that.
    """
    match command:
        case StepOnce(count=count) if not 1 <= count <= MOST_STEPS:
            raise WireError(f"{count} steps were asked for.")
        case SetPace(seconds=seconds) if not (math.isfinite(seconds) and seconds >= 0):
            raise WireError(f"A step was to take {seconds} seconds.")
    return command


def _sentence(error: PagedChatError | WireError) -> str:
    return error.message if isinstance(error, PagedChatError) else f"The server did not understand: {error}"
