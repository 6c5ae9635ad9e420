"""The engine as the screens see it: commands in, events out, and a process behind it that may die.

Imports nothing heavy, so that the first frame is early. The policy is: a process that ends without being asked to
is started again, unless that happens too often or it said itself why it cannot start. Requests that it had begun
with are lost then; those that it had not are sent to the next one, and so is what the user had set.
"""

import asyncio
import errno
import time
from collections import deque
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import replace
from pathlib import Path

from pagedchat.config import EngineConfig
from pagedchat.errors import PagedChatError
from pagedchat.events import (
    EngineDied,
    EngineEvent,
    EngineFailed,
    EngineNotice,
    EngineReady,
    RefusalKind,
    RequestFailed,
    RequestRefused,
)
from pagedchat.service.commands import AddRequest, AnyCommand, Detokenize, Fork, Generate, Shutdown, Tokenize
from pagedchat.service.event_queue import EventQueue
from pagedchat.service.log_file import LogFile
from pagedchat.service.next_engine import Settings, Unanswered
from pagedchat.service.process import DEFAULT_ENTRY, EngineProcess, nobody_comes
from pagedchat.service.wire import NotSendableError

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
        follows_steps: whether steps come as events; a program that only wants replies is faster without.
        coming: how many requests are on their way that have not been sent yet.
    """

    def __init__(
        self,
        config: EngineConfig,
        log_dir: Path | None = None,
        entry: Sequence[str] | None = None,
        *,
        follows_steps: bool = True,
        coming: Callable[[], int] = nobody_comes,
    ) -> None:
        self._config = config
        self._follows_steps = follows_steps
        self._coming = coming
        self._log_dir = log_dir
        self._entry = tuple(entry or DEFAULT_ENTRY)
        self._log_file = LogFile(log_dir, "-beside" if config.stands_beside else "")
        self._events = EventQueue(self._hold)
        self._process: EngineProcess | None = None
        self._supervisor: asyncio.Task[None] | None = None
        self._waiting: deque[AnyCommand] = deque()
        self._unanswered = Unanswered()
        self._settings = Settings()
        self._crashes: deque[float] = deque(maxlen=MAX_CRASHES + 1)
        self._next_model = ""
        """What a process that is there makes room for."""
        self._ready = self._failed = self._closing = False

    @property
    def log_path(self) -> Path | None:
        """The engine's log; None where none can be written."""
        return self._log_file.path

    @property
    def pid(self) -> int | None:
        """The engine process's id; `None` while there is none."""
        return self._process.pid if self._process is not None else None

    async def start(self) -> None:
        """Start the engine; progress comes as events. After a failure, call it again to try again; after `close` it
        does nothing."""
        if self._closing:
            return
        self._failed = False
        self._crashes.clear()
        if self._supervisor is None or self._supervisor.done():
            self._supervisor = asyncio.create_task(self._supervise(), name="engine supervisor")

    async def restart(self) -> None:
        """Start the engine anew, whatever became of it; a process that is there, even one that hangs, is killed."""
        if self._process is not None:
            self._process.kill()
        await self.start()

    async def switch(self, model: str) -> None:
        """Start the engine anew with another model; a process that is there ends first.

        Raises:
            InvalidValueError: no model can be called that.
        """
        self._config = replace(self._config, model=replace(self._config.model, model=model, tokenizer=None))
        self._next_model = model if self._wanted and self._supervisor is not None else ""
        await self.restart()

    def beside(self, model: str) -> "EngineClient":
        """Another engine with another model, not yet started; with a log of its own.

        Raises:
            InvalidValueError: no model can be called that.
        """
        return EngineClient(
            self._config.beside(model), self._log_dir, self._entry, follows_steps=self._follows_steps
        )

    def send(self, command: AnyCommand) -> None:
        """Queue a command. It waits while the engine is starting; once that has failed, prompts are refused.

        What cannot be told to an engine is refused by itself, as the engine would refuse it.
        """
        is_setting = self._settings.take(command)
        if self._failed:
            self._refuse(command, *self._not_running())
        elif self._ready and self._process is not None:
            self._pass_on(self._process, command)
        elif not is_setting:  # those are told first of all
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
        self._events.put(None)

    # --- the process --------------------------------------------------------------------------------

    async def _supervise(self) -> None:
        """Start processes one after another until that is no use; why it is none is always said."""
        try:
            while self._wanted:
                config = self._config
                process = await EngineProcess.start(
                    config,
                    self._log_file,
                    self._on_event,
                    self._entry,
                    follows_steps=self._follows_steps,
                    coming=self._coming,
                )
                self._tell_where_the_log_is()
                if config is not self._config:  # another model was chosen while it was being made
                    process.kill()
                await self._watch(process)
        except Exception as error:
            self._log_file.add_traceback(error)
            self._on_event(self._not_started(error))

    async def _watch(self, process: EngineProcess) -> None:
        """Until the process has ended."""
        self._process = process
        process.hold(self._events.is_full)
        try:
            if not self._wanted:  # closed while it was being made
                await process.close(CLOSE_TIMEOUT)
            exit_code = await process.wait()
        finally:
            process.kill()
            self._process, self._ready = None, False
        if self._wanted:
            self._on_death(exit_code, process.complaint)

    def _hold(self, held: bool) -> None:
        if self._process is not None:
            self._process.hold(held)

    def _tell_where_the_log_is(self) -> None:
        complaint, self._log_file.complaint = self._log_file.complaint, ""
        if complaint:
            self._on_event(EngineNotice(complaint))

    @property
    def _wanted(self) -> bool:
        return not (self._closing or self._failed)

    def _on_event(self, event: EngineEvent) -> None:
        self._events.put(event)
        self._unanswered.heard(event)
        match event:
            case EngineReady() if self._process is not None:
                self._on_ready(self._process)
            case EngineFailed():
                self._give_up()

    def _on_ready(self, process: EngineProcess) -> None:
        self._ready = True
        for command in self._settings.commands():
            self._pass_on(process, command)
        while self._waiting:
            self._pass_on(process, self._waiting.popleft())

    def _pass_on(self, process: EngineProcess, command: AnyCommand) -> None:
        try:
            process.send(command)
        except NotSendableError as error:
            self._refuse(command, error.message, error.hint)
        else:
            self._unanswered.sent(command)

    def _on_death(self, exit_code: int, complaint: str) -> None:
        next_model, self._next_model = self._next_model, ""
        if next_model:
            self._crashes.clear()
            self._events.put(EngineDied(exit_code, "", True, str(self.log_path or ""), next_model))
            self._recall_unanswered()
            return
        now = time.monotonic()
        self._crashes.append(now)
        recent = sum(now - crash < CRASH_WINDOW for crash in self._crashes)
        restarting = recent <= MAX_CRASHES
        tail = "\n".join(filter(None, (self._log_file.tail(), complaint)))
        self._events.put(EngineDied(exit_code, tail, restarting, str(self.log_path or "")))
        self._recall_unanswered()
        if not restarting:
            self._give_up()

    def _give_up(self) -> None:
        self._failed, self._ready = True, False
        self._recall_unanswered()
        while self._waiting:
            self._refuse(self._waiting.popleft(), *self._not_running())

    def _recall_unanswered(self) -> None:
        """What the process was sent and had not begun with waits again, before everything else."""
        self._waiting.extendleft(reversed(self._unanswered.take()))

    def _refuse(self, command: AnyCommand, message: str, hint: str) -> None:
        """Nothing is dropped in silence: who waits for a reply hears that there will be none."""
        match command:
            case Generate(session_id, request_id) | Fork(_, session_id, request_id):
                self._events.put(RequestFailed(session_id, request_id, message, hint))
            case AddRequest(request_id) | Tokenize(request_id) | Detokenize(request_id):
                kind: RefusalKind = "engine" if self._failed else "value"
                self._events.put(RequestRefused(request_id, message, hint, kind))
            case _ if not self._failed:  # else the screen says so already
                self._events.put(EngineNotice(message, hint, failed=True))

    def _not_running(self) -> tuple[str, str]:
        return "The engine is not running.", f"/restart starts it again{self._see_log()}."

    def _not_started(self, error: Exception) -> EngineFailed:
        match error:
            case PagedChatError():
                return EngineFailed(error.message, error.hint)
            case OSError():
                message = f"The engine process could not be started: {error}."
                return EngineFailed(message, _CURES.get(error.errno, ""))
        reason = f"{type(error).__name__}: {error}".rstrip(": .")
        return EngineFailed(
            f"The engine could not be watched over: {reason}.", f"/restart starts it again{self._see_log()}."
        )

    def _see_log(self) -> str:
        return f"; the engine's log is {self.log_path}" if self.log_path else ""


_CURES: dict[int | None, str] = {
    errno.ENOMEM: "Free memory.",
    errno.EAGAIN: "End other programs: this user may have no more processes.",
    errno.EMFILE: "Raise the limit of open files (ulimit -n).",
    errno.ENFILE: "End other programs: the system has no room for more open files.",
    errno.ENOSPC: "Free disk space.",
    errno.ENOENT: "Install pagedchat again: the Python that it ran with is gone.",
    errno.EACCES: "Look who may run that file.",
}
"""What helps where the system did not make a process."""
