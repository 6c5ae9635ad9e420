"""A server in this process: the app over an engine whose model recites, asked without a socket."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any

from starlette.types import ASGIApp

from pagedchat.config import EngineConfig, ModelConfig, SchedulerConfig
from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.server.app import build_app
from pagedchat.server.opening import OpenedEngine, open_engine
from pagedchat.server.options import ServeOptions
from tests.api.linked_engine import LinkedEngine
from tests.fakes import FakeModelRunner, byte_tokenizer, reciting
from tests.service.fake_engine import BLOCK_SIZE, REPLY

MODEL = "fake"


@dataclass
class Answer:
    """What came back."""

    status: int = 0
    headers: dict[str, str] = field(default_factory=dict)
    body: bytes = b""

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> dict[str, Any]:
        """Of a refusal, which has nothing but that."""
        [(name, error)] = self.json.items()
        assert name == "error"
        assert set(error) == {"message", "type", "param", "code"}
        assert error["message"]
        return error

    @property
    def events(self) -> list[Any]:
        """Of a stream, without its last one."""
        *events, last = self.body.decode().removesuffix("\n\n").split("\n\n")
        assert last == "data: [DONE]"
        return [json.loads(event.removeprefix("data: ")) for event in events]


class Call:
    """One request on its way. What the app writes lands in `answer`; `leave` is a client that goes away."""

    def __init__(
        self,
        app: ASGIApp,
        method: str,
        path: str,
        body: bytes,
        headers: dict[str, str],
        host: str = "localhost",
        is_whole: bool = True,
    ) -> None:
        self.answer = Answer()
        self.written = asyncio.Event()
        """Set with every piece of a body."""
        self.may_write = asyncio.Event()
        """Cleared, the client does not read."""
        self.may_write.set()
        self._left = asyncio.Event()
        self._messages = [{"type": "http.request", "body": body, "more_body": not is_whole}]
        lower = {"host": host, "content-type": "application/json", **headers}
        scope = {
            "type": "http", "method": method, "path": path, "raw_path": path.encode(), "query_string": b"",
            "headers": [(name.lower().encode(), value.encode()) for name, value in lower.items() if value],
            "http_version": "1.1", "scheme": "http", "server": ("127.0.0.1", 80), "client": ("127.0.0.1", 1),
            "root_path": "", "asgi": {"version": "3.0", "spec_version": "2.3"},
        }  # fmt: skip
        self.task = asyncio.ensure_future(app(scope, self._receive, self._send))  # type: ignore[arg-type]

    def leave(self) -> None:
        self._left.set()

    async def over(self) -> Answer:
        await asyncio.wait_for(self.task, 20)
        return self.answer

    async def _receive(self) -> Any:
        if self._messages:
            return self._messages.pop()
        await self._left.wait()
        return {"type": "http.disconnect"}

    async def _send(self, message: Any) -> None:
        await self.may_write.wait()
        if message["type"] == "http.response.start":
            self.answer.status = message["status"]
            self.answer.headers = {name.decode(): value.decode() for name, value in message["headers"]}
        elif not self._left.is_set():
            self.answer.body += message.get("body", b"")
            self.written.set()


@dataclass
class ServedApp:
    """The app and what stands behind it."""

    app: ASGIApp
    opened: OpenedEngine
    link: LinkedEngine

    def begin(
        self,
        path: str,
        body: Any = None,
        *,
        method: str = "POST",
        headers: dict[str, str] | None = None,
        **more: Any,
    ) -> Call:
        data = body if isinstance(body, bytes) else b"" if body is None else json.dumps(body).encode()
        return Call(self.app, method, path, data, headers or {}, **more)

    async def post(self, path: str, body: Any = None, **more: Any) -> Answer:
        return await self.begin(path, body, **more).over()

    async def get(self, path: str, **more: Any) -> Answer:
        return await self.begin(path, method="GET", **more).over()

    async def complete(self, **body: Any) -> Answer:
        return await self.post("/v1/completions", {"prompt": "ab", "max_tokens": 4, "temperature": 0, **body})

    async def chat(self, *texts: str, **body: Any) -> Answer:
        messages = [{"role": "user", "content": text} for text in texts or ("hello",)]
        return await self.post("/v1/chat/completions", {"messages": messages, "temperature": 0, **body})


def engine_that(reply: str = REPLY, **loaded: Any) -> LinkedEngine:
    """Recites `reply` to everything."""
    return LinkedEngine(FakeModelRunner(reciting(byte_tokenizer(), reply), BLOCK_SIZE), **loaded)


def endless_engine() -> LinkedEngine:
    """Never ends a reply by itself."""
    return LinkedEngine(FakeModelRunner(block_size=BLOCK_SIZE))


@asynccontextmanager
async def served_app(
    link: LinkedEngine | None = None, *, max_num_seqs: int = 256, start: bool = True, **options: Any
) -> AsyncIterator[ServedApp]:
    """At the end nothing is left of any request."""
    link = link or engine_that()
    config = EngineConfig(model=ModelConfig(model=MODEL), scheduler=SchedulerConfig(max_num_seqs=max_num_seqs))
    given = ServeOptions(**options)
    opened = open_engine(config, given, SamplingOverrides(), lambda _: None, link)
    app = build_app(opened.served, api_key=given.api_key, origins=given.origins, log_requests=given.log_requests)
    if start:
        await opened.llm.start()
    try:
        yield ServedApp(app, opened, link)
        assert opened.served.admission.num_inside == 0
        for _ in range(20):  # an iterator that was left says so in a turn of the loop or two
            await asyncio.sleep(0)
        link.assert_at_rest()
    finally:
        await opened.llm.close()
