"""The engine for programs that do many things at once: a model in a process of its own, asked from asyncio.

>>> from pagedchat import AsyncLLM, SamplingParams
>>> async with AsyncLLM("facebook/opt-125m") as llm:
...     async for output in llm.generate("The sea is", SamplingParams(max_tokens=8)):
...         print(output.outputs[0].text)

The names are those of vLLM's `AsyncLLM`. Knows commands and events, and loads no torch: what runs the model is
behind an `EngineLink`.
"""

import asyncio
import copy
import itertools
import logging
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from types import TracebackType
from typing import Any, Self, Unpack

from pagedchat.api.ending import closed
from pagedchat.api.keywords import EngineKeywords, engine_config
from pagedchat.api.output_stream import OutputStream
from pagedchat.bounds import INT32_MAX, Whole, check_flag, refused
from pagedchat.chat.template import ChatPrompt
from pagedchat.config import DEFAULT_MODEL
from pagedchat.engine.sampling_params import RequestOutputKind, SamplingParams
from pagedchat.errors import (
    EngineDeadError,
    EngineStateError,
    InvalidValueError,
    PagedChatError,
    RequestError,
    first_line,
)
from pagedchat.events import (
    Detokenized,
    EngineDied,
    EngineEvent,
    EngineFailed,
    EngineNotice,
    EngineReady,
    IntegrityBroken,
    RefusalKind,
    RequestOutputs,
    RequestRefused,
    Tokenized,
)
from pagedchat.outputs import RequestOutput
from pagedchat.requests.conversations import Message, chat_prompt
from pagedchat.requests.prompts import Prompt, checked_prompt, prompt_text
from pagedchat.service.client import EngineClient
from pagedchat.service.commands import AbortRequests, AddRequest, Detokenize, EngineLink, Tokenize
from pagedchat.vllm_keywords import CALL_KEYWORDS, check_keywords

log = logging.getLogger(__name__)

_READER_TIMEOUT = 3.0
"""Seconds for a link's last events, once it is closed."""
_KINDS: dict[RefusalKind, type[PagedChatError]] = {
    "value": InvalidValueError, "request": RequestError, "engine": EngineDeadError,
}  # fmt: skip


