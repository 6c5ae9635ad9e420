"""One request of the library: what was asked, what has come back, and how much of that was told."""

from dataclasses import dataclass

from pagedchat.api.logprobs import ToldLogprobs
from pagedchat.api.outputs import CompletionOutput, RequestOutput
from pagedchat.chat.replies import Reply
from pagedchat.engine.sampling_params import RequestOutputKind


@dataclass(slots=True, kw_only=True)
class Request:
    """What was asked, what has come back, and how much of that was told."""

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    output_kind: RequestOutputKind
    reply: Reply
    told: ToldLogprobs
    num_told: int = 0
    """Tokens that an output has had already."""
    num_told_characters: int = 0

    @property
    def has_news(self) -> bool:
        """Whether there are tokens that no output has had; a piece of a long prompt brings none."""
        return self.reply.num_tokens > self.num_told

    def output(self) -> RequestOutput:
        """What is to be told now; it counts as told from then on."""
        reply = self.reply
        token_ids, text = reply.token_ids, reply.text
        logprobs, cumulative = self.told.generated()
        first_token, first_character = self.num_told, self.num_told_characters
        self.num_told, self.num_told_characters = len(token_ids), len(text)
        if self.output_kind is RequestOutputKind.DELTA:
            token_ids, text = token_ids[first_token:], text[first_character:]
            logprobs = logprobs and logprobs[first_token:]
        completion = CompletionOutput(
            index=0,
            text=text,
            token_ids=token_ids,
            finish_reason=reply.finish_reason,
            stop_reason=reply.stop_reason,
            cumulative_logprob=cumulative,
            logprobs=logprobs,
        )
        return RequestOutput(
            request_id=self.request_id,
            prompt=self.prompt,
            prompt_token_ids=self.prompt_token_ids,
            outputs=[completion],
            num_cached_tokens=0 if reply.finish_reason is None else reply.sequence.num_cached_tokens,
            prompt_logprobs=self.told.prompt(),
        )
