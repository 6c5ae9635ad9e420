"""What the offline API returns, named as vLLM's users know it."""

from dataclasses import dataclass

from pagedchat.api.logprobs import PositionLogprobs
from pagedchat.cache_events import FinishReason


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionOutput:
    """One reply to a prompt."""

    index: int
    """Place among the replies to the same prompt."""
    text: str
    """Without special tokens, and ending before a stop string; empty where no tokenizer was loaded."""
    token_ids: list[int]
    """All that was generated, the tokens that ended it included."""
    finish_reason: FinishReason | None
    """"stop": an end-of-sequence or stop token, or a stop string; "length": `max_tokens` or the context is full;
    "error": an error of pagedchat's own ended this reply and no other, and the log has it;
    None: still on its way."""
    stop_reason: int | str | None = None
    """The stop string, or the token of `SamplingParams.stop_token_ids`, that ended it; None for anything else."""
    cumulative_logprob: float | None = None
    """The sum of the logarithms of its tokens' probabilities, as `logprobs` has them; None without."""
    logprobs: list[PositionLogprobs] | None = None
    """For each of `token_ids` how likely it was, and the most likely tokens in its place; None where
    `SamplingParams.logprobs` did not ask for it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestOutput:
    """One prompt with its replies."""

    request_id: str
    prompt: str | None
    """The text given; None where token ids were given."""
    prompt_token_ids: list[int]
    outputs: list[CompletionOutput]
    num_cached_tokens: int
    """Prompt tokens found in the prefix cache; known when the request is finished."""
    prompt_logprobs: list[PositionLogprobs | None] | None = None
    """The same for the prompt's tokens, None for the first one; as far as they are computed by now. None where
    `SamplingParams.prompt_logprobs` did not ask for it."""

    @property
    def finished(self) -> bool:
        """Whether every reply is complete."""
        return all(output.finish_reason is not None for output in self.outputs)


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamSearchSequence:
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


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamSearchOutput:
    """What a beam search has found."""

    sequences: list[BeamSearchSequence]
    """The best first."""
