"""Tools as clients offer them: what the template is told, to what form a reply is held, how it is parsed; and calls
on their way back."""

import secrets
import string
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from pagedchat.bounds import shown
from pagedchat.server.http.errors import ApiError
from pagedchat.server.http.schemas.common import Function, NamedTool, Tool, ToolChoice
from pagedchat.server.replies.tool_calls import CallSplitter
from pagedchat.server.replies.tool_formats import ToolFormat
from pagedchat.structured.params import StructuredOutputsParams

_ID_CHARACTERS = string.ascii_letters + string.digits
_ID_LENGTH = 9
"""Mistral's templates take no other."""
_ANY_OBJECT: dict[str, Any] = {"type": "object"}


@dataclass(frozen=True, slots=True)
class Offered:
    """The tools of one request."""

    told: list[dict[str, Any]]
    """For the template."""
    names: tuple[str, ...]
    form: StructuredOutputsParams | None = None
    """To which a reply is held that has to call."""
    only: str | None = None
    """The one that it has to call."""
    kind: ToolFormat = "auto"
    one_call: bool = False
    """Of several calls only the first is told."""

    @property
    def is_list(self) -> bool:
        """Whether the whole reply is a list of calls."""
        return self.form is not None and self.only is None

    def splitter(self) -> CallSplitter:
        """For one reply."""
        return CallSplitter(self.kind, self.names, in_list=self.is_list, name=self.only)


def offered(
    tools: Sequence[Tool] | None, choice: ToolChoice | None, kind: ToolFormat, parallel: bool | None
) -> Offered | None:
    """What a request offers; None where no call can come of it.

    Raises:
        ApiError: a choice without such a tool.
    """
    if not tools:
        if choice not in (None, "none", "auto"):
            raise ApiError(400, "tool_choice wants a call, but there are no tools.", "tool_choice")
        return None
    if choice == "none":
        return None
    told = [msgspec.to_builtins(tool) for tool in tools]
    for tool in told:
        tool["function"] = {name: value for name, value in tool["function"].items() if value is not None}
    names = tuple(tool.function.name for tool in tools)
    one_call = parallel is False
    if choice == "required":
        return Offered(told, names, _form_of_list(tools, one_call), kind=kind, one_call=one_call)
    if isinstance(choice, NamedTool):
        name = choice.function.name
        schema = next((tool.function.parameters for tool in tools if tool.function.name == name), ...)
        if schema is ...:
            raise ApiError(400, f"tool_choice names {shown(name)}, which is none of the tools.", "tool_choice")
        return Offered(told, names, StructuredOutputsParams(json=schema or _ANY_OBJECT), name, one_call=one_call)
    return Offered(told, names, kind=kind, one_call=one_call) if kind != "none" else None


def call_id() -> str:
    """A new one."""
    return "".join(secrets.choice(_ID_CHARACTERS) for _ in range(_ID_LENGTH))


def _form_of_list(tools: Sequence[Tool], one_call: bool) -> StructuredOutputsParams:
    definitions: dict[str, Any] = {}  # of all tools: references go from the root of a schema, which is ours
    calls = [_form_of_call(tool.function, definitions) for tool in tools]
    form: dict[str, Any] = {"type": "array", "minItems": 1, "items": {"anyOf": calls}}
    if one_call:
        form["maxItems"] = 1
    if definitions:
        form["$defs"] = definitions
    return StructuredOutputsParams(json=form)


def _form_of_call(function: Function, definitions: dict[str, Any]) -> dict[str, Any]:
    parameters = _without_definitions(function.parameters or _ANY_OBJECT, definitions)
    return {
        "type": "object",
        "properties": {"name": {"const": function.name}, "arguments": parameters},
        "required": ["name", "arguments"],
        "additionalProperties": False,
    }


def _without_definitions(schema: dict[str, Any], definitions: dict[str, Any]) -> dict[str, Any]:
    """The schema without its `$defs`, which are put to the others."""
    own = schema.get("$defs")
    if not isinstance(own, dict):
        return schema
    for name, definition in own.items():
        if definitions.setdefault(name, definition) != definition:
            raise ApiError(
                400, f"Two tools define {shown(name)} in $defs, and not alike.", "tools", "invalid_value"
            )
    return {key: value for key, value in schema.items() if key != "$defs"}
