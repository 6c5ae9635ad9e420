"""What comes back of a request, named as vLLM's users know it: for the library, and on its way between processes.

Plain structs (msgspec), compact on the wire. Knows neither the engine nor how they get where they are read.
"""

import msgspec

from pagedchat.cache_events import FinishReason


class Logprob(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """How likely one token was in one place, by the model's logits as they come: before penalties, temperature and
    any rule (vLLM's `raw_logprobs`)."""

    logprob: float
    """The natural logarithm of its probability."""
    rank: int
    """1: no token was likelier. Of equally likely ones those with lower ids come first."""
    decoded_token: str | None
    """Its text by itself; None where no tokenizer was loaded."""


PositionLogprobs = dict[int, Logprob]
"""By token id: the token that is there, and the most likely ones, as many as were asked for."""


class CompletionOutput(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """One reply to a prompt."""

    index: int
    """Place among the replies to the same prompt."""
    text: str
    """Without special tokens, and ending before a stop string; empty where no tokenizer was loaded."""
    token_ids: list[int]
    """All that was generated, the tokens that ended it included."""
    finish_reason: FinishReason | None
    """"stop": an end-of-sequence or stop token, or a stop string; "length": `max_tokens` or the context is full;
    "abort": somebody ended it; "error": an error of pagedchat's own ended this reply and no other, and the log has
    it; None: still on its way."""
    stop_reason: int | str | None = None
    """The stop string, or the token of `SamplingParams.stop_token_ids`, that ended it; None for anything else."""
    cumulative_logprob: float | None = None
    """The sum of the logarithms of its tokens' probabilities, as `logprobs` has them; None without."""
    logprobs: list[PositionLogprobs] | None = None
    """For each of `token_ids` how likely it was, and the most likely tokens in its place; None where
    `SamplingParams.logprobs` did not ask for it."""


class RequestStateStats(msgspec.Struct, array_like=True, kw_only=True):
    """When a request came how far, named as in vLLM. Times of day are seconds since 1970; those named `_ts` are
    seconds of a clock that never goes back, of which only differences say something; 0: not yet."""

    num_generation_tokens: int = 0
    """Of all replies."""
    arrival_time: float = 0.0
    """When the engine was asked, its prompt being tokens by then; a time of day."""
    queued_ts: float = 0.0
    """The same moment."""
    scheduled_ts: float = 0.0
    """When the first step began that it was part of."""
    first_token_ts: float = 0.0
    """When the first token was there."""
    last_token_ts: float = 0.0
    """When the last of the tokens told was there, or the request had ended."""
    first_token_latency: float = 0.0
    """Seconds from its arrival to the first token."""

    @property
    def first_scheduled_time(self) -> float | None:
        """`scheduled_ts` as a time of day."""
        return self._time_of_day(self.scheduled_ts)

    @property
    def time_in_queue(self) -> float | None:
        """Seconds that it has waited for its first step."""
        return self.scheduled_ts - self.queued_ts if self.scheduled_ts else None

    @property
    def first_token_time(self) -> float | None:
        """`first_token_ts` as a time of day."""
        return self._time_of_day(self.first_token_ts)

    @property
    def last_token_time(self) -> float | None:
        """`last_token_ts` as a time of day: of a request that is finished, when it was."""
        return self._time_of_day(self.last_token_ts)

    def _time_of_day(self, moment: float) -> float | None:
        return self.arrival_time + moment - self.queued_ts if moment else None


class RequestOutput(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """One prompt with its replies.

    With `RequestOutputKind.DELTA` texts, tokens and logprobs are those since the output before, `outputs` has only
    replies of which there is something new, and `prompt_logprobs` come with the first output alone.
    """

    request_id: str
    prompt: str | None
    """The text given; None where token ids were given."""
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    finished: bool
    """Whether every reply is complete."""
    num_cached_tokens: int
    """Prompt tokens found in the prefix cache; known when the request is finished."""
    prompt_logprobs: list[PositionLogprobs | None] | None = None
    """The same for the prompt's tokens, None for the first one. None where `SamplingParams.prompt_logprobs` did not
    ask for it."""
    metrics: RequestStateStats | None = None
    """When it came how far. None in outputs of requests that no engine of ours has answered."""


class BeamSearchSequence(msgspec.Struct, frozen=True, kw_only=True):
    """One hypothesis of a beam search."""

    tokens: list[int]
    """The prompt's and those found, an end-of-sequence token included."""
    cum_logprob: float
    """Sum of the log-probabilities of the tokens found."""
    text: str
    """What all the tokens stand for, special tokens too; empty where no tokenizer was loaded."""
    finish_reason: FinishReason
    """"stop": an end-of-sequence token; "length": `max_tokens`; "error": an error of pagedchat's own broke the
    search off, and the log has it."""


class BeamSearchOutput(msgspec.Struct, frozen=True, kw_only=True):
    """What a beam search has found."""

    sequences: list[BeamSearchSequence]
    """The best first."""
