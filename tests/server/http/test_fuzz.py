"""Every endpoint asked what its own description allows, and a little more: no error of ours, no block kept."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pagedchat.server.http.openapi import described
from tests.server.serving import engine_that, served_app
from tests.service.fake_engine import REPLY

PAGE = json.loads(described())
POSTS = [path for path, item in PAGE["paths"].items() if "post" in item]
MAY_FAIL = {400, 404, 413, 415}
Strategy = st.SearchStrategy[Any]

_TEXT = st.sampled_from(
    ["", "a", "user", "assistant", "fake", "hello there", "function", "\x1b[31m", "ä\U0001f600", "</s>"]
)
_WHOLE = st.sampled_from([0, 1, 2, 3, 8]) | st.integers(-(2**70), 2**70)
_NUMBER = st.sampled_from([0, 0.5, 1, 2]) | st.floats(allow_nan=False, allow_infinity=False)
_ANY = st.recursive(
    st.none() | st.booleans() | _WHOLE | _TEXT,
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_TEXT, inner, max_size=2),
    max_leaves=5,
)
REPLIES = [
    REPLY, "<think>hm</think>Yes.</s>", '<tool_call>{"name": "a", "arguments": {"x": 1}}</tool_call></s>', "</s>",
    '[TOOL_CALLS][{"name": "a"', '{"name": "a", "parameters": {}}</s>',
]  # fmt: skip


def strategy(schema: dict[str, Any]) -> Strategy:
    """What a schema allows; of fields some, and now and then one that it does not know."""
    if "$ref" in schema:
        return strategy(PAGE["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    if "anyOf" in schema:
        return st.one_of([strategy(each) for each in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "const" in schema:
        return st.just(schema["const"])
    return _OF_TYPE[schema.get("type", "any")](schema)


def _object(schema: dict[str, Any]) -> Strategy:
    known = schema.get("properties")
    if known is None:
        values = schema.get("additionalProperties")
        return st.dictionaries(_TEXT, strategy(values) if isinstance(values, dict) else _ANY, max_size=2)
    needed = set(schema.get("required", ()))
    fields = {name: strategy(each) for name, each in known.items()}
    optional = st.sampled_from([name for name in fields if name not in needed] or ["unknown"])

    @st.composite
    def build(draw: st.DrawFn) -> dict[str, Any]:
        chosen = needed | draw(st.sets(optional, max_size=3))
        value = {name: draw(fields[name]) if name in fields else 1 for name in sorted(chosen)}
        if draw(st.integers(0, 59)) == 59:
            value[draw(_TEXT)] = draw(_ANY)
        return value

    return build()


_OF_TYPE: dict[str, Callable[[dict[str, Any]], Strategy]] = {
    "object": _object,
    "array": lambda schema: st.lists(strategy(schema["items"]) if schema.get("items") else _ANY, max_size=3),
    "string": lambda _: _TEXT,
    "integer": lambda _: _WHOLE,
    "number": lambda _: _NUMBER,
    "boolean": lambda _: st.booleans(),
    "null": lambda _: st.none(),
    "any": lambda _: _ANY,
}


def bodies(path: str) -> Strategy:
    return strategy(PAGE["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"])


async def ask(path: str, body: Any, reply: str, leaves: int) -> None:
    async with served_app(engine_that(reply)) as server:
        call = server.begin(path, body)
        if leaves:
            for _ in range(leaves):
                await asyncio.sleep(0)
            call.leave()
        answer = await call.over()
        if leaves or answer.status == 200:
            return
        assert answer.status in MAY_FAIL, (answer.status, answer.body)
        assert answer.error["type"] in ("invalid_request_error", "not_found_error", "server_error")


@settings(suppress_health_check=[HealthCheck.too_slow, HealthCheck.large_base_example])
@given(st.data())
def test_whatever_the_description_allows_is_served_or_refused_in_words(data: st.DataObject) -> None:
    path = data.draw(st.sampled_from(POSTS))
    body = data.draw(bodies(path))
    # Whoever asks for many tokens of a model that does not end waits for them.
    if isinstance(body, dict) and path.startswith("/v1/"):
        field = "max_output_tokens" if path == "/v1/responses" else "max_tokens"
        body.setdefault(field, 8)
    if isinstance(body, dict):
        body["model"] = data.draw(st.sampled_from(["fake", "fake", "fake", body.get("model")]))
    asyncio.run(
        ask(path, body, data.draw(st.sampled_from(REPLIES)), data.draw(st.sampled_from([0, 0, 0, 1, 5, 30])))
    )


@given(st.sampled_from(POSTS), st.binary(max_size=64))
def test_any_bytes_are_refused_in_words(path: str, body: bytes) -> None:
    asyncio.run(ask(path, body, REPLY, 0))
