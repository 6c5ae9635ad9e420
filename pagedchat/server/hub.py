"""One engine, several clients: terminals, somebody who only looks on, the HTTP server.

Each client has an `EngineLink` of its own, with session and request numbers of its own. Prefixes are shared by all,
and so is the state of the engine: a pause, a limit, a pin are everybody's and told to everybody. Of each other's
chats clients see blocks and lengths, and neither text nor tokens (redaction.py). Whoever joins late gets the cache
as a keyframe, as does one that reads too slowly (client_queue.py); nobody waits for anybody.

Knows no sockets, and not what is kept of a terminal that is gone.
"""

import asyncio
import logging
from collections.abc import Iterable
from itertools import count
from typing import Any

import msgspec

from pagedchat.errors import InvalidValueError
from pagedchat.events import (
    CacheKeyframe,
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
    SequencesTold,
    Steps,
    Tokenized,
    TokenTexts,
)
from pagedchat.server.client_queue import MAX_WAITING, ClientQueue
from pagedchat.server.hub_client import HubClient, Role
from pagedchat.server.numbers import Numbers
from pagedchat.server.question import SequencesQuestion
from pagedchat.server.redaction import Eyes, OpaqueHashes
from pagedchat.server.shared_cache import SharedCache, Watcher
from pagedchat.service.commands import (
    AbortRequests,
    AnyCommand,
    Close,
    Coming,
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
    TellCache,
    TellSequences,
    Unpin,
)

log = logging.getLogger(__name__)

MOST_SEQUENCES = 100
"""Of which figures are told one by one; of more their number is."""

_OF_ALL = (Pause, Resume, StepOnce, SetPace, SetLimit, Pin, Unpin, Evict, FlushCache)
"""Commands that change the engine for everybody."""
_OF_THE_HUB = (Coming, Shutdown, TellCache, TellSequences)
"""Commands that no client sends."""
_ENDS = RequestFinished | RequestFailed | RequestRefused | Tokenized | Detokenized
"""Nothing more comes of a request after one of these."""
_TOLD_TO_OTHERS: dict[type[Any], str] = {
    Pause: "Another terminal has paused the engine.",
    Resume: "Another terminal lets the engine run on.",
    SetPace: "Another terminal has set how slowly the engine runs.",
}
"""What would be a riddle for those who did not do it; the engine's own answers go to everybody."""


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
        self._is_asked = False
        """Whether the engine has been asked for its cache and has not told it yet."""
        self._question = SequencesQuestion(link.send, MOST_SEQUENCES)
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

    async def sequences(self, seconds: float) -> SequencesTold | None:
        """All sequences as they are now, at most `MOST_SEQUENCES` one by one; None where there is no engine, or a
        step that runs takes longer than so many seconds."""
        return await self._question.ask(seconds) if isinstance(self._state, EngineReady) else None

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
        self._ask_for_cache()
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
        if not self._is_watched:
            self._cache.rest()

    @property
    def _is_watched(self) -> bool:
        """Whether anybody follows the cache, or is to find it as it is when he comes back."""
        return any(client.queue.follows for client in self._clients.values())

    def _ask_for_cache(self) -> None:
        """Where somebody follows it who is the first one."""
        has_none = self._cache.mirror is None and not self._is_asked
        if has_none and isinstance(self._state, EngineReady) and self._is_watched:
            self._is_asked = True
            self._link.send(TellCache())

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
        if client.closed or isinstance(command, _OF_THE_HUB):
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
            case Steps() | TokenTexts() | CacheKeyframe():
                self._hear_of_cache(event)
            case SequencesTold():
                self._question.hear(event)
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
        self._cache.begin(info, is_watched=self._is_watched)
        for client in self._clients.values():
            client.watcher.told.clear()
            self._tell(client, info)
            client.queue.start_behind()

    def _hear_of_cache(self, event: Steps | TokenTexts | CacheKeyframe) -> None:
        match event:
            case Steps():
                self._cache.fold(event, [client.watcher for client in self._clients.values() if client.reads])
            case TokenTexts():
                self._cache.learn(event)
            case CacheKeyframe():
                self._go_on(event)

    def _go_on(self, told: CacheKeyframe) -> None:
        """The engine has told its cache: those that wait for it hear of it from here on."""
        self._is_asked = False
        if self._cache.mirror is None and self._is_watched:
            try:
                self._cache.go_on(told)
            except ValueError:  # its books disagree, which it finds out itself, too
                log.exception("What the engine tells of its cache contradicts itself.")
                return
            for client in self._clients.values():
                client.queue.start_behind()

    def _die(self, died: EngineDied) -> None:
        """Its last lines and where they are kept are the server's own."""
        self._end_engine(EngineDied(died.exit_code, "", died.restarting, "", died.next_model))

    def _end_engine(self, event: EngineDied | EngineFailed) -> None:
        self._state = event
        self._cache.end()
        self._is_asked = False
        self._question.hear(None)
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
