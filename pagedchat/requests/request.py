"""One request of a program: what was asked, what has come back, and how much of that was told."""

from dataclasses import dataclass, field
from typing import Generic, TypeVar

import msgspec

from pagedchat.chat.replies import Reply
from pagedchat.engine.sampling_params import RequestOutputKind, SamplingParams
from pagedchat.outputs import CompletionOutput, RequestOutput, RequestStateStats
from pagedchat.requests.logprobs import ToldLogprobs

K = TypeVar("K", str, int)
"""What whoever asks calls a request."""


@dataclass(slots=True)
class Answer:
    """One reply to a prompt, and how much of it was told."""

    reply: Reply
    told: ToldLogprobs
    num_told: int = 0
    """Tokens that an output has had already."""
    num_told_characters: int = 0
    has_told_end: bool = False

    @property
    def has_tokens(self) -> bool:
        """Whether there are tokens that no output has had; a piece of a long prompt brings none."""
        return self.reply.num_tokens > self.num_told

    @property
    def has_news(self) -> bool:
        """Whether there is anything that no output has had."""
        return self.has_tokens or (self.reply.finish_reason is not None and not self.has_told_end)

    def output(self, index: int, kind: RequestOutputKind) -> CompletionOutput:
        """What is to be told now; it counts as told from then on."""
        reply, text, token_ids = self.reply, self.reply.text, self.reply.token_ids
        first_token = first_character = 0
        if kind is RequestOutputKind.DELTA:
            first_token, first_character = self.num_told, self.num_told_characters
        reason = reply.finish_reason
        self.num_told, self.num_told_characters, self.has_told_end = len(token_ids), len(text), reason is not None
        logprobs, cumulative = self.told.generated(first_token, self.num_told)
        return CompletionOutput(
            index=index,
            text=text[first_character:],
            token_ids=token_ids[first_token:],
            finish_reason=reason,
            stop_reason=None if reason is None else reply.stop_reason,
            cumulative_logprob=cumulative,
            logprobs=logprobs,
        )


@dataclass(slots=True, kw_only=True, eq=False)
class Request(Generic[K]):
    """What was asked, what has come back, and how much of that was told."""

    key: K
    prompt: str | None
    prompt_token_ids: list[int]
    output_kind: RequestOutputKind
    params: SamplingParams
    """As they were given."""
    answers: list[Answer] = field(default_factory=list)
    """One; of several the others come when the prompt is computed."""
    has_told_prompt: bool = False
    stats: RequestStateStats = field(default_factory=RequestStateStats)

    @property
    def first(self) -> Answer:
        """That of the sequence that computes the prompt."""
        return self.answers[0]

    @property
    def is_finished(self) -> bool:
        """Whether no reply is on its way."""
        return all(answer.reply.finish_reason is not None for answer in self.answers)

    def reply_of(self, seq_id: int) -> Reply:
        """That of one of its sequences."""
        return next(answer.reply for answer in self.answers if answer.reply.sequence.seq_id == seq_id)

    def output(self, now: float, *, repeats_prompt: bool = True) -> RequestOutput:
        """What is to be told now; it counts as told from then on.

        Args:
            now: by the clock of `stats`.
            repeats_prompt: whether outputs after the first one have the prompt's tokens, and those between the
                first one and the last `metrics`, too.
        """
        is_first, self.has_told_prompt = not self.has_told_prompt, True
        everything = self.output_kind is not RequestOutputKind.DELTA
        answers = enumerate(self.answers)
        outputs = [one.output(index, self.output_kind) for index, one in answers if everything or one.has_news]
        if self.params.best_of not in (None, self.params.n):
            outputs = _likeliest(outputs, self.params)
        is_finished = self.is_finished
        with_metrics = is_first or is_finished or repeats_prompt
        return RequestOutput(
            request_id=str(self.key),
            prompt=self.prompt,
            prompt_token_ids=self.prompt_token_ids if is_first or repeats_prompt else [],
            outputs=outputs,
            finished=is_finished,
            num_cached_tokens=self.first.reply.sequence.num_cached_tokens if is_finished else 0,
            prompt_logprobs=self.first.told.prompt() if is_first or everything else None,
            metrics=self._metrics(now) if with_metrics else None,
        )

    def _metrics(self, now: float) -> RequestStateStats:
        num_tokens = sum(answer.reply.num_tokens for answer in self.answers)
        return msgspec.structs.replace(self.stats, num_generation_tokens=num_tokens, last_token_ts=now)


def asked_of_engine(params: SamplingParams) -> SamplingParams:
    """With `best_of` the engine generates them all, and tells how likely they are; all are told at the end."""
    if params.best_of is None or params.best_of == params.n:
        return params
    logprobs = params.logprobs or 0
    final = RequestOutputKind.FINAL_ONLY
    return msgspec.structs.replace(params, n=params.best_of, best_of=None, logprobs=logprobs, output_kind=final)


def _likeliest(outputs: list[CompletionOutput], params: SamplingParams) -> list[CompletionOutput]:
    """Those that `best_of` leaves, the likeliest first; whatever an error ended comes last."""

    def key(output: CompletionOutput) -> tuple[bool, float]:
        return output.finish_reason == "error", -(output.cumulative_logprob or 0.0)

    best = sorted(outputs, key=key)[: params.n]
    if params.logprobs is None:
        best = [msgspec.structs.replace(output, logprobs=None) for output in best]
    return [msgspec.structs.replace(output, index=index) for index, output in enumerate(best)]
