"""What the terminal's side gets: chats as text through an engine process, beside token ids in one process.

Both are asked the same way: as many prompts, as many new tokens, greedily, without the repetition penalty that
chats with a base model have by default. As text a prompt is a user's turn, and the reply has the stop strings of
the model's template, as in the terminal.
"""

import asyncio
import tempfile
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from types import TracebackType
from typing import Self

from pagedchat.api.llm import LLM
from pagedchat.bench.engine.engines import OurEngine
from pagedchat.bench.engine.measures import Figure, Meter
from pagedchat.bench.engine.workloads import DecodeWork, Prompts, Tokens
from pagedchat.chat.turns import Turn
from pagedchat.config import EngineConfig
from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.errors import PagedChatError
from pagedchat.events import EngineDied, EngineEvent, EngineFailed, EngineReady, RequestFailed, RequestFinished
from pagedchat.service.client import EngineClient
from pagedchat.service.commands import Close, Generate

TEXT = "text at the client"
COUNTS = (1, 8, 64, 256)
WORKS = tuple(DecodeWork(num_chats=count, prompt_tokens=128, new_tokens=256) for count in COUNTS)
CPU_WORKS = tuple(DecodeWork(num_chats=count, prompt_tokens=16, new_tokens=48) for count in COUNTS)
"""Less, where a model takes its time."""

Say = Callable[[str], None]


SETTLE_SECONDS = 2.0


class ClientEngine:
    """An engine process behind `EngineClient`, as an engine that is measured; to be used in a `with`.

    Args:
        config: what it loads.
        entry: as for `EngineClient`.

    Raises:
        PagedChatError: it cannot be started, or dies.
    """

    name = TEXT

    def __init__(self, config: EngineConfig, entry: Sequence[str] | None = None) -> None:
        self._config, self._entry = config, entry
        self._num_sessions = 0

    def __enter__(self) -> Self:
        with ExitStack() as resources:
            logs = resources.enter_context(tempfile.TemporaryDirectory(prefix="pagedchat-bench-"))
            self._runner = resources.enter_context(asyncio.Runner())
            self._client = EngineClient(self._config, Path(logs), self._entry)
            self._events = self._client.events()
            resources.callback(lambda: self._runner.run(self._client.close()))
            self._runner.run(self._start())
            self._resources = resources.pop_all()
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        self._resources.close()

    def generate(self, prompts: Tokens, new_tokens: int) -> Tokens:
        """See `Engine`. A prompt becomes a letter for each of its tokens; of replies only the lengths are true."""
        return self._runner.run(self._generate([_letters(prompt) for prompt in prompts], new_tokens))

    def settle(self) -> None:
        """See `Engine`: the process does it in its spare time, so it is given some."""
        self._runner.run(asyncio.sleep(SETTLE_SECONDS))

    async def _start(self) -> None:
        await self._client.start()
        while not isinstance(await self._next(), EngineReady):
            pass

    async def _generate(self, prompts: list[str], new_tokens: int) -> Tokens:
        first = self._num_sessions + 1
        sessions = range(first, first + len(prompts))
        self._num_sessions += len(prompts)
        overrides = SamplingOverrides(
            temperature=0.0, repetition_penalty=1.0, max_tokens=new_tokens, ignore_eos=True
        )
        for session_id, prompt in zip(sessions, prompts, strict=True):
            self._client.send(Generate(session_id, session_id, [Turn("user", prompt)], overrides))
        lengths: list[int] = []
        while len(lengths) < len(prompts):
            event = await self._next()
            if isinstance(event, RequestFinished):
                lengths.append(event.num_tokens)
        for session_id in sessions:
            self._client.send(Close(session_id))
        return [[0] * length for length in lengths]

    async def _next(self) -> EngineEvent:
        event = await anext(self._events)
        match event:
            case EngineFailed() | RequestFailed():
                raise PagedChatError(event.message, event.hint)
            case EngineDied():
                raise PagedChatError("The engine process died.", event.log_tail)
        return event


def measure_client(config: EngineConfig, repeats: int, say: Say, works: Collection[DecodeWork]) -> list[Figure]:
    """Decode as ids in this process, then as text through another one; never both at once.

    Args:
        config: of both engines.
        repeats: runs that count.
        say: told of progress.
        works: how many chats, prompts and replies of which length.

    Raises:
        PagedChatError: what the engine refuses, or the process dies.
    """
    ids = replace(config, model=replace(config.model, skip_tokenizer_init=True))
    llm = LLM.from_config(ids)
    vocab_size = llm.info.vocab_size
    try:
        figures = _measure(Meter(OurEngine(llm), Prompts(vocab_size), repeats), works, say)
    finally:
        llm.close()
    with ClientEngine(config) as engine:
        return figures + _measure(Meter(engine, Prompts(vocab_size), repeats), works, say)


def _measure(meter: Meter, works: Collection[DecodeWork], say: Say) -> list[Figure]:
    figures = []
    for work in works:
        figures += meter.decode(work)
        say(f"{meter.engine.name}: {', '.join(map(str, figures[-1:]))}")
    return figures


def _letters(prompt: list[int]) -> str:
    return "".join([chr(ord("a") + token_id % 26) for token_id in prompt])
