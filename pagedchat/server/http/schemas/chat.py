"""`/v1/chat/completions`: a conversation answered."""

from typing import Any, Literal

import msgspec

from pagedchat.server.http.schemas.common import Body, Sampled, Told, Tool, ToolChoice, Usage


class CacheControl(Body, frozen=True, kw_only=True):
    """Without effect: every prefix is kept as long as there is room."""

    type: str
    ttl: str | None = None


class ContentPart(Body, frozen=True, kw_only=True):
    """A piece of a message; those of type "text" can be served."""

    type: str
    text: str | None = None
    refusal: str | None = None
    image_url: Any = None
    input_audio: Any = None
    video_url: Any = None
    file: Any = None
    cache_control: CacheControl | None = None


class CalledFunction(Body, frozen=True, kw_only=True):
    """A call that a model made."""

    name: str
    arguments: str | dict[str, Any] = "{}"
    """JSON, mostly as a text."""


class ToolCall(Body, frozen=True, kw_only=True):
    """A call that a model made, by its name."""

    function: CalledFunction
    id: str | None = None
    type: Literal["function"] = "function"
    index: int | None = None


class ChatMessage(Body, frozen=True, kw_only=True):
    """One turn. An assistant's may be what this server has told, as it was."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: str | list[ContentPart] | None = None
    name: str | None = None
    tool_calls: list[ToolCall] | None = None
    tool_call_id: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    refusal: str | None = None
    annotations: Any = None
    audio: Any = None
    function_call: Any = None


class ChatBody(Sampled, frozen=True, kw_only=True):
    """A conversation, and how it is to be gone on with."""

    messages: list[ChatMessage]
    max_tokens: int | None = None
    """Until the context is full where nothing is said."""
    max_completion_tokens: int | None = None
    """The same by its newer name."""
    logprobs: bool | None = None
    top_logprobs: int | None = None
    tools: list[Tool] | None = None
    tool_choice: ToolChoice | None = None
    parallel_tool_calls: bool | None = None
    """False: of several calls only the first is told."""
    reasoning_effort: str | None = None
    """For the template, which may know what to do with it."""
    include_reasoning: bool | None = None
    """Whether thoughts are told at all, beside the reply."""
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    """For the template, as `{"enable_thinking": false}`."""

    # What is taken where nothing is asked for by it, or for what it could only say to OpenAI's own servers.
    chat_template: str | None = None
    documents: list[Any] | None = None
    functions: list[Any] | None = None
    function_call: Any = None
    modalities: list[str] | None = None
    audio: Any = None
    prediction: Any = None
    web_search_options: Any = None
    store: bool | None = None
    metadata: dict[str, str] | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    verbosity: str | None = None


class TopLogprob(Told, frozen=True, kw_only=True):
    """How likely one token was in one place."""

    token: str
    logprob: float
    bytes: list[int]


class ChatLogprob(Told, frozen=True, kw_only=True):
    """The same of the token that is there, and the most likely ones in its place."""

    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[TopLogprob]


class ChatLogprobs(Told, frozen=True, kw_only=True):
    """Of all tokens of a reply, or of an event."""

    content: list[ChatLogprob]
    refusal: None = None


class ToldFunction(Told, frozen=True, kw_only=True):
    """A call, or in a stream a piece of one: the name comes first, then the arguments."""

    arguments: str
    """JSON."""
    name: str | msgspec.UnsetType = msgspec.UNSET


class ToldCall(Told, frozen=True, kw_only=True):
    """A call, or a piece of one."""

    function: ToldFunction
    index: int | msgspec.UnsetType = msgspec.UNSET
    id: str | msgspec.UnsetType = msgspec.UNSET
    type: Literal["function"] | msgspec.UnsetType = msgspec.UNSET


class Reply(Told, frozen=True, kw_only=True):
    """A whole reply."""

    content: str | None
    role: Literal["assistant"] = "assistant"
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET
    tool_calls: list[ToldCall] | msgspec.UnsetType = msgspec.UNSET
    refusal: None = None


class Delta(Told, frozen=True, kw_only=True):
    """A piece of a reply."""

    role: Literal["assistant"] | msgspec.UnsetType = msgspec.UNSET
    content: str | msgspec.UnsetType = msgspec.UNSET
    reasoning_content: str | msgspec.UnsetType = msgspec.UNSET
    tool_calls: list[ToldCall] | msgspec.UnsetType = msgspec.UNSET


FinishReason = Literal["stop", "length", "tool_calls"]


class ChatChoice(Told, frozen=True, kw_only=True):
    """One reply of several."""

    index: int
    message: Reply
    finish_reason: FinishReason
    logprobs: ChatLogprobs | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET


class ChunkChoice(Told, frozen=True, kw_only=True):
    """A piece of one reply of several."""

    index: int
    delta: Delta
    logprobs: ChatLogprobs | None = None
    finish_reason: FinishReason | None = None
    stop_reason: int | str | msgspec.UnsetType = msgspec.UNSET
    token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET


class ChatCompletion(Told, frozen=True, kw_only=True):
    """A whole answer."""

    id: str
    created: int
    model: str
    choices: list[ChatChoice]
    usage: Usage
    object: Literal["chat.completion"] = "chat.completion"
    prompt_token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET


class ChatChunk(Told, frozen=True, kw_only=True):
    """An event of a stream."""

    id: str
    created: int
    model: str
    choices: list[ChunkChoice]
    object: Literal["chat.completion.chunk"] = "chat.completion.chunk"
    usage: Usage | msgspec.UnsetType | None = msgspec.UNSET
    prompt_token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET
