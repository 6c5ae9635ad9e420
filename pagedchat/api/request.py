"""One request of the library: what was asked, what has come back, and how much of that was told."""

from dataclasses import dataclass, field, replace

import msgspec

from pagedchat.api.logprobs import ToldLogprobs
from pagedchat.api.outputs import CompletionOutput, RequestOutput
from pagedchat.chat.replies import Reply
from pagedchat.engine.sampling_params import RequestOutputKind, SamplingParams


@dataclass(slots=True)
class Answer:
    """One reply to a prompt, and how much of it was told."""

    reply: Reply
    told: ToldLogprobs
    num_told: int = 0
    """Tokens that an output has had already."""
    num_told_characters: int = 0

    @property
    def has_news(self) -> bool:
        """Whether there are tokens that no output has had; a piece of a long prompt brings none."""
        return self.reply.num_tokens > self.num_told

    def output(self, index: int, kind: RequestOutputKind) -> CompletionOutput:
        """What is to be told now; it counts as told from then on."""
        reply = self.reply
        token_ids, text = reply.token_ids, reply.text
        logprobs, cumulative = self.told.generated()
        first_token, first_character = self.num_told, self.num_told_characters
        self.num_told, self.num_told_characters = len(token_ids), len(text)
        if kind is RequestOutputKind.DELTA:
            token_ids, text = token_ids[first_token:], text[first_character:]
            logprobs = logprobs and logprobs[first_token:]
        return CompletionOutput(
            index=index,
            text=text,
            token_ids=token_ids,
            finish_reason=reply.finish_reason,
            stop_reason=reply.stop_reason,
            cumulative_logprob=cumulative,
            logprobs=logprobs,
        )


@dataclass(slots=True, kw_only=True, eq=False)
class Request:
    """What was asked, what has come back, and how much of that was told."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    output_kind: RequestOutputKind
    params: SamplingParams
    """As they were given."""
    answers: list[Answer] = field(default_factory=list)
    """One; of several the others come when the prompt is computed."""

    @property
    def first(self) -> Answer:
        """That of the sequence that computes the prompt."""
        return self.answers[0]

    @property
    def is_finished(self) -> bool:
        """Whether no reply is on its way."""
        return all(answer.reply.finish_reason is not None for answer in self.answers)

    @property
    def has_news(self) -> bool:
        """Whether there are tokens that no output has had."""
        return any(answer.has_news for answer in self.answers)

    def reply_of(self, seq_id: int) -> Reply:
        """That of one of its sequences."""
        return next(answer.reply for answer in self.answers if answer.reply.sequence.seq_id == seq_id)

    def output(self) -> RequestOutput:
        """What is to be told now; it counts as told from then on."""
        outputs = [answer.output(index, self.output_kind) for index, answer in enumerate(self.answers)]
        return RequestOutput(
            request_id=self.request_id,
            prompt=self.prompt,
            prompt_token_ids=self.prompt_token_ids,
            outputs=outputs if asked_of_engine(self.params) is self.params else _likeliest(outputs, self.params),
            num_cached_tokens=self.first.reply.sequence.num_cached_tokens if self.is_finished else 0,
            prompt_logprobs=self.first.told.prompt(),
        )


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
        best = [replace(output, logprobs=None) for output in best]
    return [replace(output, index=index) for index, output in enumerate(best)]
