"""`/v1/chat/completions`: what a reply has, whole and streamed: text, thoughts, calls."""

import json
from typing import Any

import pytest

from pagedchat.service.commands import AddRequest
from tests.server.serving import MODEL, ServedApp, engine_that, served_app
from tests.service.fake_engine import REPLY

TOOL = {"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}
CALL = '<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>'


def joined(events: list[Any]) -> dict[str, Any]:
    """The only choice of a stream, as a client puts it together."""
    told: dict[str, Any] = {"content": "", "reasoning_content": "", "calls": [], "finish_reason": None}
    for event in events:
        for choice in event["choices"]:
            delta = choice["delta"]
            told["content"] += delta.get("content", "")
            told["reasoning_content"] += delta.get("reasoning_content", "")
            for call in delta.get("tool_calls", ()):
                if call["index"] == len(told["calls"]):
                    assert call["id"]
                    told["calls"].append([call["function"]["name"], ""])
                told["calls"][call["index"]][1] += call["function"]["arguments"]
            told["finish_reason"] = choice["finish_reason"] or told["finish_reason"]
    return told


def plain(choice: Any) -> dict[str, Any]:
    """The same of a whole reply."""
    message = choice["message"]
    calls = [[call["function"]["name"], call["function"]["arguments"]] for call in message.get("tool_calls", ())]
    return {
        "content": message["content"] or "",
        "reasoning_content": message.get("reasoning_content", ""),
        "calls": calls,
        "finish_reason": choice["finish_reason"],
    }


async def both(server: ServedApp, **body: Any) -> dict[str, Any]:
    whole, streamed = await server.chat(**body), await server.chat(**body, stream=True)
    assert (whole.status, streamed.status) == (200, 200), (whole.body, streamed.body)
    assert streamed.events[0]["choices"][0]["delta"]["role"] == "assistant"
    told = plain(whole.json["choices"][0])
    assert joined(streamed.events) == told
    return told


async def test_a_reply_is_the_same_whole_and_streamed() -> None:
    async with served_app() as server:
        told = await both(server)
        assert told == {
            "content": REPLY.removesuffix("</s>"),
            "reasoning_content": "",
            "calls": [],
            "finish_reason": "stop",
        }
        answer = (await server.chat()).json
        assert (answer["object"], answer["model"]) == ("chat.completion", MODEL)
        assert "completion_tokens_details" not in answer["usage"]


async def test_a_limit_has_two_names() -> None:
    async with served_app() as server:
        for name in ("max_tokens", "max_completion_tokens"):
            choice = (await server.chat(**{name: 3})).json["choices"][0]
            assert (choice["message"]["content"], choice["finish_reason"]) == (REPLY[:3], "length")


async def test_a_thought_is_told_beside_the_reply() -> None:
    async with served_app(engine_that("<think>hm hm</think>\n\nYes.</s>")) as server:
        told = await both(server)
        assert (told["reasoning_content"], told["content"]) == ("hm hm", "Yes.")
        details = (await server.chat()).json["usage"]["completion_tokens_details"]
        assert details == {"reasoning_tokens": len("hm hm")}
        told = await both(server, include_reasoning=False)
        assert (told["reasoning_content"], told["content"]) == ("", "Yes.")


async def test_a_thought_that_the_template_opens_is_one_too() -> None:
    opening = "{{ messages[-1]['content'] }}<|assistant|><think>"
    reply = "\0" * len("<think>") + "hm</think>Yes.</s>"  # the reciting model counts from the mark
    async with served_app(engine_that(reply, chat_template=opening)) as server:
        told = await both(server)
        assert (told["reasoning_content"], told["content"]) == ("hm", "Yes.")


async def test_thoughts_stay_in_the_reply_where_that_is_wanted() -> None:
    async with served_app(engine_that("<think>hm</think>Yes.</s>"), thoughts=False) as server:
        assert (await both(server))["content"] == "<think>hm</think>Yes."


async def test_calls_of_tools_are_told_apart() -> None:
    async with served_app(engine_that(f"<think>hm</think>Sure. {CALL}{CALL}</s>")) as server:
        told = await both(server, tools=[TOOL])
        assert told == {
            "content": "Sure.",
            "reasoning_content": "hm",
            "calls": [["f", '{"x": 1}']] * 2,
            "finish_reason": "tool_calls",
        }
        assert (await both(server, tools=[TOOL], parallel_tool_calls=False))["calls"] == [["f", '{"x": 1}']]
        assert (await both(server, tools=[TOOL], tool_choice="none"))["content"] == f"Sure. {CALL}{CALL}"
        assert (await both(server))["calls"] == []
        only_calls = (await server.chat(tools=[TOOL])).json["choices"][0]["message"]["tool_calls"]
        assert len({call["id"] for call in only_calls}) == 2


async def test_a_reply_of_nothing_but_calls_has_no_content() -> None:
    async with served_app(engine_that(f"{CALL}</s>")) as server:
        assert (await server.chat(tools=[TOOL])).json["choices"][0]["message"]["content"] is None


async def test_the_template_is_told_of_tools_and_of_what_came_of_them() -> None:
    async with served_app() as server:
        messages = [
            {"role": "developer", "content": "Be brief."},
            {"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]},
            {
                "role": "assistant",
                "content": None,
                "reasoning_content": "hm",
                "refusal": None,
                "tool_calls": [
                    {"id": "c1", "type": "function", "function": {"name": "f", "arguments": '{"x": 1}'}}
                ],
            },
            {"role": "tool", "content": "42", "tool_call_id": "c1"},
        ]
        body = {"messages": messages, "tools": [TOOL], "chat_template_kwargs": {"enable_thinking": False}}
        answer = await server.post("/v1/chat/completions", {**body, "temperature": 0, "reasoning_effort": "low"})
        assert answer.status == 200
        [prompt] = [command.prompt for command in server.link.sent if isinstance(command, AddRequest)]
        assert not isinstance(prompt, str | list)
        assert prompt.tools == [TOOL]
        assert prompt.chat_template_kwargs == {"enable_thinking": False, "reasoning_effort": "low"}
        assert prompt.messages == [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": "a\nb"},
            {
                "role": "assistant",
                "content": "",
                "reasoning_content": "hm",
                "tool_calls": [{"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"x": 1}}}],
            },
            {"role": "tool", "content": "42", "tool_call_id": "c1"},
        ]


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "f"}}])
async def test_a_call_that_is_demanded_is_a_form(choice: Any) -> None:
    reply = '[{"name": "f", "arguments": {"x": 1}}]</s>' if choice == "required" else '{"x": 1}</s>'
    async with served_app(engine_that(reply)) as server:
        answer = await server.chat(tools=[TOOL], tool_choice=choice)
        [params] = [command.params for command in server.link.sent if isinstance(command, AddRequest)]
        assert params is not None
        assert params.structured_outputs is not None
        schema = json.loads(params.structured_outputs.form.text)
        assert schema["type"] == ("array" if choice == "required" else "object")
        assert answer.status == 400  # this engine has no grammars
        assert answer.error["param"] == "tools"


async def test_several_replies_have_their_places() -> None:
    async with served_app() as server:
        answer = await server.chat(n=3, temperature=1)
        assert [choice["index"] for choice in answer.json["choices"]] == [0, 1, 2]
        streamed = await server.chat(n=3, temperature=1, stream=True)
        assert {choice["index"] for event in streamed.events for choice in event["choices"]} == {0, 1, 2}


async def test_usage_of_a_stream_comes_last() -> None:
    async with served_app() as server:
        *pieces, last = (await server.chat(stream=True, stream_options={"include_usage": True})).events
        assert all(piece["usage"] is None for piece in pieces)
        assert (last["choices"], last["usage"]) == (
            [],
            (await server.chat()).json["usage"] | {"prompt_tokens_details": last["usage"]["prompt_tokens_details"]},
        )
