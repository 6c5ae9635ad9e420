"""The `openai` client, as it is, against `pagedchat serve` with the model in the box: the matrix of features."""

import asyncio
import json
import threading
import time
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from pagedchat.config import CacheConfig, EngineConfig, ModelConfig
from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.server.options import ServeOptions
from pagedchat.server.run import Server

MODEL = "pagedchat-toy"
USER = [{"role": "user", "content": "Tell me a story about a boy."}]
HELLO = [{"role": "user", "content": "Hello?"}]
COLOUR = {
    "type": "object", "properties": {"colour": {"enum": ["red", "blue"]}}, "required": ["colour"],
    "additionalProperties": False,
}  # fmt: skip


class Running:
    """A server in a thread of its own, with an engine process."""

    def __init__(self) -> None:
        self._listens = threading.Event()
        self.url = ""
        config = EngineConfig(model=ModelConfig(device="cpu"), cache=CacheConfig(num_blocks=400))
        self.server = Server(
            config,
            ServeOptions(port=0, shutdown_seconds=0),
            SamplingOverrides(),
            listening=self._on_listening,
            say=print,
        )
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()
        assert self._listens.wait(60)

    def _run(self) -> None:
        self._loop.run_until_complete(self.server.run())
        self._loop.close()

    def _on_listening(self, url: str) -> None:
        self.url = url
        self._listens.set()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self.server.end)
        self._thread.join(20)
        assert not self._thread.is_alive()

    def blocks_in_use(self) -> float:
        with urllib.request.urlopen(self.url.removesuffix("/v1") + "/metrics") as page:
            lines = page.read().decode().splitlines()
        [line] = [line for line in lines if line.startswith("pagedchat:blocks{") and 'state="in_use"' in line]
        return float(line.rpartition(" ")[2])


@pytest.fixture(scope="module")
def running() -> Iterator[Running]:
    server = Running()
    yield server
    server.close()


@pytest.fixture(scope="module")
def openai() -> Any:
    """Imported where it is asked for: of the processes that collect tests one at most needs it."""
    return pytest.importorskip("openai")


@pytest.fixture(scope="module")
def client(running: Running, openai: Any) -> Iterator[Any]:
    with openai.OpenAI(base_url=running.url, api_key="none", max_retries=0) as made:
        yield made


def test_models(client: Any) -> None:
    [model] = client.models.list().data
    assert (model.id, client.models.retrieve(MODEL).id) == (MODEL, MODEL)


def test_chat_whole_and_streamed_with_a_seed(client: Any) -> None:
    asked = {"model": MODEL, "messages": USER, "max_tokens": 24, "seed": 7}
    whole = client.chat.completions.create(**asked)
    chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert text == whole.choices[0].message.content
    assert whole.choices[0].finish_reason == "length"
    assert chunks[-1].usage.completion_tokens == whole.usage.completion_tokens == 24
    assert chunks[-1].usage.prompt_tokens_details.cached_tokens > 0
    assert client.chat.completions.create(**{**asked, "seed": 8}).choices[0].message.content != text


def test_the_clients_own_stream_helper(client: Any) -> None:
    with client.chat.completions.stream(model=MODEL, messages=HELLO, temperature=0) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_completion()
    assert {"chunk", "content.delta", "content.done"} <= kinds
    assert final.choices[0].message.content


def test_several_replies_stops_penalties_and_bias(client: Any) -> None:
    reply = client.chat.completions.create(
        model=MODEL, messages=USER, max_tokens=12, n=3, seed=3, presence_penalty=0.5, frequency_penalty=0.5,
        logit_bias={"5": -100},
    )  # fmt: skip
    assert [choice.index for choice in reply.choices] == [0, 1, 2]
    assert len({choice.message.content for choice in reply.choices}) > 1
    greedy = {"model": MODEL, "messages": USER, "temperature": 0, "max_tokens": 24}
    text = client.chat.completions.create(**greedy).choices[0].message.content
    word = text.split()[4]
    stopped = client.chat.completions.create(**greedy, stop=[word]).choices[0]
    assert (stopped.finish_reason, word in stopped.message.content) == ("stop", False)
    extra = {"top_k": 1, "min_p": 0.1, "repetition_penalty": 1.0, "min_tokens": 2, "ignore_eos": True}
    assert (
        client.chat.completions.create(**{**greedy, "temperature": 1}, extra_body=extra).choices[0].message.content
    )


def test_logprobs_of_chats_and_completions(client: Any) -> None:
    asked = {
        "model": MODEL,
        "messages": USER,
        "max_tokens": 5,
        "temperature": 0,
        "logprobs": True,
        "top_logprobs": 3,
    }
    choice = client.chat.completions.create(**asked).choices[0]
    tokens = choice.logprobs.content
    assert "".join(token.token for token in tokens) == choice.message.content
    assert all(len(token.top_logprobs) == 3 for token in tokens)
    assert all(token.top_logprobs[0].logprob >= token.logprob for token in tokens)
    streamed = [
        token
        for chunk in client.chat.completions.create(**asked, stream=True)
        for token in (chunk.choices[0].logprobs.content if chunk.choices[0].logprobs else ())
    ]
    assert [token.token for token in streamed] == [token.token for token in tokens]
    echoed = client.completions.create(
        model=MODEL, prompt="The sea", max_tokens=2, temperature=0, logprobs=2, echo=True
    ).choices[0]
    assert echoed.text.startswith("The sea")
    assert echoed.logprobs.token_logprobs[0] is None
    assert all(logprob <= 0 for logprob in echoed.logprobs.token_logprobs[1:])
    assert len(echoed.logprobs.tokens) == len(echoed.logprobs.top_logprobs) == len(echoed.logprobs.text_offset)


