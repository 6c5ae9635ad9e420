"""What bodies of several endpoints have in common: how tokens are chosen, tools, forms, figures.

Types and names alone: bounds of numbers are those of `SamplingParams`. A field that is not here is refused by name.
"""

from typing import Any, Literal

import msgspec


class Body(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Base of whatever comes from a client."""


class Told(msgspec.Struct, frozen=True, kw_only=True):
    """Base of whatever goes to one."""


# --- what is asked for ------------------------------------------------------------------------------


class StreamOptions(Body, frozen=True, kw_only=True):
    """Of a stream."""

    include_usage: bool | None = None
    """Whether a last event, without choices, tells how many tokens there were."""
    continuous_usage_stats: bool | None = None
    """Whether every event does."""
    include_obfuscation: bool | None = None
    """Without effect: nothing is padded."""


class StructuredOutputs(Body, frozen=True, kw_only=True):
    """vLLM's way to name the form of a reply; one of these."""

    json: str | dict[str, Any] | None = None
    regex: str | None = None
    choice: list[str] | None = None
    grammar: str | None = None
    json_object: bool | None = None
    structural_tag: str | None = None
    disable_fallback: bool | None = None
    disable_any_whitespace: bool | None = None
    disable_additional_properties: bool | None = None
    whitespace_pattern: str | None = None


class JsonSchema(Body, frozen=True, kw_only=True):
    """A schema with a name."""

    name: str
    schema: dict[str, Any] | None = None
    """Any JSON object will do where there is none."""
    description: str | None = None
    strict: bool | None = None
    """Without effect: a reply is always held to its schema."""


class ResponseFormat(Body, frozen=True, kw_only=True):
    """OpenAI's way to name the form of a reply."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchema | None = None


class Function(Body, frozen=True, kw_only=True):
    """A function that a model may call."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    """A JSON schema."""
    strict: bool | None = None


class Tool(Body, frozen=True, kw_only=True):
    """What a model may use."""

    type: Literal["function"]
    function: Function


class FunctionName(Body, frozen=True, kw_only=True):
    """One function among the tools."""

    name: str


class NamedTool(Body, frozen=True, kw_only=True):
    """The one tool that is to be called."""

    function: FunctionName
    type: Literal["function"] = "function"


ToolChoice = Literal["none", "auto", "required"] | NamedTool


class Sampled(Body, frozen=True, kw_only=True):
    """How tokens are chosen, for completions and chats alike: OpenAI's names, then vLLM's."""

    model: str | None = None
    """The served one, if nothing is said."""
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    n: int | None = None
    temperature: float | None = None
    top_p: float | None = None
    frequency_penalty: float | None = None
    presence_penalty: float | None = None
    logit_bias: dict[str, float] | None = None
    stop: str | list[str] | None = None
    seed: int | None = None
    user: str | None = None
    """Without effect."""

    best_of: int | None = None
    top_k: int | None = None
    min_p: float | None = None
    repetition_penalty: float | None = None
    min_tokens: int | None = None
    stop_token_ids: list[int] | None = None
    ignore_eos: bool | None = None
    include_stop_str_in_output: bool | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    truncate_prompt_tokens: int | None = None
    allowed_token_ids: list[int] | None = None
    bad_words: list[str] | None = None
    add_special_tokens: bool | None = None
    return_token_ids: bool | None = None
    """Whether choices have `token_ids`, and the first event or the reply `prompt_token_ids`."""
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    guided_json: str | dict[str, Any] | None = None
    guided_regex: str | None = None
    guided_choice: list[str] | None = None
    guided_grammar: str | None = None
    speculate: Literal["lookup", "off"] | None = None
    """pagedchat's own: whether several tokens are guessed and verified in a step."""

    # What is taken where nothing is asked for by it (`http/without_effect.py`).
    request_id: str | None = None
    priority: int | None = None
    use_beam_search: bool | None = None
    length_penalty: float | None = None
    logits_processors: list[Any] | None = None
    return_tokens_as_token_ids: bool | None = None
    prompt_logprobs: int | None = None
    cache_salt: str | None = None
    kv_transfer_params: dict[str, Any] | None = None
    vllm_xargs: dict[str, Any] | None = None
    mm_processor_kwargs: dict[str, Any] | None = None


# --- what is told -----------------------------------------------------------------------------------


class PromptTokensDetails(Told, frozen=True, kw_only=True):
    """Of a prompt's tokens."""

    cached_tokens: int
    """That were found in the prefix cache."""


class CompletionTokensDetails(Told, frozen=True, kw_only=True):
    """Of a reply's tokens."""

    reasoning_tokens: int
    """Of thoughts."""


class Usage(Told, frozen=True, kw_only=True, omit_defaults=True):
    """How many tokens there were."""

    prompt_tokens: int
    total_tokens: int
    completion_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails | None = None


class ModelCard(Told, frozen=True, kw_only=True):
    """The model that is served."""

    id: str
    created: int
    root: str
    max_model_len: int
    object: Literal["model"] = "model"
    owned_by: str = "pagedchat"
    parent: None = None


class ModelList(Told, frozen=True, kw_only=True):
    """All models that are served: one."""

    data: list[ModelCard]
    object: Literal["list"] = "list"


class Version(Told, frozen=True, kw_only=True):
    """Of the program."""

    version: str