class AsyncLLM:
    """One model in an engine process, for one event loop.

    Requests run side by side in one batch. One that nobody reads holds up no other; one whose iterator is left, by
    `break`, by cancelling the task or by letting go of it, is aborted and gives its blocks back. A process that
    ends is started again: the requests that it had raise `EngineDeadError`, and new ones wait for the next one.

    Args:
        model: as for `LLM`; the model in the box by default.
        link: an engine that is there already, or is to be started over it, in the stead of one of its own. It
            belongs to this object from now on, and is closed with it.
        keywords: as for `LLM`.

    Raises:
        InvalidValueError: an argument outside what it may be, or a link beside a model or keywords.
    """

    def __init__(
        self,
        model: str | None = None,
        *,
        link: EngineLink | None = None,
        **keywords: Unpack[EngineKeywords],
    ) -> None:
        if link is not None and (model is not None or keywords):
            name = "model" if model is not None else next(iter(keywords))
            raise InvalidValueError(f"{name} is given beside link.", "The engine behind a link has a model.")
        if link is None:
            config = engine_config("AsyncLLM()", DEFAULT_MODEL if model is None else model, keywords)
            link = EngineClient(config, follows_steps=False)
        self._link: EngineLink = link
        self._info: EngineReady | None = None
        self._reader: asyncio.Task[None] | None = None
        self._numbers = itertools.count(1)
        self._streams: dict[int, OutputStream] = {}
        """Requests that somebody reads, by their numbers on the link."""
        self._names: dict[str, int] = {}
        """Their ids -> their numbers."""
        self._answers: dict[int, asyncio.Future[Any]] = {}
        """Questions with a single answer, by their numbers."""
        self._starts: set[asyncio.Future[None]] = set()
        """Who waits for the engine to be ready."""
        self._is_ready = self._is_closed = False
        self._failure: PagedChatError | None = None
        """Why there is no engine, nor will be one until somebody starts it."""
        self._is_broken = False
        """Whether there is one all the same, which cannot be trusted."""

    # --- the engine ---------------------------------------------------------------------------------

    async def start(self) -> None:
        """Start the engine, unless it runs, and wait until it is ready. After a failure it is tried again.

        Raises:
            EngineDeadError: it cannot start; in the engine's own words.
            EngineStateError: it was closed.
        """
        self._begin()
        if self._is_ready:
            return
        begin = self._link.restart if self._is_broken else self._link.start
        self._failure, self._is_broken = None, False
        waiter: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._starts.add(waiter)
        try:
            await begin()
            await waiter
        finally:
            self._starts.discard(waiter)

    async def close(self) -> None:
        """End the engine and all requests; every later call but this one is refused."""
        if self._is_closed:
            return
        self._is_closed, self._is_ready = True, False
        self._end_all(closed)
        await self._link.close()
        if self._reader is not None:  # its events end now, and so does it
            await asyncio.wait({self._reader}, timeout=_READER_TIMEOUT)
            self._reader.cancel()
            await asyncio.wait({self._reader})

    shutdown = close
    """vLLM's name for it."""

    async def __aenter__(self) -> Self:
        try:
            await self.start()
        except BaseException:
            await self.close()
            raise
        return self

    async def __aexit__(
        self, _: type[BaseException] | None, __: BaseException | None, ___: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def info(self) -> EngineReady:
        """What was found out while loading: shapes, device, size of the pool.

        Raises:
            EngineStateError: it was never ready.
        """
        if self._info is None:
            raise EngineStateError("The engine is not ready yet.", "Await start() before.")
        return self._info

    @property
    def is_running(self) -> bool:
        """Whether the engine takes requests now."""
        return self._is_ready

    @property
    def dead_error(self) -> PagedChatError | None:
        """Why there is no engine, nor will be one until `start` is called; None while there is one, or may be."""
        return self._failure

    async def check_health(self) -> None:
        """Whether requests are answered, now or once the engine is ready.

        Raises:
            EngineDeadError: there is no engine, nor will be one until `start` is called.
            EngineStateError: it was closed.
        """
        if self._is_closed:
            raise closed()
        if self._failure is not None:
            raise self._failure

    # --- requests -----------------------------------------------------------------------------------

    def generate(
        self,
        prompt: Prompt,
        sampling_params: SamplingParams | None = None,
        request_id: str | None = None,
        **others: object,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Complete a prompt, told as it comes; the last output is `finished`.

        Args:
            prompt: a string, `{"prompt": str}` or `{"prompt_token_ids": list[int]}`.
            sampling_params: the model's own by default. Its `output_kind` says what each output holds.
            request_id: names the request in its outputs, and for `abort`; a number by default.
            others: keywords of vLLM's that have no meaning here; see `vllm_keywords`.

        Nothing is asked before the first output is. The iterator raises InvalidValueError and RequestError as
        `LLMEngine.add_request` does, EngineDeadError where the engine ended meanwhile or cannot be started, and
        EngineStateError where this object is closed.
        """
        params = copy.copy(sampling_params)  # it may be changed before the first output is asked for

        def checked() -> str | list[int]:
            check_keywords("generate()", others, CALL_KEYWORDS)
            return checked_prompt(prompt)

        return self._outputs(checked, prompt_text(prompt), params, request_id)

    def chat(
        self,
        messages: Sequence[Message],
        sampling_params: SamplingParams | None = None,
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        chat_template: str | None = None,
        chat_template_kwargs: Mapping[str, Any] | None = None,
        add_generation_prompt: bool = True,
        continue_final_message: bool = False,
        request_id: str | None = None,
        **others: object,
    ) -> AsyncGenerator[RequestOutput, None]:
        """Answer a conversation, written as the model's chat template wants it; see `LLM.chat` and `generate`."""

        def prompt() -> ChatPrompt:
            check_keywords("chat()", others, CALL_KEYWORDS)
            return chat_prompt(
                messages,
                tools=tools,
                chat_template=chat_template,
                chat_template_kwargs=chat_template_kwargs,
                add_generation_prompt=add_generation_prompt,
                continue_final_message=continue_final_message,
            )

        return self._outputs(prompt, None, copy.copy(sampling_params), request_id)

    async def abort(self, request_id: str | Iterable[str]) -> None:
        """End one or several requests now; those who read them get one last output, whose replies have the finish
        reason "abort". Ids that are unknown, or whose requests are finished, are passed over."""
        names = [request_id] if isinstance(request_id, str) else list(request_id)
        numbers = [self._names[name] for name in names if name in self._names]
        for number in numbers:
            self._streams[number].abort()
        if numbers:
            self._link.send(AbortRequests(numbers))

    async def tokenize(
        self, prompt: str | Sequence[Message], add_special_tokens: bool = True, **chat_options: Any
    ) -> list[int]:
        """The tokens of a text, or of a conversation as the model's chat template writes it.

        Args:
            prompt: the text, or the messages.
            add_special_tokens: whether those are put around a text that the tokenizer puts there; a template brings
                its own.
            chat_options: of a conversation, as for `chat`.

        Raises:
            InvalidValueError, RequestError, EngineDeadError, EngineStateError: as for `generate` and `chat`.
        """
        check_flag("add_special_tokens", add_special_tokens)
        asked = prompt if isinstance(prompt, str) else chat_prompt(prompt, **chat_options)
        answer: Tokenized = await self._answer(lambda number: Tokenize(number, asked, add_special_tokens))
        return answer.token_ids

    async def detokenize(self, token_ids: Sequence[int]) -> str:
        """The text of tokens, special ones included.

        Raises:
            InvalidValueError, RequestError, EngineDeadError, EngineStateError: as for `generate`.
        """
        checked = Whole(0, INT32_MAX).check_all("token_ids", token_ids)
        answer: Detokenized = await self._answer(lambda number: Detokenize(number, checked))
        return answer.text

    # --- inside -------------------------------------------------------------------------------------

    async def _outputs(
        self,
        checked: Callable[[], str | list[int] | ChatPrompt],
        text: str | None,
        params: SamplingParams | None,
        request_id: str | None,
    ) -> AsyncGenerator[RequestOutput, None]:
        prompt = checked()
        if not isinstance(params, SamplingParams | None):
            raise refused("sampling_params", params, "SamplingParams")
        await self._usable()
        kind = RequestOutputKind.CUMULATIVE if params is None else params.output_kind
        number = next(self._numbers)
        stream = OutputStream(self._new_name(request_id, number), text, kind)
        self._streams[number], self._names[stream.request_id] = stream, number
        try:
            self._link.send(AddRequest(number, prompt, params))
            output = None
            while output is None or not output.finished:
                output = await stream.next()
                yield output
        finally:
            del self._streams[number], self._names[stream.request_id]
            if not stream.is_over:
                self._link.send(AbortRequests([number]))

    def _new_name(self, request_id: str | None, number: int) -> str:
        if request_id is None:
            return str(number)
        if not isinstance(request_id, str):
            raise refused("request_id", request_id, "a string")
        if request_id in self._names:
            raise InvalidValueError(
                f"There is an unfinished request {request_id!r} already.", "Give every request an id of its own."
            )
        return request_id

    async def _answer(self, command: Callable[[int], Tokenize | Detokenize]) -> Any:
        await self._usable()
        number = next(self._numbers)
        self._answers[number] = asyncio.get_running_loop().create_future()
        try:
            self._link.send(command(number))
            return await self._answers[number]
        finally:
            del self._answers[number]

    async def _usable(self) -> None:
        """Requests may be sent: those for an engine that is on its way wait for it."""
        await self.check_health()
        if self._reader is None:
            await self.start()

    # --- what comes back ----------------------------------------------------------------------------

    def _begin(self) -> None:
        """Listen to the link."""
        if self._is_closed:
            raise closed()
        if self._reader is None:
            self._reader = asyncio.get_running_loop().create_task(self._read(), name="engine outputs")

    async def _read(self) -> None:
        why = "it was closed"
        try:
            async for event in self._link.events():
                self._take(event)
        except Exception as error:
            log.exception("The engine's words could not be followed.")
            why = first_line(error)
        finally:
            self._give_up(EngineDeadError(f"The connection to the engine ended: {why}.", "Make another AsyncLLM."))

    def _take(self, event: EngineEvent) -> None:
        match event:
            case RequestOutputs(request_ids, outputs):
                for number, output in zip(request_ids, outputs, strict=True):
                    if number in self._streams:
                        self._streams[number].put(output)
            case RequestRefused(number, message, hint, kind):
                self._fail(number, _KINDS[kind](message, hint))
            case Tokenized(number) | Detokenized(number):
                self._settle(number, lambda answer: answer.set_result(event))
            case EngineReady():
                self._info, self._is_ready, self._failure = event, True, None
                for waiter in self._starts:
                    _unless_done(waiter, lambda waiter: waiter.set_result(None))
            case EngineNotice(message, hint, failed=True):
                log.warning("%s", f"{message} {hint}".strip())
            case EngineFailed(message, hint):
                self._give_up(EngineDeadError(message, hint))
            case EngineDied():
                self._lose_engine(event)
            case IntegrityBroken():
                self._is_broken = True
                self._give_up(_broken(event))

    def _fail(self, number: int, error: PagedChatError) -> None:
        if number in self._streams:
            self._streams[number].fail(error)
        self._settle(number, lambda answer: answer.set_exception(error))

    def _settle(self, number: int, settle: Callable[["asyncio.Future[Any]"], None]) -> None:
        if number in self._answers:
            _unless_done(self._answers[number], settle)

    def _lose_engine(self, event: EngineDied) -> None:
        """All requests are lost; new ones wait for the next engine, if there is to be one."""
        self._is_ready = False
        error = _died(event)
        numbers = [number for number, stream in self._streams.items() if not stream.is_over]
        if event.restarting:
            self._end_requests(lambda: _died(event))
        else:
            self._give_up(error)
        if numbers:
            self._link.send(AbortRequests(numbers))  # of those that the link keeps for the next engine

    def _give_up(self, error: PagedChatError) -> None:
        """There is no engine any more."""
        self._failure, self._is_ready = error, False
        self._end_all(lambda: type(error)(error.message, error.hint))

    def _end_all(self, error: Callable[[], PagedChatError]) -> None:
        self._end_requests(error)
        for waiter in self._starts:
            _unless_done(waiter, lambda waiter: waiter.set_exception(error()))

    def _end_requests(self, error: Callable[[], PagedChatError]) -> None:
        for stream in self._streams.values():
            stream.fail(error())
        for answer in self._answers.values():
            _unless_done(answer, lambda answer: answer.set_exception(error()))


def _unless_done(future: "asyncio.Future[Any]", settle: Callable[["asyncio.Future[Any]"], None]) -> None:
    """Whoever waited may have been cancelled."""
    if not future.done():
        settle(future)


def _broken(event: IntegrityBroken) -> EngineDeadError:
    dump = f" with {event.dump}" if event.dump else ""
    return EngineDeadError(
        f"The engine's books disagree: {event.message}. This is a defect of pagedchat, and no reply of this engine "
        "can be trusted any more.",
        f"Call start() for another one, and please report it{dump}.",
    )


def _died(event: EngineDied) -> EngineDeadError:
    code = event.exit_code
    how = "" if code is None else f" (signal {-code})" if code < 0 else f" (exit code {code})"
    log = f" The engine's log is {event.log_file}." if event.log_file else ""
    if event.next_model:
        return EngineDeadError(f"The engine makes room for {event.next_model}.", "Ask again: it is being started.")
    if event.restarting:
        return EngineDeadError(f"The engine process ended{how}.", f"Ask again: it is being started anew.{log}")
    return EngineDeadError(
        f"The engine process ended{how}, again and again.", f"Call start() to try once more.{log}"
    )
