"""What a body of `/v1/responses` says -> what is asked of the engine."""

from collections.abc import Sequence
from typing import Any

from pagedchat.bounds import shown
from pagedchat.server.http.errors import ApiError
from pagedchat.server.http.messages import check_entries, check_length, text_of
from pagedchat.server.http.schemas.common import (
    Function,
    FunctionName,
    JsonSchema,
    NamedTool,
    ResponseFormat,
    Sampled,
    Tool,
    ToolChoice,
)
from pagedchat.server.http.schemas.responses import InputItem, NamedFunction, ResponsesBody

_LOGPROBS = "message.output_text.logprobs"
_SAME = (
    "stream", "stream_options", "temperature", "top_p", "seed", "top_k", "min_p", "repetition_penalty",
    "presence_penalty", "frequency_penalty", "stop",
)  # fmt: skip


def messages_of(body: ResponsesBody, max_model_len: int) -> list[dict[str, Any]]:
    """The conversation, as `AsyncLLM.chat` takes it.

    Raises:
        ApiError: none, an item that is incomplete, or more text than a context can hold.
    """
    told = [{"role": "system", "content": body.instructions}] if body.instructions else []
    if isinstance(body.input, str):
        told.append({"role": "user", "content": body.input})
    else:
        check_entries(len(body.input), max_model_len, "input")
        told += _turns(body.input)
    if not told:
        raise ApiError(400, "input is empty. Give a text, or items.", "input", "invalid_value")
    check_length(sum(len(message["content"]) for message in told), max_model_len, "input")
    return told


def sampled(body: ResponsesBody) -> Sampled:
    """How tokens are chosen, in the words of chats."""
    values = {name: getattr(body, name) for name in _SAME}
    return Sampled(**values, response_format=_format(body))


def wants_logprobs(body: ResponsesBody) -> bool:
    """Whether logprobs are told.

    Raises:
        ApiError: something else is to be included.
    """
    for place, name in enumerate(body.include or ()):
        if name not in (_LOGPROBS, "reasoning.encrypted_content"):
            raise ApiError(400, f"include[{place}] is {shown(name)}. There is {_LOGPROBS}.", f"include[{place}]")
    return _LOGPROBS in (body.include or ())


def tools_of(body: ResponsesBody) -> tuple[list[Tool], ToolChoice | None]:
    """Tools and the choice among them, in the words of chats."""
    tools = [
        Tool(
            type="function",
            function=Function(
                name=tool.name, description=tool.description, parameters=tool.parameters, strict=tool.strict
            ),
        )
        for tool in body.tools or ()
    ]
    choice = body.tool_choice
    if isinstance(choice, NamedFunction):
        return tools, NamedTool(function=FunctionName(name=choice.name))
    return tools, choice


def _format(body: ResponsesBody) -> ResponseFormat | None:
    wanted = body.text.format if body.text is not None else None
    if wanted is None:
        return None
    if wanted.type != "json_schema":
        return ResponseFormat(type=wanted.type)
    if wanted.schema is None:
        raise ApiError(400, "text.format.schema is missing.", "text.format.schema", "missing_required_parameter")
    return ResponseFormat(
        type="json_schema", json_schema=JsonSchema(name=wanted.name or "reply", schema=wanted.schema)
    )


def _turns(items: Sequence[InputItem]) -> list[dict[str, Any]]:
    """Calls that follow one another, and the thought before them, are one turn of the assistant's."""
    told: list[dict[str, Any]] = []
    thought = ""
    for place, item in enumerate(items):
        field = f"input[{place}]"
        match item.type:
            case "reasoning":
                thought = text_of(item.content, f"{field}.content")
                continue
            case "function_call":
                name, arguments = _needed(item.name, f"{field}.name"), item.arguments or "{}"
                call = {
                    "type": "function", "id": _needed(item.call_id, f"{field}.call_id"),
                    "function": {"name": name, "arguments": arguments},
                }  # fmt: skip
                if not (told and told[-1]["role"] == "assistant"):
                    told.append({"role": "assistant", "content": ""})
                told[-1].setdefault("tool_calls", []).append(call)
            case "function_call_output":
                call_id = _needed(item.call_id, f"{field}.call_id")
                content = text_of(item.output, f"{field}.output")
                told.append({"role": "tool", "content": content, "tool_call_id": call_id})
            case "message":
                role = _needed(item.role, f"{field}.role")
                content = text_of(item.content, f"{field}.content")
                told.append({"role": "system" if role == "developer" else role, "content": content})
        if thought and told[-1]["role"] == "assistant":
            told[-1]["reasoning_content"] = thought
        thought = ""
    return told


def _needed(value: str | None, field: str) -> str:
    if value is None:
        raise ApiError(400, f"{field} is missing.", field, "missing_required_parameter")
    return value
