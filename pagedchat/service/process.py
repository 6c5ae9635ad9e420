"""One engine process and the connection to it, as the UI process sees them. Knows frames, not when to restart."""

import asyncio
import os
import socket
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from typing import cast

from pagedchat.config import EngineConfig
from pagedchat.events import EngineEvent
from pagedchat.own_process import command, environment
from pagedchat.service.commands import Coming
from pagedchat.service.log_file import LogFile
from pagedchat.service.wire import Configure, FrameWriter, Inbound, WireError, event_reader

DEFAULT_ENTRY = command("pagedchat.service.child")
GRACE = 1.0
"""Seconds between the end of a process and the end of its connection, whichever comes first."""
_MOST_TOGETHER = 16
"""Messages that go out in one piece: few enough for the engine to begin with the first of many that ask at once,
and so many that its reader does not wake amid a step for each."""


def nobody_comes() -> int:
    """How many requests are on their way where nobody knows of any."""
    return 0


class EngineProcess:
    """A process started, its socket, and what it says."""

    def __init__(self, process: asyncio.subprocess.Process, connection: "_Connection") -> None:
        self._process = process
        self._connection = connection

    @classmethod
    async def start(
        cls,
        config: EngineConfig,
        log_file: LogFile,
        on_event: Callable[[EngineEvent], None],
        entry: Sequence[str] = DEFAULT_ENTRY,
        *,
        follows_steps: bool = True,
        coming: Callable[[], int] = nobody_comes,
    ) -> "EngineProcess":
        """Start a process that loads what `config` says; `on_event` hears what it says from now on, steps among it
        unless nobody follows them. `coming` says how many requests are on their way.

        Raises:
            OSError: the process cannot be made.
            NotSendableError: there is no telling it this configuration.
        """
        configuration = bytes(FrameWriter().frame(Configure(config, follows_steps)))
        ours, theirs = socket.socketpair()
        with ExitStack() as on_failure:
            on_failure.enter_context(ours)
            with theirs:
                process = await _spawn(entry, log_file, theirs.fileno())
            on_failure.callback(process.kill)
            loop = asyncio.get_running_loop()
            _, connection = await loop.create_unix_connection(lambda: _Connection(on_event, coming), sock=ours)
            on_failure.pop_all()
        connection.write(configuration)
        return cls(process, connection)

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    @property
    def complaint(self) -> str:
        """Why the connection was given up, if what came in could not be understood."""
        return self._connection.complaint

    def send(self, message: Inbound) -> None:
        """Queue a message; never blocks. Nobody hears it if the process is gone, or on its way out.

        Raises:
            NotSendableError: there is no telling it this; whatever else was sent is not touched.
        """
        self._connection.send(message)

    def hold(self, held: bool) -> None:
        """Do not listen for now, or listen again; what it says meanwhile is heard later."""
        self._connection.hold(held)

    async def wait(self) -> int:
        """Until the process has ended and all that it said was heard; returns its exit code (-9: killed).

        A process that lives on without its connection is killed.
        """
        ended = asyncio.ensure_future(self._process.wait())
        lost = asyncio.ensure_future(self._connection.lost.wait())
        await asyncio.wait({ended, lost}, return_when=asyncio.FIRST_COMPLETED)
        self._connection.hear_all()
        await asyncio.wait({ended, lost}, timeout=GRACE)
        self.kill()
        self._connection.abort()
        await lost
        return await ended

    async def close(self, seconds: float) -> None:
        """Say that nothing more will come and wait; a process that does not end in time is killed."""
        self._connection.end()
        try:
            await asyncio.wait_for(self._process.wait(), seconds)
        except TimeoutError:
            self.kill()
            await self._process.wait()

    def kill(self) -> None:
        """End it now."""
        if self._process.returncode is None:
            self._process.kill()


class _Connection(asyncio.Protocol):
    """Our end of the socket."""

    def __init__(self, on_event: Callable[[EngineEvent], None], coming: Callable[[], int] = nobody_comes) -> None:
        self.lost = asyncio.Event()
        self.complaint = ""
        self._on_event = on_event
        self._coming = coming
        self._num_coming = 0
        """As it was told last."""
        self._reader = event_reader()
        self._writer = FrameWriter()
        self._transport: asyncio.WriteTransport
        self._reading: asyncio.ReadTransport
        self._unsent = bytearray()
        self._num_unsent = 0
        self._held = self._hears_all = self._has_ended = False

    def hold(self, held: bool) -> None:
        if held != self._held and not (self._hears_all or self._transport.is_closing()):
            self._held = held
            self._reading.pause_reading() if held else self._reading.resume_reading()

    def hear_all(self) -> None:
        """From now on: there is not much more to come."""
        self.hold(False)
        self._hears_all = True

    def send(self, message: Inbound) -> None:
        """With what else is sent in this turn of the event loop."""
        self._unsent += self._writer.frame(message)
        self._num_unsent += 1
        if self._num_unsent == 1:
            asyncio.get_running_loop().call_soon(self._send_all)
        elif self._num_unsent >= _MOST_TOGETHER:
            self._send_all()

    def _send_all(self) -> None:
        if not self._unsent:
            return
        before, self._num_coming = self._num_coming, self._coming()
        if before or self._num_coming:
            self._unsent += self._writer.frame(Coming(self._num_coming))
        data, self._unsent, self._num_unsent = bytes(self._unsent), bytearray(), 0
        self.write(data)

    def write(self, data: bytes) -> None:
        if not (self._has_ended or self._transport.is_closing()):
            self._transport.write(data)

    def end(self) -> None:
        self._send_all()
        if not self._transport.is_closing():
            self._has_ended = True
            self._transport.write_eof()

    def abort(self) -> None:
        self._transport.abort()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        self._reading = cast(asyncio.ReadTransport, transport)

    def data_received(self, data: bytes) -> None:
        try:
            for event in self._reader.feed(data):
                self._on_event(event)
        except WireError as error:
            self.complaint = str(error)
            self.abort()

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost.set()


async def _spawn(entry: Sequence[str], log_file: LogFile, connection: int) -> asyncio.subprocess.Process:
    log = log_file.open()
    try:
        return await asyncio.create_subprocess_exec(
            *entry, "--log-file", str(log_file.path or ""), str(connection),
            stdin=asyncio.subprocess.DEVNULL, stdout=log, stderr=log,
            pass_fds=(connection,), start_new_session=True, env=environment(),
        )  # fmt: skip
    finally:
        os.close(log)
