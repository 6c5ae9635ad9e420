"""Tools as clients offer them: the form of a reply that has to call one."""

import json
from typing import Any

import pytest

from pagedchat.server.http.errors import ApiError
from pagedchat.server.http.schemas.common import Function, FunctionName, NamedTool, Tool
from pagedchat.server.http.tools import call_id, offered

SIZE = {"type": "integer"}


def tool(name: str, **schema: Any) -> Tool:
    parameters = {"type": "object", "properties": {"size": {"$ref": "#/$defs/Size"}}, **schema}
    return Tool(type="function", function=Function(name=name, parameters=parameters))


def test_definitions_of_all_tools_stand_at_the_root_of_the_form() -> None:
    tools = [tool("f", **{"$defs": {"Size": SIZE}}), tool("g", **{"$defs": {"Size": SIZE, "Other": {}}})]
    made = offered(tools, "required", "auto", parallel=None)
    assert made is not None
    assert made.form is not None
    form = json.loads(made.form.form.text)
    assert form["$defs"] == {"Size": SIZE, "Other": {}}
    assert all("$defs" not in call["properties"]["arguments"] for call in form["items"]["anyOf"])
    assert "maxItems" not in form


def test_definitions_that_differ_are_refused() -> None:
    tools = [tool("f", **{"$defs": {"Size": SIZE}}), tool("g", **{"$defs": {"Size": {}}})]
    with pytest.raises(ApiError) as caught:
        offered(tools, "required", "auto", parallel=None)
    assert (caught.value.message, caught.value.param) == (
        "Two tools define 'Size' in $defs, and not alike.", "tools",
    )  # fmt: skip


def test_a_choice_that_is_none_of_the_tools_is_refused() -> None:
    with pytest.raises(ApiError) as caught:
        offered([tool("f")], NamedTool(function=FunctionName(name="g")), "auto", parallel=None)
    assert caught.value.message == "tool_choice names 'g', which is none of the tools."


def test_a_single_call_is_a_list_of_one() -> None:
    made = offered([tool("f")], "required", "auto", parallel=False)
    assert made is not None
    assert made.form is not None
    assert json.loads(made.form.form.text)["maxItems"] == 1


def test_ids_are_as_mistrals_templates_take_them() -> None:
    ids = {call_id() for _ in range(50)}
    assert len(ids) == 50
    assert all(len(each) == 9 and each.isalnum() for each in ids)
