"""Chats of other programs: ChatGPT's conversations.json, and what llama.cpp's web UI exports.

Both keep a tree of messages of which one branch was looked at last; that branch is read. Nothing else of a file is
needed, so nothing else of it has to be as expected.
"""

from collections.abc import Iterator
from typing import Any

from pagedchat.chat.formats.saved_chat import SavedChat, in_turns

_ROLES = ("user", "assistant", "system")


def chats_of(value: Any) -> list[SavedChat]:
    """All chats of a file, in its order; none where it is no such file."""
    items = value if isinstance(value, list) else [value]
    found = [chat for item in items if isinstance(item, dict) and (chat := _chat(item)) is not None]
    if not found and isinstance(value, list):  # messages and nothing around them
        whole = _from_messages({"messages": value})
        return [whole] if whole is not None else []
    return found


def _chat(item: dict[str, Any]) -> SavedChat | None:
    if isinstance(item.get("mapping"), dict):
        return _from_mapping(item)
    return _from_messages(item)


# --- ChatGPT ------------------------------------------------------------------------------------------


def _from_mapping(item: dict[str, Any]) -> SavedChat | None:
    """Nodes by their ids, each with its parent; `current_node` is the end of the branch that was seen last."""
    nodes = {key: node for key, node in item["mapping"].items() if isinstance(node, dict)}
    end = item.get("current_node")
    if not isinstance(end, str) or end not in nodes:
        end = next((key for key in reversed(nodes) if not nodes[key].get("children")), None)
    messages = [node.get("message") for node in _branch(nodes, end)]
    read = [_of_chatgpt(message) for message in messages if isinstance(message, dict)]
    return _made(item.get("title"), read) if any(read) else None


def _of_chatgpt(message: dict[str, Any]) -> tuple[str, str] | None:
    author, metadata = message.get("author"), message.get("metadata")
    role = author.get("role") if isinstance(author, dict) else None
    hidden = isinstance(metadata, dict) and metadata.get("is_visually_hidden_from_conversation") is True
    text = "" if hidden else _text_of(message.get("content"))
    return (role, text) if isinstance(role, str) and role in _ROLES and text.strip() else None


# --- llama.cpp, and whoever else keeps a list of messages ------------------------------------------------


def _from_messages(item: dict[str, Any]) -> SavedChat | None:
    """A list of messages; where they name their parents, `currNode` of `conv` is the end of the branch."""
    listed = item.get("messages")
    if not isinstance(listed, list):
        return None
    messages = [message for message in listed if isinstance(message, dict) and message.get("type") != "root"]
    conversation = item.get("conv")
    about = conversation if isinstance(conversation, dict) else item
    nodes = {str(message["id"]): message for message in messages if isinstance(message.get("id"), str | int)}
    end = about.get("currNode")
    if isinstance(end, str | int) and str(end) in nodes and len(nodes) == len(messages):
        messages = list(_branch(nodes, str(end)))
    read = [_of_list(message) for message in messages]
    return _made(about.get("name") or about.get("title"), read) if any(read) else None


def _of_list(message: dict[str, Any]) -> tuple[str, str] | None:
    role, text = message.get("role"), _text_of(message.get("content"))
    return (role, text) if isinstance(role, str) and role in _ROLES and text.strip() else None


# --- both ---------------------------------------------------------------------------------------------


def _branch(nodes: dict[str, dict[str, Any]], end: str | None) -> Iterator[dict[str, Any]]:
    """From the first message to `end`; a circle is walked once."""
    path: dict[str, dict[str, Any]] = {}
    while end is not None and end in nodes and end not in path:
        path[end] = nodes[end]
        parent = nodes[end].get("parent")
        end = str(parent) if isinstance(parent, str | int) else None
    return reversed(path.values())


def _text_of(content: Any) -> str:
    """Text, a list of parts of which some are text, or either under `parts` or `text`."""
    if isinstance(content, str):
        return content
    if isinstance(content, list):
        return "\n".join(filter(None, map(_text_of_part, content)))
    if isinstance(content, dict):
        parts = content.get("parts")
        return _text_of(parts) if isinstance(parts, list) else _text_of_part(content)
    return ""


def _text_of_part(part: Any) -> str:
    text = part.get("text") if isinstance(part, dict) else part
    return text if isinstance(text, str) else ""


def _made(title: Any, read: list[tuple[str, str] | None]) -> SavedChat:
    messages = [message for message in read if message is not None]
    return in_turns(title if isinstance(title, str) else "", messages, num_left_out=len(read) - len(messages))
