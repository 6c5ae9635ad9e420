"""`/v1/completions`: what a reply has, whole and streamed."""

from typing import Any

from tests.server.serving import MODEL, ServedApp, served_app

TEXT = "abcabc"


def texts(events: list[Any]) -> dict[int, str]:
    """Of each choice of a stream."""
    told: dict[int, str] = {}
    for event in events:
        for choice in event["choices"]:
            told[choice["index"]] = told.get(choice["index"], "") + choice["text"]
    return told


async def both(server: ServedApp, **body: Any) -> tuple[Any, list[Any]]:
    whole = await server.complete(**body)
    streamed = await server.complete(**body, stream=True)
    assert (whole.status, streamed.status) == (200, 200), (whole.body, streamed.body)
    assert streamed.headers["content-type"] == "text/event-stream; charset=utf-8"
    return whole.json, streamed.events


async def test_a_reply_is_the_same_whole_and_streamed() -> None:
    async with served_app() as server:
        whole, events = await both(server, max_tokens=6)
        [choice] = whole["choices"]
        assert (whole["object"], whole["model"], choice["finish_reason"]) == ("text_completion", MODEL, "length")
        assert texts(events) == {0: choice["text"]}
        assert [event["choices"][0]["finish_reason"] for event in events] == [None] * (len(events) - 1) + ["length"]
        assert len({event["id"] for event in events}) == 1
        assert whole["usage"] == {
            "prompt_tokens": 2,
            "completion_tokens": 6,
            "total_tokens": 8,
            "prompt_tokens_details": {"cached_tokens": 0},
        }
        assert all("usage" not in event for event in events)


async def test_usage_is_told_at_the_end_or_always_where_it_is_wanted() -> None:
    async with served_app() as server:
        answer = await server.complete(stream=True, stream_options={"include_usage": True})
        *pieces, last = answer.events
        assert all(piece["usage"] is None for piece in pieces)
        assert (last["choices"], last["usage"]["completion_tokens"]) == ([], 4)
        options = {"include_usage": True, "continuous_usage_stats": True}
        events = (await server.complete(stream=True, stream_options=options)).events
        assert [event["usage"]["completion_tokens"] for event in events][-2:] == [4, 4]
        assert events[0]["usage"]["completion_tokens"] < 4


async def test_a_prompt_that_was_there_before_is_counted_as_cached() -> None:
    async with served_app() as server:
        prompt = "the same words again and again"
        await server.complete(prompt=prompt)
        usage = (await server.complete(prompt=prompt)).json["usage"]
        assert usage["prompt_tokens"] == len(prompt)
        assert usage["prompt_tokens_details"]["cached_tokens"] > len(prompt) // 2


async def test_several_prompts_and_several_replies_have_their_places() -> None:
    async with served_app() as server:
        whole, events = await both(server, prompt=["ab", "cde"], n=2, temperature=1, seed=1)
        assert [choice["index"] for choice in whole["choices"]] == [0, 1, 2, 3]
        assert sorted(texts(events)) == [0, 1, 2, 3]
        assert whole["usage"]["prompt_tokens"] == 5
        assert whole["usage"]["completion_tokens"] == 16


async def test_a_prompt_may_be_tokens_and_replies_may_tell_theirs() -> None:
    async with served_app() as server:
        ids = (await server.post("/tokenize", {"prompt": "ab"})).json["tokens"]
        as_text = (await server.complete(prompt="ab", return_token_ids=True)).json["choices"][0]
        for prompt in (ids, [ids]):
            choice = (await server.complete(prompt=prompt, return_token_ids=True)).json["choices"][0]
            assert choice == as_text
            assert choice["prompt_token_ids"] == ids
            assert len(choice["token_ids"]) == 4


async def test_an_echo_tells_the_prompt_first() -> None:
    async with served_app() as server:
        whole, events = await both(server, prompt="ab", echo=True)
        assert whole["choices"][0]["text"].startswith("ab")
        assert texts(events) == {0: whole["choices"][0]["text"]}
        ids = (await server.post("/tokenize", {"prompt": "ab"})).json["tokens"]
        assert (await server.complete(prompt=ids, echo=True)).json["choices"][0]["text"] == whole["choices"][0][
            "text"
        ]
        nothing_more = (await server.complete(prompt="ab", echo=True, max_tokens=0)).json["choices"][0]
        assert nothing_more["text"] == "ab"


async def test_a_stop_string_ends_a_reply_and_is_told() -> None:
    async with served_app() as server:
        reply = (await server.complete(max_tokens=9)).json["choices"][0]["text"]
        stop = reply[4:6]
        choice = (await server.complete(max_tokens=9, stop=stop)).json["choices"][0]
        assert choice["text"] == reply[: reply.index(stop)]
        assert (choice["finish_reason"], choice["stop_reason"]) == ("stop", stop)


async def test_without_a_limit_a_reply_has_sixteen_tokens() -> None:
    async with served_app() as server:
        assert (await server.complete(max_tokens=None, ignore_eos=True)).json["usage"]["completion_tokens"] == 16
