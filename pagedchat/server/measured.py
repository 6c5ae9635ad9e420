"""An engine whose requests are timed on their way, for the metrics. Everything else is passed on as it is."""

import itertools
import math
import time
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any

from pagedchat.cache_events import FinishReason
from pagedchat.engine.sampling_params import RequestOutputKind, SamplingParams
from pagedchat.events import EngineEvent, RequestFinished, RequestStarted
from pagedchat.server.engine import Engine

if TYPE_CHECKING:
    from pagedchat.outputs import RequestOutput

Observer = Callable[[EngineEvent], None]


class MeasuredEngine:
    """Implements `Engine`.

    Args:
        engine: that does the work.
        observer: hears of each request's first output and of each reply's end, as of those of a chat.
    """

    def __init__(self, engine: Engine, observer: Observer) -> None:
        self._engine = engine
        self._observer = observer
        self._numbers = itertools.count(1)

    def generate(
        self, prompt: Any, sampling_params: SamplingParams, request_id: str | None = None
    ) -> "AsyncGenerator[RequestOutput, None]":
        """See `Engine`."""
        return self._timed(self._engine.generate(prompt, sampling_params, request_id), sampling_params)

    def chat(
        self, messages: Sequence[Any], sampling_params: SamplingParams, **options: Any
    ) -> "AsyncGenerator[RequestOutput, None]":
        """See `Engine`."""
        return self._timed(self._engine.chat(messages, sampling_params, **options), sampling_params)

    async def tokenize(self, prompt: Any, add_special_tokens: bool = True) -> list[int]:
        """See `Engine`."""
        return await self._engine.tokenize(prompt, add_special_tokens)

    async def detokenize(self, token_ids: Sequence[int]) -> str:
        """See `Engine`."""
        return await self._engine.detokenize(token_ids)

    async def _timed(
        self, outputs: "AsyncGenerator[RequestOutput, None]", params: SamplingParams
    ) -> "AsyncGenerator[RequestOutput, None]":
        sees_first = params.output_kind is not RequestOutputKind.FINAL_ONLY
        times = _Times(next(self._numbers), sees_first)
        async with aclosing(outputs) as each:
            try:
                async for output in each:
                    if not times.first:
                        times.first = time.monotonic()
                        self._observer(times.begun(output))
                    for reply in output.outputs:
                        times.num_tokens[reply.index] = times.num_tokens.get(reply.index, 0) + len(reply.token_ids)
                        if reply.finish_reason is not None:
                            self._observer(times.ended(reply.index, reply.finish_reason, output.num_cached_tokens))
                    yield output
            finally:
                for index in list(times.num_tokens):
                    self._observer(times.ended(index, "abort", 0))


class _Times:
    """Of one request."""

    def __init__(self, number: int, sees_first: bool) -> None:
        self._number = number
        self._sees_first = sees_first
        self._asked = time.monotonic()
        self._num_prompt_tokens = 0
        self.first = 0.0
        """When its first output came; 0: not yet."""
        self.num_tokens: dict[int, int] = {}
        """Of each reply that has not ended."""

    def begun(self, output: "RequestOutput") -> RequestStarted:
        """The first output has come."""
        self._num_prompt_tokens = len(output.prompt_token_ids)
        return RequestStarted(0, self._number, self._num_prompt_tokens, 0)

    def ended(self, index: int, reason: FinishReason, num_cached: int) -> RequestFinished:
        """A reply has."""
        to_first = self.first - self._asked if self._sees_first else math.nan
        return RequestFinished(
            0, self._number, reason, self._num_prompt_tokens, num_cached, self.num_tokens.pop(index, 0),
            to_first, time.monotonic() - self._asked, num_cached,
        )  # fmt: skip
