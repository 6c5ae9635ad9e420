"""`/v1/responses`: OpenAI's newer way to ask a model. Nothing is stored between two of them."""

from typing import Any, Literal

import msgspec

from pagedchat.server.http.schemas.chat import ContentPart
from pagedchat.server.http.schemas.common import Body, StreamOptions, Told


class InputPart(ContentPart, frozen=True, kw_only=True):
    """A piece of a message; what this server has told may come back as it was."""

    annotations: list[Any] | None = None
    logprobs: list[Any] | None = None


class InputItem(Body, frozen=True, kw_only=True):
    """A message, a call, what came of it, or a thought; as `type` says."""

    type: Literal["message", "function_call", "function_call_output", "reasoning"] = "message"
    role: Literal["user", "assistant", "system", "developer"] | None = None
    content: str | list[InputPart] | None = None
    id: str | None = None
    status: str | None = None
    call_id: str | None = None
    name: str | None = None
    arguments: str | None = None
    output: str | list[InputPart] | None = None
    summary: list[Any] | None = None
    encrypted_content: str | None = None


class FunctionTool(Body, frozen=True, kw_only=True):
    """A function that a model may call."""

    type: Literal["function"]
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class NamedFunction(Body, frozen=True, kw_only=True):
    """The one function that is to be called."""

    name: str
    type: Literal["function"] = "function"


class TextFormat(Body, frozen=True, kw_only=True):
    """The form of a reply."""

    type: Literal["text", "json_object", "json_schema"]
    name: str | None = None
    schema: dict[str, Any] | None = None
    description: str | None = None
    strict: bool | None = None


class TextOptions(Body, frozen=True, kw_only=True):
    """Of a reply's text."""

    format: TextFormat | None = None
    verbosity: str | None = None


class ReasoningOptions(Body, frozen=True, kw_only=True):
    """Of thoughts: for the template, which may know what to do with them."""

    effort: str | None = None
    summary: str | None = None
    generate_summary: str | None = None


class ResponsesBody(Body, frozen=True, kw_only=True):
    """What is asked."""

    input: str | list[InputItem]
    model: str | None = None
    instructions: str | None = None
    max_output_tokens: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_logprobs: int | None = None
    include: list[str] | None = None
    """`message.output_text.logprobs` has logprobs told; nothing else is known."""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    text: TextOptions | None = None
    tools: list[FunctionTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | NamedFunction | None = None
    parallel_tool_calls: bool | None = None
    reasoning: ReasoningOptions | None = None
    metadata: dict[str, str] | None = None
    """Told back."""
    user: str | None = None

    seed: int | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    presence_penalty: float | None = None
    frequency_penalty: float | None = None
    stop: str | list[str] | None = None
    chat_template_kwargs: dict[str, Any] | None = None

    # What is taken where nothing is asked for by it, or for what it could only say to OpenAI's own servers.
    store: bool | None = None
    service_tier: str | None = None
    safety_identifier: str | None = None
    prompt_cache_key: str | None = None
    prompt_cache_retention: str | None = None
    previous_response_id: str | None = None
    conversation: Any = None
    background: bool | None = None
    prompt: Any = None
    truncation: str | None = None
    max_tool_calls: int | None = None
    context_management: Any = None


class OutputText(Told, frozen=True, kw_only=True):
    """The text of a reply."""

    text: str
    type: Literal["output_text"] = "output_text"
    annotations: list[Any] = msgspec.field(default_factory=list)
    logprobs: list[Any] = msgspec.field(default_factory=list)


class OutputMessage(Told, frozen=True, kw_only=True):
    """A reply."""

    id: str
    status: Literal["in_progress", "completed", "incomplete"]
    content: list[OutputText]
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"


class ReasoningText(Told, frozen=True, kw_only=True):
    """The text of a thought."""

    text: str
    type: Literal["reasoning_text"] = "reasoning_text"


class ReasoningItem(Told, frozen=True, kw_only=True):
    """A thought."""

    id: str
    status: Literal["in_progress", "completed", "incomplete"]
    content: list[ReasoningText]
    summary: list[Any] = msgspec.field(default_factory=list)
    type: Literal["reasoning"] = "reasoning"


class FunctionCall(Told, frozen=True, kw_only=True):
    """A call."""

    id: str
    call_id: str
    name: str
    arguments: str
    status: Literal["in_progress", "completed", "incomplete"]
    type: Literal["function_call"] = "function_call"


OutputItem = OutputMessage | ReasoningItem | FunctionCall


class InputTokensDetails(Told, frozen=True, kw_only=True):
    """Of a prompt's tokens."""

    cached_tokens: int


class OutputTokensDetails(Told, frozen=True, kw_only=True):
    """Of a reply's tokens."""

    reasoning_tokens: int


class ResponseUsage(Told, frozen=True, kw_only=True):
    """How many tokens there were."""

    input_tokens: int
    output_tokens: int
    total_tokens: int
    input_tokens_details: InputTokensDetails
    output_tokens_details: OutputTokensDetails


class Incomplete(Told, frozen=True, kw_only=True):
    """Why a reply is not whole."""

    reason: Literal["max_output_tokens"]


class ResponseError(Told, frozen=True, kw_only=True):
    """Why there is none."""

    message: str
    code: str = "server_error"


class ResponseObject(Told, frozen=True, kw_only=True):
    """An answer."""

    id: str
    created_at: int
    model: str
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    output: list[msgspec.Raw]
    """Items, encoded."""
    instructions: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    max_output_tokens: int | None = None
    tools: list[FunctionTool] = msgspec.field(default_factory=list)
    tool_choice: Literal["none", "auto", "required"] | NamedFunction = "auto"
    parallel_tool_calls: bool = True
    text: TextOptions = TextOptions(format=TextFormat(type="text"))
    reasoning: ReasoningOptions | None = None
    metadata: dict[str, str] = msgspec.field(default_factory=dict)
    usage: ResponseUsage | None = None
    error: ResponseError | None = None
    incomplete_details: Incomplete | None = None
    previous_response_id: None = None
    store: Literal[False] = False
    truncation: Literal["disabled"] = "disabled"
    object: Literal["response"] = "response"
