"""Conversations of programs, as OpenAI's API has them: checked, and brought into the form that templates want.

Knows messages and JSON; no template, no tokens.
"""

import json
from collections.abc import Mapping, Sequence
from typing import Any, NotRequired, TypedDict

from pagedchat.bounds import check_flag, check_text, shown
from pagedchat.chat.template import ChatPrompt
from pagedchat.errors import InvalidValueError

_OWN_NAMES = ("messages", "tools", "add_generation_prompt", "continue_final_message")
"""Of a template's variables, those that have keywords of their own."""


class Message(TypedDict):
    """One turn of a conversation, named as in OpenAI's API."""

    role: str
    content: str | list[dict[str, str]] | None
    """A text, or its parts, each `{"type": "text", "text": str}`; None where there are `tool_calls`."""
    tool_calls: NotRequired[list[dict[str, Any]]]
    """What an assistant asked of tools."""
    tool_call_id: NotRequired[str]
    """To which of them a tool's answer belongs."""
    name: NotRequired[str]


def conversations_of(messages: Sequence[Message] | Sequence[Sequence[Message]]) -> list[Sequence[Message]]:
    """One conversation by itself, or all of a list of them."""
    given: Any = messages
    is_list = isinstance(given, list | tuple) and len(given) > 0
    return list(given) if is_list and all(isinstance(each, list | tuple) for each in given) else [given]


def chat_prompt(
    messages: Sequence[Message],
    *,
    tools: Sequence[Mapping[str, Any]] | None = None,
    chat_template: str | None = None,
    chat_template_kwargs: Mapping[str, Any] | None = None,
    add_generation_prompt: bool = True,
    continue_final_message: bool = False,
) -> ChatPrompt:
    """One conversation, with what its template is to be told.

    Args:
        messages: of the conversation.
        tools: functions that the model may ask for, each as `{"type": "function", "function": {...}}`.
        chat_template: takes the place of the model's own.
        chat_template_kwargs: what else the template may name.
        add_generation_prompt: the next reply is asked for.
        continue_final_message: the last message is to be gone on with, in the stead of a reply of its own.

    Raises:
        InvalidValueError: something that none of these can be; the message names it.
    """
    check_flag("add_generation_prompt", add_generation_prompt)
    continues = check_flag("continue_final_message", continue_final_message)
    if not isinstance(messages, list | tuple) or not messages:
        raise InvalidValueError(f"messages is {shown(messages)}.", _MESSAGES)
    told = [_message(message) for message in messages]
    _check_json("messages", told)
    if continues and told[-1]["role"] != "assistant":
        raise InvalidValueError(
            f"continue_final_message is True, but the last message is of the role {shown(told[-1]['role'])}.",
            "Only what an assistant has begun to say can be continued.",
        )
    return ChatPrompt(
        messages=told,
        tools=_tools(tools),
        chat_template=None if chat_template is None else check_text("chat_template", chat_template),
        chat_template_kwargs=_template_kwargs(chat_template_kwargs),
        add_generation_prompt=add_generation_prompt and not continues,
        continue_final_message=continues,
    )


_MESSAGES = 'Give a list of messages, each {"role": name, "content": text}.'


def _message(given: object) -> dict[str, Any]:
    """As templates want it: contents are text, and arguments of tool calls are values."""
    if not isinstance(given, Mapping) or not isinstance(given.get("role"), str):
        raise InvalidValueError(f"A message is {shown(given)}.", _MESSAGES)
    message = dict(given)
    calls = message.get("tool_calls")
    content = _text_of_parts(message.get("content"))
    if content is None and calls:
        content = ""
    if not isinstance(content, str):
        raise InvalidValueError(f"A message is {shown(given)}.", _MESSAGES)
    message["content"] = content
    if calls is None:
        message.pop("tool_calls", None)
    else:
        message["tool_calls"] = _tool_calls(calls)
    return message


def _text_of_parts(content: object) -> object:
    """OpenAI's way to give a text in parts, as a text; anything else as it is."""
    if not isinstance(content, list) or not content:
        return content
    parts = [
        part.get("text") if isinstance(part, dict) and part.get("type") == "text" else None for part in content
    ]
    texts = [part for part in parts if isinstance(part, str)]
    return "\n".join(texts) if len(texts) == len(parts) else content


def _tool_calls(calls: object) -> list[dict[str, Any]]:
    if not isinstance(calls, list) or not all(isinstance(call, dict) for call in calls):
        raise InvalidValueError(f"tool_calls is {shown(calls)}.", "It must be a list of objects.")
    return [{**call, "function": _with_values(call["function"])} if "function" in call else call for call in calls]


def _with_values(function: object) -> object:
    """OpenAI has arguments as JSON text, and templates as what it stands for."""
    if isinstance(function, dict) and isinstance(function.get("arguments"), str):
        try:
            return {**function, "arguments": json.loads(function["arguments"] or "{}")}
        except (ValueError, RecursionError):
            pass  # as the model has written it
    return function


def _tools(tools: object) -> list[dict[str, Any]] | None:
    if tools is None:
        return None
    if not isinstance(tools, list | tuple) or not all(isinstance(tool, Mapping) for tool in tools):
        raise InvalidValueError(
            f"tools is {shown(tools)}.", 'Give a list, each {"type": "function", "function": {"name": name, ...}}.'
        )
    _check_json("tools", tools)
    return [dict(tool) for tool in tools] or None


def _template_kwargs(kwargs: object) -> dict[str, Any]:
    if kwargs is None:
        return {}
    if not isinstance(kwargs, Mapping) or not all(isinstance(name, str) for name in kwargs):
        raise InvalidValueError(f"chat_template_kwargs is {shown(kwargs)}.", "It must have names and their values.")
    taken = [name for name in kwargs if name in _OWN_NAMES]
    if taken:
        raise InvalidValueError(f"chat_template_kwargs has {taken[0]}.", "That has a keyword of its own.")
    _check_json("chat_template_kwargs", kwargs)
    return dict(kwargs)


def _check_json(name: str, value: object) -> None:
    try:
        json.dumps(value)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidValueError(f"{name} has something in it that is not JSON: {error}.", "") from None