def test_completions_of_several_prompts_and_of_tokens(client: Any) -> None:
    reply = client.completions.create(model=MODEL, prompt=["The sea", "The sun"], max_tokens=3, temperature=0)
    assert [choice.index for choice in reply.choices] == [0, 1]
    chunks = client.completions.create(
        model=MODEL, prompt=["The sea", "The sun"], max_tokens=3, temperature=0, stream=True
    )
    texts = {0: "", 1: ""}
    for chunk in chunks:
        texts[chunk.choices[0].index] += chunk.choices[0].text
    assert texts == {choice.index: choice.text for choice in reply.choices}
    assert client.completions.create(model=MODEL, prompt=[1, 424], max_tokens=2).usage.prompt_tokens == 2
    assert len(client.completions.create(model=MODEL, prompt="A", n=1, best_of=3, max_tokens=3).choices) == 1


def test_forms(client: Any) -> None:
    asked = {"model": MODEL, "messages": USER, "max_tokens": 32}
    schema = {"type": "json_schema", "json_schema": {"name": "colour", "schema": COLOUR}}
    for more in (
        {"response_format": schema},
        {"extra_body": {"guided_json": COLOUR}},
        {"extra_body": {"structured_outputs": {"json": COLOUR}}},
    ):
        text = client.chat.completions.create(**asked, **more).choices[0].message.content
        assert json.loads(text)["colour"] in ("red", "blue")
    text = (
        client.chat.completions.create(**asked, extra_body={"guided_choice": ["yes", "no"]})
        .choices[0]
        .message.content
    )
    assert text in ("yes", "no")


def test_a_call_that_is_demanded(client: Any) -> None:
    tools = [{"type": "function", "function": {"name": "paint", "description": "Paint.", "parameters": COLOUR}}]
    for choice in ("required", {"type": "function", "function": {"name": "paint"}}):
        asked = {"model": MODEL, "messages": USER, "tools": tools, "tool_choice": choice, "max_tokens": 64}
        reply = client.chat.completions.create(**asked, parallel_tool_calls=False).choices[0]
        [call] = reply.message.tool_calls
        assert (call.function.name, reply.finish_reason) == ("paint", "tool_calls")
        assert json.loads(call.function.arguments)["colour"] in ("red", "blue")
        with client.chat.completions.stream(**asked, parallel_tool_calls=False) as stream:
            [call] = stream.get_final_completion().choices[0].message.tool_calls
        assert json.loads(call.function.arguments)["colour"] in ("red", "blue")


def test_responses_whole_and_streamed(client: Any) -> None:
    asked = {"model": MODEL, "input": "Hello?", "max_output_tokens": 40, "temperature": 0}
    whole = client.responses.create(**asked)
    with client.responses.stream(**asked) as stream:
        text = "".join(event.delta for event in stream if event.type == "response.output_text.delta")
        final = stream.get_final_response()
    assert text == final.output_text == whole.output_text
    assert (whole.status, whole.usage.output_tokens) == ("completed", final.usage.output_tokens)
    short = client.responses.create(**{**asked, "max_output_tokens": 2})
    assert (short.status, short.incomplete_details.reason) == ("incomplete", "max_output_tokens")
    parsed = client.responses.create(
        **asked,
        text={"format": {"type": "json_schema", "name": "colour", "schema": COLOUR}},
    )
    assert json.loads(parsed.output_text)["colour"] in ("red", "blue")


def test_errors_are_those_of_the_client(client: Any, openai: Any) -> None:
    with pytest.raises(openai.NotFoundError) as caught:
        client.chat.completions.create(model="gpt-9", messages=USER)
    assert (caught.value.code, caught.value.param) == ("model_not_found", "model")
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model=MODEL, messages=USER, extra_body={"foo": 1})
    assert (caught.value.code, caught.value.param) == ("unknown_parameter", "foo")
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model=MODEL, prompt="word " * 3000)
    assert caught.value.code == "context_length_exceeded"
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(
            model=MODEL, messages=USER,
            response_format={"type": "json_schema", "json_schema": {"name": "x", "schema": {"type": "nothing"}}},
        )  # fmt: skip
    assert caught.value.param == "response_format"
    assert caught.value.message.endswith("may have.") or "response_format cannot be held to" in caught.value.message


def test_a_client_that_leaves_in_the_middle_gives_its_blocks_back(client: Any, running: Running) -> None:
    assert running.blocks_in_use() == 0
    streams = [
        client.completions.create(
            model=MODEL, prompt="The sea", max_tokens=1500, stream=True, extra_body={"ignore_eos": True}
        )
        for _ in range(3)
    ]
    for stream in streams:
        next(iter(stream))
    deadline = time.monotonic() + 20
    while not running.blocks_in_use():
        assert time.monotonic() < deadline
    for stream in streams:
        stream.close()
    while running.blocks_in_use():
        assert time.monotonic() < deadline
