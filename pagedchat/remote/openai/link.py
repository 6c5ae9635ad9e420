"""A server as the screens know engines: commands in, events out.

Where an engine of ours tells blocks and steps, a server tells text, and figures if it has `/metrics`. Connecting is
asking for its models; between two requests there is no connection to lose. A session has one request at most, and
nothing of it is kept at the server: every request brings the whole chat, of which its prefix cache may have a part.
"""

import asyncio
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any

import msgspec

from pagedchat.chat.turns import Turn
from pagedchat.errors import PagedChatError
from pagedchat.events import (
    EngineEvent,
    EngineFailed,
    EngineNotice,
    EngineReady,
    LoadProgress,
    RequestFailed,
    RequestFinished,
    RequestStarted,
    ServerInfo,
    ServerModels,
    TextDelta,
)
from pagedchat.remote.openai.asking import Asking
from pagedchat.remote.openai.http import open_client
from pagedchat.remote.openai.kinds import NAMES, UNKNOWN, kind_of
from pagedchat.remote.openai.models import FoundModels, check_model, find_models
from pagedchat.remote.openai.observing import Observing
from pagedchat.remote.openai.request import asked
from pagedchat.remote.openai.told import Told
from pagedchat.service.commands import AnyCommand, Close, Focus, Fork, Generate, Stop
from pagedchat.service.event_queue import EventQueue

if TYPE_CHECKING:
    from openai import AsyncOpenAI

    from pagedchat.remote.openai.address import ServerAddress

LOOK_SECONDS = 1.0
"""Between two looks at requests that wait."""
MODELS_SECONDS = 20.0
"""For its list of models."""
_NOBODY = FoundModels(UNKNOWN, {})


