"""A small OpenAI-compatible server that does what a test tells it to, and everything wrong that it is told to.

Spoken by hand over asyncio, so that it can cut, stall and send what no library would. What it does with a chat is
said by the last prompt's first word (`cut`, `stall`, `huge`, ...), or by `answer`. By hand: `python -m
tests.misbehaving_server --port 8123 --kind vllm`, then `pagedchat --server localhost:8123`.
"""

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

VLLM_METRICS = """\
# HELP vllm:num_requests_running Number of requests in model execution batches.
# TYPE vllm:num_requests_running gauge
vllm:num_requests_running{engine="0",model_name="org/tiny"} 3.0
vllm:num_requests_running{engine="1",model_name="org/tiny"} 2.0
# TYPE vllm:num_requests_waiting gauge
vllm:num_requests_waiting{engine="0",model_name="org/tiny"} 1.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0",model_name="org/tiny"} 0.25
vllm:kv_cache_usage_perc{engine="1",model_name="org/tiny"} 0.35
# TYPE vllm:prefix_cache_queries_total counter
vllm:prefix_cache_queries_total{engine="0",model_name="org/tiny"} 1000.0
vllm:prefix_cache_hits_total{engine="0",model_name="org/tiny"} 640.0
vllm:num_preemptions_total{engine="0",model_name="org/tiny"} 4.0
vllm:prompt_tokens_total{engine="0",model_name="org/tiny"} 52000.0
vllm:generation_tokens_total{engine="0",model_name="org/tiny"} 8100.0
vllm:cache_config_info{block_size="16",num_gpu_blocks="27504",engine="0"} 1.0
"""


@dataclass
class Request:
    """What the server was asked."""

    method: str
    path: str
    headers: dict[str, str]
    body: dict[str, Any]

    @property
    def prompt(self) -> str:
        """The last message, or the text to be gone on with."""
        messages = self.body.get("messages") or [{"content": self.body.get("prompt", "")}]
        return str(messages[-1]["content"])


Answer = Callable[[asyncio.StreamWriter, Request], Awaitable[None]]


@dataclass
class MisbehavingServer:
    """`async with MisbehavingServer() as server:` listens on a port of 127.0.0.1 that is free."""

    models: list[dict[str, Any]] = field(
        default_factory=lambda: [{"id": "org/tiny", "object": "model", "owned_by": "vllm", "max_model_len": 4096}]
    )
    metrics: str | None = VLLM_METRICS
    """None: there are none."""
    list_models: bool = True
    key: str = ""
    """Which it wants; empty: none."""
    answer: Answer | None = None
    """To every chat and completion, whatever the prompt says."""
    token_seconds: float = 0.0
    port: int = 0
    requests: list[Request] = field(default_factory=list)
    go_on: asyncio.Event = field(default_factory=asyncio.Event)
    """What stalls ends when this is set."""
    arrived: asyncio.Queue[Request] = field(default_factory=asyncio.Queue)
    """Chats and completions, as they come in."""
    _serving: set[asyncio.Task[None]] = field(default_factory=set)
    """One a connection."""

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/v1"

    @property
    def asked(self) -> list[Request]:
        """Chats and completions."""
        return [request for request in self.requests if request.path.endswith("completions")]

    async def __aenter__(self) -> "MisbehavingServer":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, limit=1 << 24)
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    async def __aexit__(self, *error: object) -> None:
        self._server.close()
        for task in self._serving:
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            while (request := await _read(reader)) is not None:
                self.requests.append(request)
                await self._handle(writer, request)
        except (ConnectionError, asyncio.IncompleteReadError, asyncio.CancelledError):
            pass
        finally:
            self._serving.discard(task)
            writer.transport.abort()
            with suppress(ConnectionError):
                await writer.wait_closed()

    async def _handle(self, writer: asyncio.StreamWriter, request: Request) -> None:
        if self.key and request.headers.get("authorization") != f"Bearer {self.key}":
            said = f"Incorrect API key provided: {request.headers.get('authorization')}."
            await send_error(writer, 401, said, "invalid_api_key")
        elif request.path == "/v1/models" and self.list_models:
            await send_json(writer, 200, {"object": "list", "data": self.models})
        elif request.path == "/metrics" and self.metrics is not None:
            await send(writer, 200, self.metrics.encode(), "text/plain; version=0.0.4")
        elif request.path in ("/v1/chat/completions", "/v1/completions"):
            self.arrived.put_nowait(request)
            await (self.answer or self._by_prompt)(writer, request)
        else:
            await send_error(writer, 404, "Not Found")

    async def _by_prompt(self, writer: asyncio.StreamWriter, request: Request) -> None:
        word = (request.prompt.split() or [""])[0].lower()
        match word:
            case "cut":
                await stream(writer, request, ["This reply ", "is cut "], finish=None)
                writer.close()
            case "stall":
                await stream(writer, request, ["One word, ", "then "], finish=None, end=False)
                await self.go_on.wait()
                await stream_on(writer, request, ["nothing for long."])
            case "wait":
                await self.go_on.wait()
                await stream(writer, request, ["At last."])
            case "huge":
                await start_stream(writer)
                await chunk(writer, b"data: " + b"x" * (3 << 20) + b"\n\n")
            case "garbage":
                await start_stream(writer)
                await chunk(writer, b"data: {this is no JSON\n\n")
            case "escapes":
                await stream(writer, request, ["\x1b[31mred\x1b[0m ", "\x1b]0;title\x07", "[bold]plain[/bold]"])
            case "thoughts":
                await stream(writer, request, ["It is two."], thoughts=["One and ", "one?"])
            case "400":
                await send_error(writer, 400, "temperature must be at most 2", "invalid_request", "temperature")
            case "429" | "500" | "503":
                await send_error(writer, int(word), "try later", headers={"Retry-After": "0"})
            case _:
                last = self._reply(request)
                await stream(writer, request, last, seconds=self.token_seconds)

    def _reply(self, request: Request) -> list[str]:
        if request.body.get("continue_final_message"):
            return ["and ", "on ", "it ", "goes."]
        words = f"You said: {request.prompt}".split(" ")
        return [f"{word} " for word in words[:-1]] + words[-1:]


