"""The engine as the screens see it: commands in, events out, and a process behind it that may die.

Imports nothing heavy, so that the first frame is early. The policy is: a process that ends without being asked to
is started again, unless that happens too often or it said itself why it cannot start. Requests that it had begun
with are lost then; those that it had not are sent to the next one.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Sequence
from pathlib import Path

from pagedchat.config import EngineConfig
from pagedchat.events import EngineDied, EngineEvent, EngineFailed, EngineReady, RequestFailed
from pagedchat.service.commands import AnyCommand, Focus, Fork, Generate, Shutdown
from pagedchat.service.log_file import LogFile
from pagedchat.service.process import DEFAULT_ENTRY, EngineProcess
from pagedchat.service.unanswered import Unanswered

MAX_CRASHES = 3
"""So many crashes in a row are followed by a restart..."""
CRASH_WINDOW = 60.0
"""...within this many seconds; then the user is asked."""
CLOSE_TIMEOUT = 3.0


class EngineClient:
    """Implements `EngineLink` with an engine process.

    Args:
        config: what the engine is to load.
        log_dir: folder of the engine's log; the platform's place for logs by default.
        entry: command that starts an engine process (tests start fakes); the socket's number is appended.
    """

    def __init__(
        self, config: EngineConfig, log_dir: Path | None = None, entry: Sequence[str] | None = None
    ) -> None:
        self._config = config
        self._entry = tuple(entry or DEFAULT_ENTRY)
        self._log_file = LogFile(log_dir)
        self._events: asyncio.Queue[EngineEvent | None] = asyncio.Queue()
        self._process: EngineProcess | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._waiting: deque[AnyCommand] = deque()
        self._unanswered = Unanswered()
        self._focus: Focus | None = None
        self._crashes: deque[float] = deque(maxlen=MAX_CRASHES + 1)
        self._ready = self._failed = self._closing = False

    @property
    def log_path(self) -> Path:
        """The engine's log."""
        return self._log_file.path

    @property
    def pid(self) -> int | None:
        """The engine process's id; `None` while there is none."""
        return self._process.pid if self._process is not None else None

    async def start(self) -> None:
        """Start the engine; progress comes as events. After a failure, call it again to try again; after `close` it
        does nothing."""
        if not self._closing and (self._supervisor is None or self._supervisor.done()):
            self._failed = False
            self._crashes.clear()
            self._supervisor = asyncio.create_task(self._supervise(), name="engine supervisor")

    def send(self, command: AnyCommand) -> None:
        """Queue a command. It waits while the engine is starting; once that has failed, prompts are refused."""
        if isinstance(command, Focus):
            self._focus = command
        if self._failed:
            self._refuse(command)
        elif self._ready and self._process is not None:
            self._unanswered.sent(command)
            self._process.send(command)
        else:
            self._waiting.append(command)

    async def events(self) -> AsyncIterator[EngineEvent]:
        """All events, in order, for one listener; ends after `close`."""
        while (event := await self._events.get()) is not None:
            yield event

    async def close(self) -> None:
        """End the engine process and wait for it; it is killed if it does not end within seconds."""
        self._closing = True
        if self._process is not None:
            self._process.send(Shutdown())
            await self._process.close(CLOSE_TIMEOUT)
        if self._supervisor is not None:
            await self._supervisor
        self._events.put_nowait(None)

    # --- the process --------------------------------------------------------------------------------

    async def _supervise(self) -> None:
        """Start processes one after another until that is no use."""
        while self._wanted:
            try:
                process = await EngineProcess.start(self._config, self._log_file, self._on_event, self._entry)
            except OSError as error:
                self._on_event(_not_started(error))
                return
            await self._watch(process)

    async def _watch(self, process: EngineProcess) -> None:
        """Until the process has ended."""
        self._process = process
        if not self._wanted:  # closed while it was being made
            await process.close(CLOSE_TIMEOUT)
        exit_code = await process.wait()
        self._process, self._ready = None, False
        if self._wanted:
            self._on_death(exit_code, process.complaint)

    @property
    def _wanted(self) -> bool:
        return not (self._closing or self._failed)

    def _on_event(self, event: EngineEvent) -> None:
        self._events.put_nowait(event)
        self._unanswered.heard(event)
        match event:
            case EngineReady():
                self._on_ready()
            case EngineFailed():
                self._give_up()

    def _on_ready(self) -> None:
        self._ready = True
        if self._focus is not None:
            self.send(self._focus)
        while self._waiting:
            self.send(self._waiting.popleft())

    def _on_death(self, exit_code: int, complaint: str) -> None:
        now = time.monotonic()
        self._crashes.append(now)
        recent = sum(now - crash < CRASH_WINDOW for crash in self._crashes)
        restarting = recent <= MAX_CRASHES
        tail = "\n".join(filter(None, (self._log_file.tail(), complaint)))
        self._events.put_nowait(EngineDied(exit_code, tail, restarting))
        self._waiting.extendleft(reversed(self._unanswered.take()))
        if not restarting:
            self._give_up()

    def _give_up(self) -> None:
        self._failed, self._ready = True, False
        while self._waiting:
            self._refuse(self._waiting.popleft())

    def _refuse(self, command: AnyCommand) -> None:
        """Nothing is dropped in silence: who waits for a reply hears that there will be none."""
        match command:
            case Generate(session_id, request_id) | Fork(_, session_id, request_id):
                pass
            case _:
                return
        hint = f"Start pagedchat again with another setting; the engine's log is {self.log_path}."
        self._events.put_nowait(RequestFailed(session_id, request_id, "The engine is not running.", hint))


def _not_started(error: OSError) -> EngineFailed:
    return EngineFailed(f"The engine process could not be started: {error}.", "Free memory or disk space.")
