"""One engine, several clients: terminals, somebody who only looks on, the HTTP server.

Each client has an `EngineLink` of its own, with session and request numbers of its own. Prefixes are shared by all,
and so is the state of the engine: a pause, a limit, a pin are everybody's and told to everybody. Of each other's
chats clients see blocks and lengths, and neither text nor tokens (redaction.py). Whoever joins late gets the cache
as a keyframe, as does one that reads too slowly (client_queue.py); nobody waits for anybody.

Knows no sockets, and not what is kept of a terminal that is gone.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable
from itertools import count
from typing import Any, Literal

import msgspec

from pagedchat.engine.mirror import CacheMirror
from pagedchat.errors import InvalidValueError, PagedChatError
from pagedchat.events import (
    Detokenized,
    EngineDied,
    EngineEvent,
    EngineFailed,
    EngineNotice,
    EngineReady,
    IntegrityBroken,
    LoadProgress,
    RequestFailed,
    RequestFinished,
    RequestOutputs,
    RequestRefused,
    RunState,
    Steps,
    Tokenized,
    TokenTexts,
)
from pagedchat.server.client_queue import MAX_WAITING, ClientQueue
from pagedchat.server.numbers import Numbers
from pagedchat.server.redaction import Eyes, OpaqueHashes
from pagedchat.server.shared_cache import SharedCache, Watcher
from pagedchat.service.commands import (
    AbortRequests,
    AnyCommand,
    Close,
    EngineLink,
    Evict,
    FlushCache,
    Pause,
    Pin,
    ProgramCommand,
    Resume,
    SetLimit,
    SetPace,
    Shutdown,
    StepOnce,
    Unpin,
)

Role = Literal["terminal", "program", "onlooker"]
"""terminal: may do everything that does not end the engine. program: has chats. onlooker: looks on."""

_OF_ALL = (Pause, Resume, StepOnce, SetPace, SetLimit, Pin, Unpin, Evict, FlushCache)
"""Commands that change the engine for everybody."""
_ENDS = RequestFinished | RequestFailed | RequestRefused | Tokenized | Detokenized
"""Nothing more comes of a request after one of these."""
_TOLD_TO_OTHERS: dict[type[Any], str] = {
    Pause: "Another terminal has paused the engine.",
    Resume: "Another terminal lets the engine run on.",
    SetPace: "Another terminal has set how slowly the engine runs.",
}
"""What would be a riddle for those who did not do it; the engine's own answers go to everybody."""
DECIDES = "The server decides which model runs, and when its engine is started again."
_HINT = "Whoever runs `pagedchat serve` can end it and start it with another model."


class HubClient:
    """One client's `EngineLink`. Made by `EngineHub.client`."""

    def __init__(self, hub: "EngineHub", key: int, role: Role, watcher: Watcher) -> None:
        self._hub = hub
        self.key = key
        self.role = role
        self.watcher = watcher
        self.queue = watcher.queue
        self.reads = True
        """Whether anybody listens: while nobody does nothing is kept of what there is to hear."""
        self.closed = False
        self.on_event: Callable[[EngineEvent], None] = _nobody_listens
        """Hears what concerns its own requests, whether anybody reads or not."""

    async def start(self) -> None:
        """Start the engine, if nobody has."""
        await self._hub.start()

    async def restart(self) -> None:
        """Nobody starts anew what others use.

        Raises:
            PagedChatError: always.
        """
        raise PagedChatError(DECIDES, _HINT)

    async def switch(self, model: str) -> None:
        """As `restart`.

        Raises:
            PagedChatError: always.
        """
        raise PagedChatError(DECIDES, _HINT)

    def beside(self, model: str) -> EngineLink:
        """As `restart`.

        Raises:
            PagedChatError: always.
        """
        raise PagedChatError(DECIDES, _HINT)

    def send(self, command: AnyCommand) -> None:
        """Queue a command. What it may not do, or cannot be done, is answered at once."""
        self._hub.send(self, command)

    def refuse(self, command: AnyCommand, message: str, hint: str) -> None:
        """Answer a command that is not to reach the engine."""
        self._hub.refuse(self, command, message, hint)

    @property
    def num_sessions(self) -> int:
        """Sessions that are not closed."""
        return len(self._hub.numbers.sessions_of(self.key))

    async def events(self) -> AsyncIterator[EngineEvent]:
        """Everything that is known already, and then all events, in order; ends after `close`."""
        while (event := await self.queue.get()) is not None:
            yield event

    async def close(self) -> None:
        """Leave: its sessions are closed, the engine goes on."""
        self._hub.leave(self)

    def listen(self, story: Iterable[EngineEvent] = ()) -> None:
        """Somebody reads from now on, from the start; `story` comes after what the engine is."""
        self._hub.listen(self, story)

    def silence(self) -> None:
        """Nobody reads any more; its requests go on."""
        self._hub.silence(self)


