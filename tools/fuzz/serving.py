"""A server asked what its own description allows, and a little more: no error of ours, and no block is kept."""

import asyncio
import json
from collections.abc import Callable
from typing import Any, NamedTuple

from hypothesis import strategies as st

from pagedchat.server.http.openapi import described
from tests.server.serving import engine_that, served_app
from tests.service.fake_engine import REPLY
from tools.fuzz.target import Target

_PAGE = json.loads(described())
_POSTS = [path for path, item in _PAGE["paths"].items() if "post" in item]
_MAY_FAIL = (400, 404, 413, 415)
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
_REPLIES = [
    REPLY, "<think>hm</think>Yes.</s>", '<tool_call>{"name": "a", "arguments": {"x": 1}}</tool_call></s>', "</s>",
    '[TOOL_CALLS][{"name": "a"', '{"name": "a", "parameters": {}}</s>',
]  # fmt: skip


def _strategy(schema: dict[str, Any]) -> Strategy:
    """What a schema allows; of fields some, and now and then one that it does not know."""
    if "$ref" in schema:
        return _strategy(_PAGE["components"]["schemas"][schema["$ref"].rpartition("/")[2]])
    if "anyOf" in schema:
        return st.one_of([_strategy(each) for each in schema["anyOf"]])
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if "const" in schema:
        return st.just(schema["const"])
    return _OF_TYPE[schema.get("type", "any")](schema)


def _object(schema: dict[str, Any]) -> Strategy:
    known = schema.get("properties")
    if known is None:
        values = schema.get("additionalProperties")
        return st.dictionaries(_TEXT, _strategy(values) if isinstance(values, dict) else _ANY, max_size=2)
    needed = set(schema.get("required", ()))
    fields = {name: _strategy(each) for name, each in known.items()}
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
    "array": lambda schema: st.lists(_strategy(schema["items"]) if schema.get("items") else _ANY, max_size=3),
    "string": lambda _: _TEXT,
    "integer": lambda _: _WHOLE,
    "number": lambda _: _NUMBER,
    "boolean": lambda _: st.booleans(),
    "null": lambda _: st.none(),
    "any": lambda _: _ANY,
}


def _bodies(path: str) -> Strategy:
    return _strategy(_PAGE["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"])


class _Request(NamedTuple):
    """One, of an engine whose model recites `reply`."""

    path: str
    body: Any
    reply: str
    leaves: int
    """After so many turns of the loop the client goes away; 0: it stays."""


@st.composite
def _requests(draw: st.DrawFn) -> _Request:
    path = draw(st.sampled_from(_POSTS))
    body = draw(_bodies(path))
    if isinstance(body, dict):
        body["model"] = draw(st.sampled_from(["fake", "fake", "fake", body.get("model")]))
        if path.startswith("/v1/"):  # whoever asks for many tokens of a model that does not end waits for them
            body.setdefault("max_output_tokens" if path == "/v1/responses" else "max_tokens", 8)
    return _Request(path, body, draw(st.sampled_from(_REPLIES)), draw(st.sampled_from([0, 0, 0, 1, 5, 30])))


def _check(request: _Request) -> None:
    asyncio.run(_ask(request))


async def _ask(request: _Request) -> None:
    async with served_app(engine_that(request.reply)) as server:  # which looks at the blocks in the end
        call = server.begin(request.path, request.body)
        if request.leaves:
            for _ in range(request.leaves):
                await asyncio.sleep(0)
            call.leave()
        answer = await call.over()
        if not request.leaves and answer.status != 200:
            assert answer.status in _MAY_FAIL, (answer.status, answer.body)
            assert answer.error["type"] in ("invalid_request_error", "not_found_error")


_RAW = st.builds(_Request, st.sampled_from(_POSTS), st.binary(max_size=64), st.just(REPLY), st.just(0))

TARGETS = (Target("serving", _requests(), _check), Target("serving, bytes", _RAW, _check))