class OpenAILink:
    """Implements `EngineLink` with an OpenAI-compatible server.

    Args:
        address: the server.
        seed: of chats that have none of their own.
        clock: seconds.
    """

    def __init__(
        self, address: "ServerAddress", seed: int | None = None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.address = address
        self._seed = seed
        self._clock = clock
        self._events = EventQueue(lambda held: None)
        self._client: AsyncOpenAI | None = None
        self._told = Told(address)
        self._found = _NOBODY
        self._model = ""
        """That answers; empty while there is none."""
        self._askings: dict[int, Asking] = {}
        """The last request of each session, also when it is over: who forks the session is told its reply."""
        self._asked: dict[int, Generate] = {}
        self._waiting: deque[Generate | Fork] = deque()
        """Until there is a model."""
        self._connecting: asyncio.Task[None] | None = None
        self._looking: asyncio.Task[None] | None = None
        self._observing: Observing | None = None
        self._left_out: set[str] = set()
        """Sampling fields that the user was told are not sent."""
        self._failed = self._closing = False

    # --- connecting ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Ask for its models; returns at once."""
        if not self._closing and (self._connecting is None or self._connecting.done()):
            self._connect()

    async def restart(self) -> None:
        """Ask anew; requests on their way end with the text that they have, prompts not sent yet wait."""
        if self._closing:
            return
        for asking in self._askings.values():
            asking.fail(PagedChatError(f"The connection to {self._told.name} was made anew."))
        if self._connecting is not None:
            self._connecting.cancel()
        self._model = ""
        self._connect()

    async def switch(self, model: str) -> None:
        """Go on with another of its models; of `lab#model` what stands behind the `#`."""
        self.address = self.address.with_model(model.removeprefix(f"{self.address.with_model('').text}#"))
        await self.restart()

    def beside(self, model: str) -> "OpenAILink":
        """The same server with another of its models, not yet asked."""
        return OpenAILink(self.address.with_model(model), self._seed, self._clock)

    def _connect(self) -> None:
        self._failed = False
        if self._observing is not None:
            self._observing.stop()
        self._emit(LoadProgress("connect", f"Asking {self._told.name} for its models"))
        self._connecting = asyncio.create_task(self._find_models(), name="connect")

    async def _find_models(self) -> None:
        began = self._clock()
        try:
            await self._open()
            assert self._client is not None  # noqa: S101 - that is what opening does
            async with asyncio.timeout(MODELS_SECONDS):
                self._found = await find_models(self._client, self.address.model)
            if self.address.kind:
                self._found = self._found._replace(kind=kind_of(NAMES[self.address.kind]))
            model = self._choose()
        except TimeoutError:
            hint = f"Is {self.address.url} right? F12 asks again."
            self._fail(PagedChatError(f"{self._told.name} has not answered for {MODELS_SECONDS:.0f} s.", hint))
        except Exception as error:  # as above: whatever a server can cause
            self._fail(self._told.error(error))
        else:
            if model:
                self._be_ready(model, self._clock() - began)

    async def _open(self) -> None:
        key = self.address.key()
        self._told = Told(self.address, key)
        if self._client is not None:
            await self._client.close()
        self._client = await asyncio.to_thread(open_client, self.address, key)
        if self.address.sends_key_in_the_clear:
            self._emit(EngineNotice(
                f"The key of {self._told.name} goes over http, where others on the way can read it.", failed=True
            ))  # fmt: skip

    def _choose(self) -> str:
        """The model to go on with; empty where the user has to choose.

        Raises:
            PagedChatError: there is none, or not the one that was named.
        """
        names = list(self._found.contexts)
        if self.address.model:
            check_model(self.address.name, names, self.address.model)
            return self.address.model
        if not names:
            raise PagedChatError(
                f"{self._told.name} lists no model.", "Name one behind its address: --server URL#MODEL."
            )
        if len(names) == 1:
            return names[0]
        self._emit(ServerModels(self._told.name, names))
        return ""

    def _be_ready(self, model: str, seconds: float) -> None:
        self._model = model
        kind, contexts = self._found
        info = ServerInfo(self.address.name, self.address.url, kind.name, tuple(contexts), kind.continues)
        self._emit(EngineReady(
            model=model, architecture="", num_parameters=0, dtype="", device="", num_layers=0, num_kv_heads=0,
            head_dim=0, vocab_size=0, max_model_len=contexts.get(model, 0), block_size=0, num_blocks=0,
            num_host_blocks=0, block_bytes=0, chat_template="model", sampling_defaults={}, load_seconds=seconds,
            server=info,
        ))  # fmt: skip
        if self._looking is None:
            self._looking = asyncio.create_task(self._look(), name="silence")
        self._observe()
        while self._waiting:
            self._begin(self._waiting.popleft())

    def _observe(self) -> None:
        assert self._client is not None  # noqa: S101 - there is one when it is ready
        self._observing = Observing(self._client, self.address.figures_url, self._told, self._emit, self._is_busy)
        self._observing.begin()

    def _is_busy(self) -> bool:
        return any(not asking.is_over for asking in self._askings.values())

    def _fail(self, error: PagedChatError) -> None:
        self._failed, self._model = True, ""
        self._emit(EngineFailed(error.message, error.hint))
        self._fail_all(error)

    def _fail_all(self, error: PagedChatError) -> None:
        for asking in self._askings.values():
            asking.fail(error)
        while self._waiting:
            command = self._waiting.popleft()
            self._emit(RequestFailed(_asker(command), command.request_id, error.message, error.hint))

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for asking in list(self._askings.values()):
                asking.look()

    # --- commands -----------------------------------------------------------------------------------

    def send(self, command: AnyCommand) -> None:
        """Queue a command. Prompts wait until there is a model; after a failure they have the server asked anew."""
        match command:
            case Generate() | Fork() if not self._model:
                self._waiting.append(command)
                if self._failed and not self._closing:
                    self._connect()
            case Generate() | Fork():
                self._begin(command)
            case Stop(session_id) | Close(session_id):
                self._leave(session_id, told=isinstance(command, Stop))
            case Focus():
                pass  # it has others to serve as well
            case _:
                name = type(command).__name__
                self._emit(EngineNotice(f"{self._told.name} is a server and knows no {name}.", failed=True))

    def _leave(self, session_id: int, *, told: bool) -> None:
        self._waiting = deque(command for command in self._waiting if _asker(command) != session_id)
        asking = self._askings.get(session_id)
        if asking is not None and told:
            asking.stop()
        elif asking is not None:
            asking.drop()
            del self._askings[session_id], self._asked[session_id]

    def _begin(self, command: Generate | Fork) -> None:
        if isinstance(command, Fork):
            self._fork(command)
        else:
            self._ask(command)

    def _ask(self, command: Generate, before: str = "") -> None:
        if command.session_id in self._askings:
            self._askings[command.session_id].drop()
        request = asked(command, self._model, self._found.kind, self._seed)
        self._tell_left_out(request.left_out)
        if _goes_on(command) and not request.continues:
            self._emit(RequestFailed(
                command.session_id, command.request_id,
                f"{self._told.name} is not known to go on in the middle of a reply.", "^G asks the prompt again.",
            ))  # fmt: skip
            return
        if command.begun or command.beam_width:
            what = "searches no beams" if command.beam_width else "puts no tokens into a reply"
            self._emit(RequestFailed(
                command.session_id, command.request_id, f"{self._told.name} is a server and {what}.",
                "An engine here does (/move).",
            ))  # fmt: skip
            return
        assert self._client is not None  # noqa: S101 - there is one where there is a model
        asking = Asking(
            (command.session_id, command.request_id), request, self._client, self._told, self._emit,
            self.address.timeout, before, self._clock,
        )  # fmt: skip
        self._askings[command.session_id], self._asked[command.session_id] = asking, command
        asking.begin()

    def _tell_left_out(self, fields: list[str]) -> None:
        """Once of each."""
        new = [field for field in fields if field not in self._left_out]
        self._left_out.update(new)
        if new:
            one = len(new) == 1
            self._emit(EngineNotice(
                f"{', '.join(new)} {'is' if one else 'are'} not sent: {self._told.name} is not known to take "
                f"{'it' if one else 'them'}.", failed=True,
            ))  # fmt: skip

    def _fork(self, fork: Fork) -> None:
        """Go on in a second request from where the source's reply is; of one that is over its reply is told."""
        source, command = self._askings.get(fork.session_id), self._asked.get(fork.session_id)
        ids = fork.new_session_id, fork.request_id
        if source is None or command is None:
            self._emit(RequestFinished(*ids, "abort", 0, 0, 0, 0.0, 0.0))
        elif source.is_over:
            self._tell_story(ids, source)
        else:
            continues = command.raw or self._found.kind.continues
            before = source.text if continues else ""
            turns = [*command.turns, Turn("assistant", before)] if before else command.turns
            child = {"session_id": ids[0], "request_id": ids[1], "turns": _joined(turns)}
            overrides = msgspec.structs.replace(command.overrides, seed=None)
            self._ask(msgspec.structs.replace(command, **child, overrides=overrides), before)

    def _tell_story(self, ids: tuple[int, int], source: Asking) -> None:
        end = source.finished
        self._emit(RequestStarted(*ids, 0, 0))
        if source.text:
            self._emit(TextDelta(*ids, source.text, end.num_tokens if end is not None else 0))
        if end is not None:
            changed: dict[str, Any] = {"session_id": ids[0], "request_id": ids[1]}
            self._emit(msgspec.structs.replace(end, **changed))
        else:
            self._emit(RequestFailed(*ids, "The reply that was forked had failed.", "^G asks again."))

    # --- events -------------------------------------------------------------------------------------

    def _emit(self, event: EngineEvent) -> None:
        if not self._closing:
            self._events.put(event)

    async def events(self) -> AsyncIterator[EngineEvent]:
        """All events, in order, for one listener; ends after `close`."""
        while (event := await self._events.get()) is not None:
            yield event

    async def close(self) -> None:
        """End all requests and leave the server."""
        self._closing = True
        for asking in self._askings.values():
            asking.drop()
        tasks = [task for task in (self._connecting, self._looking) if task is not None]
        if self._observing is not None:
            self._observing.stop()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, *(asking.gone() for asking in self._askings.values()), return_exceptions=True)
        if self._client is not None:
            await self._client.close()
        self._events.put(None)


def _asker(command: Generate | Fork) -> int:
    """The session that waits for the reply."""
    return command.session_id if isinstance(command, Generate) else command.new_session_id


def _goes_on(command: Generate) -> bool:
    return bool(command.turns) and command.turns[-1].role == "assistant"


def _joined(turns: list[Turn]) -> list[Turn]:
    """A reply that was gone on with, and what came then, are one turn."""
    *others, last = turns
    if others and others[-1].role == last.role == "assistant":
        return [*others[:-1], Turn("assistant", others[-1].text + last.text)]
    return turns