class EngineHub:
    """Passes on what clients want, and what the engine says.

    Args:
        link: the engine, not yet started; nobody else listens to it.
    """

    def __init__(self, link: EngineLink) -> None:
        self._link = link
        self._clients: dict[int, HubClient] = {}
        self._keys = count(1)
        self.numbers = Numbers()
        self._opaque = OpaqueHashes()
        self._cache = SharedCache(self.numbers)
        self._state: EngineEvent | None = None
        """What the engine is: loading, ready, failed, dead."""
        self.run_state = RunState(False)
        """How the engine runs: paused, how fast, with how many blocks."""
        self._broken: IntegrityBroken | None = None
        self._listening: asyncio.Task[None] | None = None

    # --- the engine ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the engine, also after a failure; one that runs, or is on its way, is left alone."""
        if self._listening is None:
            self._listening = asyncio.create_task(self._listen(), name="engine hub")
            await self._link.start()
        elif self.has_failed:
            self._state = None
            await self._link.start()

    async def close(self) -> None:
        """End the engine; all clients hear that there is no more."""
        await self._link.close()
        if self._listening is not None:
            await self._listening
        self._end()

    async def _listen(self) -> None:
        async for event in self._link.events():
            self.hear(event)
        self._end()

    def _end(self) -> None:
        for client in list(self._clients.values()):
            client.closed = True
            client.queue.put(None)
        self._clients.clear()

    @property
    def mirror(self) -> CacheMirror | None:
        """The cache, all of it; None while there is no engine."""
        return self._cache.mirror

    @property
    def has_failed(self) -> bool:
        """Whether there is no engine, nor one on its way."""
        dead = isinstance(self._state, EngineDied) and not self._state.restarting
        return dead or isinstance(self._state, EngineFailed)

    @property
    def num_readers(self) -> int:
        """Clients that somebody listens to."""
        return sum(client.reads for client in self._clients.values())

    # --- clients ------------------------------------------------------------------------------------

    def client(
        self, role: Role = "terminal", *, follows_steps: bool = True, max_waiting: int = MAX_WAITING
    ) -> HubClient:
        """One more.

        Args:
            role: what it may do.
            follows_steps: whether it hears of the cache; a program that only wants replies is cheaper without.
            max_waiting: parts of steps that wait for it before they are dropped for a keyframe.
        """
        key = next(self._keys)
        own = self.numbers.own.setdefault(key, {})
        queue = ClientQueue(lambda: self._cache.fresh(watcher), follows=follows_steps, limit=max_waiting)
        watcher = Watcher(key, Eyes(own, self._opaque), queue)
        client = self._clients[key] = HubClient(self, key, role, watcher)
        self.listen(client)
        return client

    def listen(self, client: HubClient, story: Iterable[EngineEvent] = ()) -> None:
        """Tell a client all that it has to know first, and `story`."""
        client.reads = True
        client.watcher.eyes.forget()
        client.queue.clear()
        for event in (self._state, self.run_state, self._broken):
            if event is not None and (event is self._state or isinstance(self._state, EngineReady)):
                client.queue.put(event)
        for event in story:
            client.queue.put(event)
        client.queue.start_behind()

    def silence(self, client: HubClient) -> None:
        """Nobody listens to a client; a pause that nobody is left to lift is lifted."""
        client.reads = False
        client.queue.clear()
        self._lift_pause_if_nobody_can()

    def leave(self, client: HubClient) -> None:
        """A client is gone."""
        if client.closed:
            return
        for session_id in self.numbers.sessions_of(client.key):
            self.send(client, Close(session_id))
        if requests := self.numbers.of_programs(client.key):
            self._link.send(AbortRequests(requests))
        client.closed, client.reads = True, False
        self._clients.pop(client.key, None)
        self.numbers.leave(client.key)
        client.queue.put(None)
        self._lift_pause_if_nobody_can()

    def _lift_pause_if_nobody_can(self) -> None:
        if any(client.reads and client.role == "terminal" for client in self._clients.values()):
            return
        if self.run_state.paused:
            self._link.send(Resume())
        if self.run_state.pace:
            self._link.send(SetPace(0.0))

    # --- commands -----------------------------------------------------------------------------------

    def send(self, client: HubClient, command: AnyCommand) -> None:
        """A client wants something."""
        if client.closed or isinstance(command, Shutdown):
            return
        objection = _objection(client.role, command)
        if objection:
            self.refuse(client, command, objection, "")
        elif isinstance(command, _OF_ALL):
            self._link.send(command)
            self._tell_others(client, command)
        else:
            self._send_own(client, command)

    def _send_own(self, client: HubClient, command: AnyCommand) -> None:
        try:
            told = self.numbers.told(client.key, command)
        except InvalidValueError as error:
            self.refuse(client, command, error.message, error.hint)
            return
        if told is None:
            return
        if isinstance(command, Close):
            self.numbers.close(client.key, command.session_id)
        self._link.send(told)
        self.numbers.settle(self._cache.exists)

    def refuse(self, client: HubClient, command: AnyCommand, message: str, hint: str) -> None:
        """Who waits for a reply hears that there will be none."""
        session_id = getattr(command, "new_session_id", getattr(command, "session_id", 0))
        request_id = getattr(command, "request_id", None)
        if request_id is not None and isinstance(command, ProgramCommand):
            self._tell_own(client, RequestRefused(request_id, message, hint, "value"))
        elif request_id is None:
            client.queue.put(EngineNotice(message, hint, failed=True))
        else:
            self._tell_own(client, RequestFailed(session_id, request_id, message, hint))

    def _tell_others(self, client: HubClient, command: AnyCommand) -> None:
        sentence = _TOLD_TO_OTHERS.get(type(command))
        if sentence is not None:
            notice = EngineNotice(sentence)
            for other in self._clients.values():
                if other is not client and other.role != "program":
                    self._tell(other, notice)

    # --- events -------------------------------------------------------------------------------------

    def hear(self, event: EngineEvent) -> None:
        """The engine says something."""
        if hasattr(event, "request_id"):
            self._hear_of_request(event)
            return
        match event:
            case RequestOutputs():
                self._hear_outputs(event)
            case Steps():
                self._cache.fold(event, [client.watcher for client in self._clients.values() if client.reads])
            case TokenTexts():
                self._cache.learn(event)
            case EngineReady():
                self._begin(event)
            case LoadProgress():
                self._tell_all(event)
                if not isinstance(self._state, EngineReady):
                    self._state = event
            case RunState():
                self.run_state = event
                self._tell_all(event)
            case EngineFailed():
                self._end_engine(event)
            case EngineDied():
                self._die(event)
            case IntegrityBroken():
                self._broken = _without_details(event)
                self._tell_all(self._broken)
            case EngineNotice():
                self._tell_all(event)

    def _begin(self, info: EngineReady) -> None:
        self._state, self.run_state, self._broken = info, RunState(False), None
        self._cache.begin(info)
        for client in self._clients.values():
            client.watcher.told.clear()
            self._tell(client, info)
            client.queue.start_behind()

    def _die(self, died: EngineDied) -> None:
        """Its last lines and where they are kept are the server's own."""
        self._end_engine(EngineDied(died.exit_code, "", died.restarting, "", died.next_model))

    def _end_engine(self, event: EngineDied | EngineFailed) -> None:
        self._state = event
        self._cache.end()
        self.numbers.lost()
        for client in self._clients.values():
            self._tell_own(client, event)

    def _hear_of_request(self, event: Any) -> None:
        asked = self.numbers.asked.get(event.request_id)
        if asked is None:
            return
        asked.begun = True
        if isinstance(event, _ENDS):
            self.numbers.over(event.request_id)
            self.numbers.settle(self._cache.exists)
        client = self._clients.get(asked.client)
        if client is not None:
            numbers = {"session_id": asked.session_id, "request_id": asked.request_id}
            known = {name: number for name, number in numbers.items() if name in event.__struct_fields__}
            self._tell_own(client, msgspec.structs.replace(event, **known))

    def _hear_outputs(self, event: RequestOutputs) -> None:
        """To each program what is its own."""
        told: dict[int, RequestOutputs] = {}
        for number, output in zip(event.request_ids, event.outputs, strict=True):
            asked = self.numbers.asked.get(number)
            if asked is None:
                continue
            asked.begun = True
            if output.finished:
                self.numbers.over(number)
            outputs = told.setdefault(asked.client, RequestOutputs([], []))
            outputs.request_ids.append(asked.request_id)
            outputs.outputs.append(output)
        for key, outputs in told.items():
            if key in self._clients:
                self._tell_own(self._clients[key], outputs)

    def _tell_own(self, client: HubClient, event: EngineEvent) -> None:
        client.on_event(event)
        self._tell(client, event)

    def _tell(self, client: HubClient, event: EngineEvent) -> None:
        if client.reads:
            client.queue.put(event)

    def _tell_all(self, event: EngineEvent) -> None:
        for client in self._clients.values():
            self._tell(client, event)


def _objection(role: Role, command: AnyCommand) -> str:
    """Why a client may not do this; empty where it may."""
    if role == "onlooker":
        return "This terminal only looks on."
    if role == "program" and isinstance(command, _OF_ALL):
        return "Only a terminal changes the engine for everybody."
    if role == "terminal" and isinstance(command, ProgramCommand):
        return "A terminal asks in chats."
    return ""


def _without_details(broken: IntegrityBroken) -> IntegrityBroken:
    """What disagrees may name other clients' tokens, and the dump lies on the server."""
    return IntegrityBroken(broken.step, "the server's log has the details", "")


def _nobody_listens(_event: EngineEvent) -> None:
    """Until somebody does."""
