"""The engine of a terminal that is attached: commands in, events out, and a server's WebSocket behind it.

A connection that is lost is made again, with pauses that grow; what was asked meanwhile goes with the next one, and
what the server had not heard is said again. Where nobody has answered yet, and where the server refuses, that is
said instead, and `restart` tries again. Loads no engine.
"""

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

from pagedchat import __version__
from pagedchat.engine import keyframe
from pagedchat.errors import PagedChatError, first_line
from pagedchat.events import (
    Attachment,
    CacheKeyframe,
    EngineDied,
    EngineEvent,
    EngineFailed,
    EngineNotice,
    EngineReady,
    RequestFailed,
)
from pagedchat.remote.address import Address
from pagedchat.remote.tls import tls_trouble, trusting
from pagedchat.service.attaching import (
    PROTOCOL,
    TAKEN_OVER,
    Heard,
    Hello,
    Leave,
    Refused,
    Told,
    Welcome,
    server_reader,
)
from pagedchat.service.commands import AnyCommand, EngineLink, Fork, Generate
from pagedchat.service.event_queue import EventQueue
from pagedchat.service.next_engine import Unanswered
from pagedchat.service.wire import FrameWriter, NotSendableError, WireError

if TYPE_CHECKING:
    from websockets.asyncio.client import ClientConnection

FIRST_PAUSE, LONGEST_PAUSE = 0.1, 10.0
"""Seconds between two tries."""
OPEN_TIMEOUT = 10.0
PING_SECONDS = 10.0
"""After so long without a word the server is asked whether it is there, and after as long again it is not."""
LEAVE_TIMEOUT = 2.0
MAX_MESSAGE = 4 * 1024**2
_DECIDES = "The server decides which model runs, and when its engine is started again."


