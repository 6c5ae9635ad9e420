"""`/v1/responses`: items, and the events that tell how they grow."""

import json
from typing import Any

from pagedchat.service.commands import AddRequest
from tests.server.serving import ServedApp, engine_that, served_app
from tests.service.fake_engine import REPLY

TOOL = {"type": "function", "name": "f", "parameters": {"type": "object"}}
CALL = '<tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>'


async def whole(server: ServedApp, **body: Any) -> Any:
    answer = await server.post("/v1/responses", {"input": "hi", "temperature": 0, **body})
    assert answer.status == 200, answer.body
    return answer.json


async def streamed(server: ServedApp, **body: Any) -> list[Any]:
    answer = await server.post("/v1/responses", {"input": "hi", "temperature": 0, "stream": True, **body})
    assert answer.status == 200, answer.body
    events = []
    for number, frame in enumerate(answer.body.decode().removesuffix("\n\n").split("\n\n")):
        name, data = frame.split("\n")
        event = json.loads(data.removeprefix("data: "))
        assert name == f"event: {event['type']}"
        assert event["sequence_number"] == number
        events.append(event)
    return events


def grown(events: list[Any]) -> list[tuple[str, str]]:
    """Items by the events that tell how they grow, each with the text of its deltas; the last ones must agree."""
    items: list[list[str]] = []
    for event in events:
        if event["type"] == "response.output_item.added":
            assert event["output_index"] == len(items)
            items.append([event["item"]["type"], ""])
        elif event["type"].endswith(".delta"):
            items[event["output_index"]][1] += event["delta"]
        elif event["type"].endswith((".text.done", "arguments.done")):
            assert event.get("text", event.get("arguments")) == items[event["output_index"]][1]
    return [(kind, text) for kind, text in items]


def told(response: Any) -> list[tuple[str, str]]:
    return [
        (item["type"], item["arguments"] if item["type"] == "function_call" else item["content"][0]["text"])
        for item in response["output"]
    ]


async def test_a_reply_is_the_same_whole_and_streamed() -> None:
    async with served_app() as server:
        answer, events = await whole(server), await streamed(server)
        assert told(answer) == [("message", REPLY.removesuffix("</s>"))]
        assert (answer["status"], answer["store"], answer["incomplete_details"]) == ("completed", False, None)
        assert [event["type"] for event in events[:2]] == ["response.created", "response.in_progress"]
        assert events[-1]["type"] == "response.completed"
        assert grown(events) == told(answer) == told(events[-1]["response"])
        usage = answer["usage"]
        assert usage["total_tokens"] == usage["input_tokens"] + usage["output_tokens"]
        assert events[-1]["response"]["usage"]["output_tokens"] == usage["output_tokens"]


async def test_thought_text_and_calls_are_items() -> None:
    async with served_app(engine_that(f"<think>hm</think>Sure. {CALL}{CALL}</s>")) as server:
        answer, events = await whole(server, tools=[TOOL]), await streamed(server, tools=[TOOL])
        items = [("reasoning", "hm"), ("message", "Sure."), *[("function_call", '{"x": 1}')] * 2]
        assert told(answer) == grown(events) == told(events[-1]["response"]) == items
        assert {item["status"] for item in answer["output"]} == {"completed"}
        assert [item["name"] for item in answer["output"][2:]] == ["f", "f"]
        assert answer["usage"]["output_tokens_details"] == {"reasoning_tokens": 2}


async def test_a_reply_that_is_cut_off_is_incomplete() -> None:
    async with served_app() as server:
        answer, events = await whole(server, max_output_tokens=4), await streamed(server, max_output_tokens=4)
        assert (answer["status"], answer["output"][0]["status"]) == ("incomplete", "incomplete")
        assert answer["incomplete_details"] == {"reason": "max_output_tokens"}
        assert events[-1]["type"] == "response.incomplete"


async def test_items_become_turns_of_the_conversation() -> None:
    async with served_app() as server:
        items = [
            {"role": "user", "content": [{"type": "input_text", "text": "How much?"}]},
            {"type": "reasoning", "id": "r", "summary": [], "content": [{"type": "reasoning_text", "text": "hm"}]},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"x": 1}'},
            {"type": "function_call", "call_id": "c2", "name": "f", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c1", "output": "42"},
            {
                "type": "message",
                "role": "assistant",
                "content": [{"type": "output_text", "text": "42.", "annotations": []}],
            },
            {"role": "developer", "content": "Go on."},
        ]
        await whole(server, instructions="Be brief.", input=items, tools=[TOOL])
        [prompt] = [command.prompt for command in server.link.sent if isinstance(command, AddRequest)]
        assert not isinstance(prompt, str | list)
        assert [message["role"] for message in prompt.messages] == [
            "system",
            "user",
            "assistant",
            "tool",
            "assistant",
            "system",
        ]
        call = prompt.messages[2]
        assert call["reasoning_content"] == "hm"
        assert [each["id"] for each in call["tool_calls"]] == ["c1", "c2"]
        assert prompt.tools == [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]


async def test_the_last_answer_may_be_sent_back_as_it_was() -> None:
    async with served_app(engine_that(f"<think>hm</think>Sure. {CALL}</s>")) as server:
        output = (await whole(server, tools=[TOOL]))["output"]
        call_id = output[-1]["call_id"]
        items = [*output, {"type": "function_call_output", "call_id": call_id, "output": "1"}]
        await whole(server, input=items, tools=[TOOL])
