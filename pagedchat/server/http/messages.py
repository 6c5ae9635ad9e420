"""Messages as clients send them -> as `AsyncLLM.chat` takes them. Knows shapes, no templates."""

from collections.abc import Sequence
from typing import Any

import msgspec

from pagedchat.bounds import shown
from pagedchat.server.http.errors import ApiError
from pagedchat.server.http.schemas.chat import ChatMessage, ContentPart, ToolCall

_TEXTS = ("text", "input_text", "output_text", "reasoning_text", "refusal")
_ROLES = {"developer": "system", "function": "tool"}
"""OpenAI's other names."""
CHARACTERS_A_TOKEN = 64
"""More than any text has by far; a prompt of more is refused before it is tokenised."""


def template_messages(messages: Sequence[ChatMessage], max_model_len: int) -> list[dict[str, Any]]:
    """All turns of a conversation.

    Raises:
        ApiError: none, one that is no text, or more text than a context can hold.
    """
    if not messages:
        raise ApiError(400, "messages is empty. Give at least one.", "messages", "invalid_value")
    check_entries(len(messages), max_model_len, "messages")
    told = [_message(message, f"messages[{place}]") for place, message in enumerate(messages)]
    check_length(sum(len(message["content"]) for message in told), max_model_len, "messages")
    return told


def check_length(characters: int, max_model_len: int, field: str) -> None:
    """Refuse what cannot fit, before time is spent on it.

    Raises:
        ApiError: so many characters are more tokens than a context has.
    """
    most = CHARACTERS_A_TOKEN * max_model_len
    if characters > most:
        raise ApiError(
            400, f"{field} has {characters:,} characters. The model's context is {max_model_len:,} tokens, "
            f"and more than {most:,} characters are no prompt for it.", field, "context_length_exceeded",
        )  # fmt: skip


def check_entries(count: int, max_model_len: int, field: str) -> None:
    """The same of tokens, or of turns, each of which takes one at least.

    Raises:
        ApiError: there are more than a context has tokens.
    """
    if count > max_model_len:
        raise ApiError(
            400, f"{field} has {count:,} entries. The model's context is {max_model_len:,} tokens.", field,
            "context_length_exceeded",
        )  # fmt: skip


def text_of(content: str | Sequence[ContentPart] | None, field: str) -> str:
    """A content as one text.

    Raises:
        ApiError: a part of it is no text.
    """
    if content is None or isinstance(content, str):
        return content or ""
    texts = []
    for place, part in enumerate(content):
        text = part.text if part.text is not None else part.refusal
        if part.type not in _TEXTS:
            name = f"{field}[{place}].type"
            raise ApiError(400, f"{name} is {shown(part.type)}. Models read text, nothing else.", name)
        if text is None:
            name = f"{field}[{place}].text"
            raise ApiError(400, f"{name} is missing.", name, "missing_required_parameter")
        texts.append(text)
    return "\n".join(texts)


def _message(message: ChatMessage, field: str) -> dict[str, Any]:
    if message.function_call is not None or message.audio is not None:
        name = f"{field}.{'function_call' if message.function_call is not None else 'audio'}"
        raise ApiError(400, f"{name} is not taken. Calls are in tool_calls, and replies are text.", name)
    told: dict[str, Any] = {
        "role": _ROLES.get(message.role, message.role),
        "content": text_of(message.content, f"{field}.content"),
    }
    thought = message.reasoning_content if message.reasoning_content is not None else message.reasoning
    others = {"name": message.name, "tool_call_id": message.tool_call_id, "reasoning_content": thought}
    told |= {name: value for name, value in others.items() if value is not None}
    if message.tool_calls:
        told["tool_calls"] = [_call(call) for call in message.tool_calls]
    return told


def _call(call: ToolCall) -> dict[str, Any]:
    told: dict[str, Any] = {"type": "function", "function": msgspec.to_builtins(call.function)}
    if call.id is not None:
        told["id"] = call.id
    return told
