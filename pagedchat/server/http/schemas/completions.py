"""`/v1/completions`: text, or tokens, gone on with."""

from typing import Literal

import msgspec

from pagedchat.server.http.schemas.common import Sampled, Told, Usage


class CompletionBody(Sampled, frozen=True, kw_only=True):
    """One prompt or several."""

    prompt: str | list[str | int | list[int]]
    """A text, its tokens, or a list of either, all entries of one kind."""
    max_tokens: int | None = None
    """16 where nothing is said. 0 goes with `echo`."""
    logprobs: int | None = None
    echo: bool | None = None
    """Whether the prompt is told before the reply."""
    suffix: str | None = None


class TextLogprobs(Told, frozen=True, kw_only=True):
    """How likely tokens were; lists of one entry a token."""

    text_offset: list[int]
    token_logprobs: list[float | None]
    tokens: list[str]
    top_logprobs: list[dict[str, float] | None]


class CompletionChoice(Told, frozen=True, kw_only=True):
    """One reply, or a piece of it."""

    index: int
    text: str
    logprobs: TextLogprobs | None = None
    finish_reason: Literal["stop", "length"] | None = None
    stop_reason: int | str | None = None
    """vLLM's: the stop string, or the token, that ended it."""
    token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET
    prompt_token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET


class Completion(Told, frozen=True, kw_only=True):
    """A whole answer, or an event of a stream."""

    id: str
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | msgspec.UnsetType | None = msgspec.UNSET
    object: Literal["text_completion"] = "text_completion"
