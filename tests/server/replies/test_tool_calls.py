"""Calls of tools in the formats that models write, however the text is cut."""

from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pagedchat.server.replies.parts import CallBegun
from pagedchat.server.replies.reply_parser import Called, ParsedReply, ReplyParser
from pagedchat.server.replies.tool_calls import CallSplitter

TOOLS = {"f", "g"}
F, G = Called("f", '{"x": 1}'), Called("g", "{}")
REPLIES: dict[str, tuple[str, list[Called]]] = {
    # Hermes, Qwen
    'Sure.\n<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>': ("Sure.", [F]),
    '<tool_call>{"arguments": {"x": 1}, "name": "f"}</tool_call>\n<tool_call>{"name": "g"}</tool_call>': (
        "",
        [F, G],
    ),
    '<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call> done': (" done", [F]),
    '<tool_call>{"name": "f", "arguments": "{\\"x\\": 1}"}</tool_call>': ("", [F]),
    '<tool_call>{"name": "f", "arguments": {"a": "}\\"", "b": [1, {"c": 2}]}}</tool_call>': (
        "",
        [Called("f", '{"a": "}\\"", "b": [1, {"c": 2}]}')],
    ),
    '<tool_call>{"name": "f", "arguments": {"x": ': ("", [Called("f", '{"x": ')]),
    '<tool_call>{"na': ('<tool_call>{"na', []),
    '<tool_call>oops</tool_call> and <tool_call>{"name": "g"}</tool_call>': (
        "<tool_call>oops</tool_call> and",
        [G],
    ),
    # Mistral, older and newer
    '[TOOL_CALLS] [{"name": "f", "arguments": {"x": 1}}, {"name": "g", "arguments": {}}]': ("", [F, G]),
    '[TOOL_CALLS]f[ARGS]{"x": 1}[TOOL_CALLS]g{}': ("", [F, G]),
    '[TOOL_CALLS]f[CALL_ID]abc123[ARGS]{"x": 1}': ("", [F]),
    "[TOOL_CALLS]nothing of it": ("[TOOL_CALLS]nothing of it", []),
    # Llama
    '{"name": "f", "parameters": {"x": 1}}': ("", [F]),
    '<|python_tag|>{"name": "f", "parameters": {"x": 1}}; {"name": "g", "parameters": {}}': ("", [F, G]),
    "<|python_tag|>print(1)": ("<|python_tag|>print(1)", []),
    # no calls
    '{"name": "unknown", "parameters": {}}': ('{"name": "unknown", "parameters": {}}', []),
    '{"a": 1}': ('{"a": 1}', []),
    "  text  ": ("  text  ", []),
    "a < b": ("a < b", []),
    " ": (" ", []),
    "": ("", []),
}


def parsed(pieces: Iterable[str], splitter: CallSplitter | None = None, **options: Any) -> ParsedReply:
    parser = ReplyParser(None, splitter or CallSplitter("auto", TOOLS), **options)
    reply = ParsedReply()
    for piece in pieces:
        reply.add(parser.feed(piece))
    reply.add(parser.finish())
    assert options or parser.has_calls == bool(reply.calls)
    return reply


@pytest.mark.parametrize(("reply", "parts"), REPLIES.items())
def test_whole_and_letter_by_letter_it_is_the_same(reply: str, parts: tuple[str, list[Called]]) -> None:
    assert parsed([reply]) == ParsedReply(parts[0], "", parts[1])
    assert parsed(reply) == ParsedReply(parts[0], "", parts[1])


@given(st.sampled_from([*REPLIES]), st.data())
def test_no_cut_changes_anything(reply: str, data: st.DataObject) -> None:
    cuts = sorted(data.draw(st.lists(st.integers(0, len(reply)), max_size=6)))
    pieces = [reply[start:end] for start, end in zip([0, *cuts], [*cuts, len(reply)], strict=True)]
    assert parsed(pieces) == parsed([reply])


_PIECES = [
    "<tool_call>",
    "</tool_call>",
    "[TOOL_CALLS]",
    "[ARGS]",
    "<|python_tag|>",
    '{"name": "f", "arguments": {',
    '"name"',
    ":",
    "{",
    "}",
    "[",
    "]",
    ",",
    ";",
    '"',
    "\\",
    "f",
    " ",
    "\n",
    "1",
    "null",
]


@given(st.lists(st.sampled_from(_PIECES), max_size=10))
def test_no_cut_of_nonsense_changes_anything(pieces: list[str]) -> None:
    whole = "".join(pieces)
    assert parsed(pieces) == parsed([whole]) == parsed(whole)


def test_the_name_is_told_before_the_arguments_are_written() -> None:
    splitter = CallSplitter("hermes", TOOLS)
    assert splitter.feed('<tool_call>{"name": "f"') == []  # it may go on: the text behind the name is not there yet
    assert splitter.feed(",") == [CallBegun("f")]


def test_a_format_that_was_chosen_is_the_only_one_that_is_read() -> None:
    text = '<tool_call>{"name": "f", "arguments": {}}</tool_call>'
    assert parsed([text], CallSplitter("mistral", TOOLS)).text == text
    text = '{"name": "f", "parameters": {}}'
    assert parsed([text], CallSplitter("hermes", TOOLS)).text == text


def test_a_reply_that_had_to_call_is_a_list_or_the_arguments_alone() -> None:
    text = '[{"name": "f", "arguments": {"x": 1}}, {"name": "g", "arguments": {}}]'
    assert parsed(text, CallSplitter("auto", TOOLS, in_list=True)) == ParsedReply("", "", [F, G])
    assert parsed('{"x": 1}', CallSplitter("auto", TOOLS, name="f")) == ParsedReply("", "", [F])
    assert parsed("", CallSplitter("auto", TOOLS, name="f")).calls == [Called("f", "")]


def test_only_the_first_of_several_calls_is_told_where_one_is_wanted() -> None:
    text = '<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call><tool_call>{"name": "g"}</tool_call>!'
    assert parsed(text, one_call=True) == ParsedReply("!", "", [F])


def test_a_base_models_reply_begins_with_its_first_word() -> None:
    assert parsed(["  ", " once", " upon"], strip_start=True).text == "once upon"