class _RefusedError(Exception):
    """The server says that it does not want this terminal."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.message, self.hint = message, hint


class AttachedLink:
    """Implements `EngineLink` with the engine of a server.

    Args:
        address: where it is.
        role: "onlooker" has no chats and changes nothing.
        api_key: what the server wants to be sent; empty: nothing is.
        key: what this user's terminals have in common, and nobody else knows.
        chats: numbers of the chats to begin with, and by what a history knows them.
    """

    def __init__(
        self,
        address: Address,
        *,
        role: Literal["terminal", "onlooker"] = "terminal",
        api_key: str = "",
        key: str = "",
        chats: Sequence[tuple[int, int]] = (),
    ) -> None:
        self.address = address
        self.closes_chats = False
        """Whether its chats are closed when it leaves; else the server keeps them for a while."""
        self._role = role
        self._api_key = api_key
        self._key = key
        self._chats = list(chats)
        self._seat = ""
        self._events = EventQueue(self._hold)
        self._may_read = asyncio.Event()
        self._may_read.set()
        self._at_once = asyncio.Event()
        """The next try waits no longer."""
        self._serial = 0
        self._unheard: deque[Told] = deque()
        """Commands of which the server has not said that it has heard them."""
        self._unanswered = Unanswered()
        self._writer = FrameWriter()
        self._outgoing: asyncio.Queue[bytes] | None = None
        """What the connection that there is is to say."""
        self._info: EngineReady | None = None
        self._running: asyncio.Task[None] | None = None
        self._connection: ClientConnection | None = None
        self._attached = self._failed = self._closing = False

    # --- EngineLink ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Connect; whether that succeeds comes as an event."""
        self._failed = False
        if not self._closing and (self._running is None or self._running.done()):
            self._running = asyncio.create_task(self._run(), name="attached")

    async def restart(self) -> None:
        """Connect anew, now; a server's engine is not started again from here."""
        self._at_once.set()
        if self._connection is not None:
            await self._connection.close()
        await self.start()

    async def switch(self, model: str) -> None:
        """The server has the model that it has.

        Raises:
            PagedChatError: always.
        """
        raise PagedChatError(_DECIDES, f"Start another one with: pagedchat serve --model {model}")

    def beside(self, model: str) -> EngineLink:
        """As `switch`.

        Raises:
            PagedChatError: always.
        """
        raise PagedChatError(_DECIDES, f"Start another one with: pagedchat serve --model {model}")

    def send(self, command: AnyCommand) -> None:
        """Queue a command: it waits for a connection, and is said again where one was lost with it."""
        if self._failed:
            self._refuse(command, "There is no connection to the server.", "/restart tries again.")
            return
        self._serial += 1
        told = Told(self._serial, command)
        try:
            frame = bytes(self._writer.frame(told))
        except NotSendableError as error:
            self._refuse(command, error.message, error.hint)
            return
        self._unheard.append(told)
        self._unanswered.sent(command)
        if self._outgoing is not None:
            self._outgoing.put_nowait(frame)

    async def events(self) -> AsyncIterator[EngineEvent]:
        """All events, in order, for one listener; ends after `close`."""
        while (event := await self._events.get()) is not None:
            yield event

    async def close(self) -> None:
        """Leave. The server's engine goes on, and so do this terminal's chats unless `closes_chats`."""
        self._closing = True
        self._may_read.set()
        connection, running = self._connection, self._running
        if connection is not None and self._outgoing is not None:
            with suppress(Exception):
                async with asyncio.timeout(LEAVE_TIMEOUT):
                    while not self._outgoing.empty():
                        await connection.send(self._outgoing.get_nowait())
                    await connection.send(bytes(self._writer.frame(Leave(self.closes_chats))))
                    await connection.close()
        if running is not None:
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
        self._events.put(None)

    # --- connections --------------------------------------------------------------------------------

    async def _run(self) -> None:
        """One connection after the other."""
        pause = FIRST_PAUSE
        while not self._closing:
            began = asyncio.get_running_loop().time()
            try:
                await self._connect()
                reason = "it has ended the connection"
            except _RefusedError as error:
                self._give_up(error.message, error.hint)
                return
            except Exception as error:
                if not self._attached:
                    self._give_up(*self._why_not(error))
                    return
                reason = self._reason(error)
            finally:
                self._connection = self._outgoing = None
            if asyncio.get_running_loop().time() - began > LONGEST_PAUSE:
                pause = FIRST_PAUSE
            self._events.put(Attachment(self.address.where, reason))
            await self._pause(pause)
            pause = min(LONGEST_PAUSE, 2 * pause)

    async def _connect(self) -> None:
        from websockets.asyncio.client import connect  # noqa: PLC0415 - not for the first frame

        headers = {"Authorization": f"Bearer {self._api_key}"} if self._api_key else {}
        async with connect(
            self.address.websocket, ssl=trusting() if self.address.is_tls else None,
            additional_headers=headers, max_size=MAX_MESSAGE, open_timeout=OPEN_TIMEOUT,
            ping_interval=PING_SECONDS, ping_timeout=PING_SECONDS, proxy=None if self.address.is_here else True,
            user_agent_header=f"pagedchat/{__version__}", compression=None,
        ) as connection:  # fmt: skip
            self._connection = connection
            hello = Hello(PROTOCOL, __version__, self._role, self._key, self._seat, self._chats)
            await connection.send(bytes(FrameWriter().frame(hello)))
            writing: asyncio.Task[None] | None = None
            try:
                async for message in self._messages(connection):
                    match message:
                        case Welcome():
                            writing = asyncio.create_task(self._welcome(connection, message))
                        case Refused():
                            raise _RefusedError(message.message, message.hint)
                        case Heard(serial=serial):
                            self._forget(serial)
                        case event:
                            self._hear(event)
            finally:
                if writing is not None:
                    writing.cancel()
            self._look_why(connection)

    async def _messages(self, connection: "ClientConnection") -> AsyncIterator[Any]:
        reader = server_reader()
        async for data in connection:
            if isinstance(data, str):
                raise WireError("A text came in, where there are only bytes.")
            for message in reader.feed(data):
                yield message
            await self._may_read.wait()

    async def _welcome(self, connection: "ClientConnection", welcome: Welcome) -> None:
        """Say what the server has not heard, and from then on what comes."""
        outgoing = self._outgoing = asyncio.Queue()
        begun_anew = self._attached and not welcome.resumed and self._role == "terminal"
        self._attached, self._seat = True, welcome.seat
        self._forget(welcome.heard)
        if begun_anew:
            self._start_over()
        self._events.put(Attachment(self.address.where))
        for told in self._unheard:
            outgoing.put_nowait(bytes(self._writer.frame(told)))
        with suppress(Exception):  # whoever reads finds out why
            while True:
                await connection.send(await outgoing.get())

    def _start_over(self) -> None:
        """The server knows nothing of this terminal any more: what it had begun with is lost, the rest is asked
        again."""
        self._unheard.clear()
        self._events.put(EngineDied(None, "", restarting=True))
        for command in self._unanswered.take():
            self._serial += 1
            self._unheard.append(Told(self._serial, command))
            self._unanswered.sent(command)

    def _forget(self, serial: int) -> None:
        while self._unheard and self._unheard[0].serial <= serial:
            self._unheard.popleft()

    def _hear(self, event: EngineEvent) -> None:
        if isinstance(event, EngineReady):
            self._info = event
        elif isinstance(event, CacheKeyframe):
            self._check_keyframe(event)
        self._unanswered.heard(event)
        self._events.put(event)

    def _check_keyframe(self, event: CacheKeyframe) -> None:
        """What takes memory and is folded on is looked at before it is believed."""
        try:
            frame = keyframe.decode(event.state)
        except ValueError as error:
            raise WireError(str(error)) from error
        info = self._info
        sizes = None if info is None else (info.num_blocks, info.block_size, info.num_host_blocks)
        if (frame.num_blocks, frame.block_size, frame.num_host_blocks) != sizes:
            raise WireError("A keyframe is of another cache.")

    def _hold(self, held: bool) -> None:
        """The listener is behind: the server waits, and sends a keyframe when it goes on."""
        if held:
            self._may_read.clear()
        else:
            self._may_read.set()

    async def _pause(self, seconds: float) -> None:
        self._at_once.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                await self._at_once.wait()

    def _look_why(self, connection: "ClientConnection") -> None:
        if connection.close_code == TAKEN_OVER:
            raise _RefusedError(
                "Another terminal has taken this one's place.", "/restart attaches this one again, with new chats."
            )

    # --- what went wrong ----------------------------------------------------------------------------

    def _give_up(self, message: str, hint: str) -> None:
        self._failed = True
        if self._attached:
            self._seat, self._attached = "", False
        if self._closing:
            return
        self._events.put(EngineFailed(message, hint))
        for told in self._unheard:
            self._refuse(told.command, message, hint)
        self._unheard.clear()
        self._unanswered.take()

    def _refuse(self, command: AnyCommand, message: str, hint: str) -> None:
        """Who waits for a reply hears that there will be none."""
        match command:
            case Generate(session_id=session_id, request_id=request_id):
                self._events.put(RequestFailed(session_id, request_id, message, hint))
            case Fork(new_session_id=session_id, request_id=request_id):
                self._events.put(RequestFailed(session_id, request_id, message, hint))
            case _ if not self._failed:
                self._events.put(EngineNotice(message, hint, failed=True))

    def _why_not(self, error: Exception) -> tuple[str, str]:
        """Why nobody could be attached to in the first place, and what helps."""
        where = self.address.where
        if isinstance(error, PagedChatError):
            return error.message, error.hint
        status = getattr(getattr(error, "response", None), "status_code", None)
        if status == 401:
            key = "another API key" if self._api_key else "an API key"
            return f"The server at {where} wants {key}.", "Put it into the variable PAGEDCHAT_API_KEY."
        if status is not None:
            return (
                f"What answers at {where} is no pagedchat that one can attach to (HTTP status {status}).",
                "Look at the address, and that pagedchat serve runs there.",
            )
        if isinstance(error, WireError):
            return f"What answers at {where} is no pagedchat of this version.", "Update the older of the two."
        if isinstance(error, OSError) and not isinstance(error, ssl.SSLError | TimeoutError):
            return f"Nothing answers at {where} ({self._reason(error)}).", "Start it with: pagedchat serve"
        cure = "Look at the address." if self.address.is_tls else "Look at the address; with TLS it has https://."
        return f"The server at {where} cannot be attached to: {self._reason(error)}.", _tls_cure(error) or cure

    def _reason(self, error: Exception) -> str:
        trouble = tls_trouble(error)
        if trouble is not None:
            return trouble[0]
        if isinstance(error, TimeoutError):
            return "it does not answer"
        if isinstance(error, WireError):
            return "what it says makes no sense"
        if isinstance(error, OSError) and error.strerror:
            return error.strerror.lower()
        return first_line(error)


def _tls_cure(error: Exception) -> str:
    trouble = tls_trouble(error)
    return trouble[1] if trouble is not None else ""
