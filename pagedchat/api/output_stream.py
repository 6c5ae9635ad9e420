"""The outputs of one request on their way to whoever reads them: deltas in, outputs of the wanted kind out.

Who does not read holds nobody up: what comes meanwhile is joined, and the next output has all of it. Knows neither
engine nor link.
"""

import asyncio
from dataclasses import dataclass, field

import msgspec

from pagedchat.cache_events import FinishReason
from pagedchat.engine.sampling_params import RequestOutputKind
from pagedchat.outputs import CompletionOutput, PositionLogprobs, RequestOutput, RequestStateStats


@dataclass(slots=True)
class _Answer:
    """One reply, as far as it is to be told: with deltas, what came since the output before."""

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    logprobs: list[PositionLogprobs] | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | None = None
    cumulative_logprob: float | None = None
    has_news: bool = False

    def add(self, delta: CompletionOutput) -> None:
        self.text += delta.text
        self.token_ids += delta.token_ids
        if delta.logprobs is not None:
            self.logprobs = self.logprobs or []
            self.logprobs += delta.logprobs
        self.finish_reason, self.stop_reason = delta.finish_reason, delta.stop_reason
        self.cumulative_logprob = delta.cumulative_logprob
        self.has_news = True

    def output(self, *, is_delta: bool) -> CompletionOutput:
        """What is to be told now."""
        output = CompletionOutput(
            index=self.index,
            text=self.text,
            token_ids=self.token_ids.copy(),
            finish_reason=self.finish_reason,
            stop_reason=self.stop_reason,
            cumulative_logprob=self.cumulative_logprob,
            logprobs=None if self.logprobs is None else self.logprobs.copy(),
        )
        self.has_news = False
        if is_delta:
            self.text, self.token_ids = "", []
            self.logprobs = None if self.logprobs is None else []
        return output


class OutputStream:
    """The outputs of one request.

    Args:
        request_id: in the outputs.
        prompt: its text, where it was given as text.
        kind: what an output holds.
    """

    def __init__(self, request_id: str, prompt: str | None, kind: RequestOutputKind) -> None:
        self.request_id = request_id
        self.is_over = False
        """Whether the engine has nothing more for it."""
        self._prompt = prompt
        self._is_delta = kind is RequestOutputKind.DELTA
        self._only_last = kind is RequestOutputKind.FINAL_ONLY
        self._answers: dict[int, _Answer] = {}
        self._prompt_token_ids: list[int] = []
        self._prompt_logprobs: list[PositionLogprobs | None] | None = None
        self._num_cached_tokens = 0
        self._num_tokens = 0
        self._metrics: RequestStateStats | None = None
        self._error: Exception | None = None
        self._news = asyncio.Event()

    def put(self, delta: RequestOutput) -> None:
        """The engine has more."""
        if self.is_over:
            return
        for one in delta.outputs:
            self._answers.setdefault(one.index, _Answer(one.index)).add(one)
        if delta.prompt_token_ids:
            self._prompt_token_ids = delta.prompt_token_ids
        if delta.prompt_logprobs is not None:
            self._prompt_logprobs = delta.prompt_logprobs
        self._num_cached_tokens = delta.num_cached_tokens
        self._num_tokens += sum(len(one.token_ids) for one in delta.outputs)
        self._metrics = delta.metrics or self._metrics
        self.is_over = delta.finished
        if self.is_over or not self._only_last:
            self._news.set()

    def fail(self, error: Exception) -> None:
        """There is nothing more; an output that waits to be read still is."""
        if not self.is_over:
            self.is_over, self._error = True, error
            self._news.set()

    def abort(self) -> None:
        """Somebody wants no more of it: one last output says so."""
        if self.is_over:
            return
        self.is_over = True
        for answer in self._answers.values() or [self._answers.setdefault(0, _Answer(0))]:
            if answer.finish_reason is None:
                answer.finish_reason, answer.has_news = "abort", True
        self._news.set()

    async def next(self) -> RequestOutput:
        """The next output, as soon as there is one.

        Raises:
            PagedChatError: what `fail` was given.
        """
        await self._news.wait()
        self._news.clear()
        if self._error is not None:
            raise self._error
        answers = sorted(self._answers.values(), key=lambda answer: answer.index)
        prompt_logprobs = self._prompt_logprobs
        if self._is_delta:
            answers = [answer for answer in answers if answer.has_news]
            self._prompt_logprobs = None
        return RequestOutput(
            request_id=self.request_id,
            prompt=self._prompt,
            prompt_token_ids=self._prompt_token_ids,
            outputs=[answer.output(is_delta=self._is_delta) for answer in answers],
            finished=self.is_over,
            num_cached_tokens=self._num_cached_tokens,
            prompt_logprobs=prompt_logprobs,
            metrics=self._stats(),
        )

    def _stats(self) -> RequestStateStats | None:
        """As they were told last: with the first output and the last, between which there are more tokens."""
        if self._metrics is None:
            return None
        return msgspec.structs.replace(self._metrics, num_generation_tokens=self._num_tokens)