# --- what is sent -------------------------------------------------------------------------------------


async def start_stream(writer: asyncio.StreamWriter) -> None:
    """The head of a streamed answer."""
    writer.write(
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
    )
    await writer.drain()


async def chunk(writer: asyncio.StreamWriter, data: bytes) -> None:
    """A chunk of the body."""
    writer.write(f"{len(data):x}\r\n".encode() + data + b"\r\n")
    await writer.drain()


async def stream(
    writer: asyncio.StreamWriter,
    request: Request,
    pieces: list[str],
    finish: str | None = "stop",
    *,
    end: bool = True,
    seconds: float = 0.0,
    thoughts: list[str] | None = None,
) -> None:
    """A reply in pieces; without `finish` it just ends."""
    await start_stream(writer)
    for thought in thoughts or []:
        await chunk(writer, event({"choices": [{"index": 0, "delta": {"reasoning_content": thought}}]}))
    await _pieces(writer, request, pieces, seconds)
    if end:
        await _end(writer, request, len(pieces), finish)


async def stream_on(writer: asyncio.StreamWriter, request: Request, pieces: list[str]) -> None:
    """The rest of a reply that had begun."""
    await _pieces(writer, request, pieces, 0.0)
    await _end(writer, request, len(pieces), "stop")


async def _pieces(writer: asyncio.StreamWriter, request: Request, pieces: list[str], seconds: float) -> None:
    for piece in pieces:
        delta = {"text": piece} if "prompt" in request.body else {"delta": {"content": piece}}
        await chunk(writer, event({"choices": [{"index": 0, **delta}]}))
        if seconds:
            await asyncio.sleep(seconds)


async def _end(writer: asyncio.StreamWriter, request: Request, count: int, finish: str | None) -> None:
    if finish is not None:
        await chunk(writer, event({"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}))
        prompt = len(json.dumps(request.body.get("messages", ""))) // 4
        usage = {"prompt_tokens": prompt, "completion_tokens": count, "total_tokens": prompt + count,
                 "prompt_tokens_details": {"cached_tokens": prompt // 2}}  # fmt: skip
        await chunk(writer, event({"choices": [], "usage": usage}))
        await chunk(writer, b"data: [DONE]\n\n")
    await chunk(writer, b"")


def event(body: dict[str, Any]) -> bytes:
    """A server-sent event."""
    whole = {"id": "cmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "org/tiny", **body}
    return b"data: " + json.dumps(whole).encode() + b"\n\n"


async def send(
    writer: asyncio.StreamWriter, status: int, body: bytes, kind: str, headers: dict[str, str] | None = None
) -> None:
    """A whole answer."""
    head = [f"HTTP/1.1 {status} X", f"Content-Type: {kind}", f"Content-Length: {len(body)}"]
    head += [f"{name}: {value}" for name, value in (headers or {}).items()]
    writer.write("\r\n".join([*head, "", ""]).encode() + body)
    await writer.drain()


async def send_json(writer: asyncio.StreamWriter, status: int, body: object) -> None:
    """The same in JSON."""
    await send(writer, status, json.dumps(body).encode(), "application/json")


async def send_error(
    writer: asyncio.StreamWriter,
    status: int,
    message: str,
    code: str = "error",
    param: str | None = None,
    headers: dict[str, str] | None = None,
) -> None:
    """An error as OpenAI's API has them."""
    body = {"error": {"message": message, "type": code, "param": param, "code": code}}
    await send(writer, status, json.dumps(body).encode(), "application/json", headers)


async def _read(reader: asyncio.StreamReader) -> Request | None:
    head = await reader.readuntil(b"\r\n\r\n")
    first, *lines = head.decode().split("\r\n")
    if not first:
        return None
    method, path, _ = first.split(" ")
    headers = {name.lower(): value for name, _, value in (line.partition(": ") for line in lines if line)}
    raw = await reader.readexactly(int(headers.get("content-length", "0")))
    return Request(method, path, headers, json.loads(raw) if raw else {})


async def _by_hand(args: argparse.Namespace) -> None:
    names = args.model or ["org/tiny"]
    models = [{"id": name, "object": "model", "owned_by": args.kind, "max_model_len": 4096} for name in names]
    metrics = VLLM_METRICS if args.kind == "vllm" else None
    server = MisbehavingServer(
        models=models, metrics=metrics, key=args.key, token_seconds=args.seconds, port=args.port
    )
    async with server:
        print(server.url, flush=True)
        await asyncio.Event().wait()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--kind", default="vllm")
    parser.add_argument("--model", action="append")
    parser.add_argument("--key", default="")
    parser.add_argument("--seconds", type=float, default=0.05)
    asyncio.run(_by_hand(parser.parse_args()))
