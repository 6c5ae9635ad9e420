"""A server from its start to its end, with engine processes that are fakes."""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pagedchat.config import EngineConfig, ModelConfig
from pagedchat.engine.sampling_params import SamplingOverrides
from pagedchat.errors import PagedChatError
from pagedchat.events import EngineEvent, IntegrityBroken, LoadProgress
from pagedchat.server.options import ServeOptions
from pagedchat.server.run import Server
from pagedchat.service.client import EngineClient
from tests.server.serving import endless_engine
from tests.service.fake_engine import ENTRY


class Run:
    """A server that runs, and what it said."""

    def __init__(self, folder: Path, loader: str, **options: Any) -> None:
        config = EngineConfig(model=ModelConfig(model="fake"))
        self.engine = EngineClient(config, folder, (*ENTRY, f"tests.service.fake_engine:{loader}"))
        self.url: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.said: list[str] = []
        self.heard: list[EngineEvent] = []
        self._saying = asyncio.Event()
        self.server = Server(
            config, ServeOptions(port=0, **options), SamplingOverrides(), listening=self.url.set_result,
            say=self._say, loading=self.heard.append, link=self.engine,
        )  # fmt: skip
        self.task = asyncio.create_task(self.server.run())

    async def until_said(self, start: str) -> None:
        async with asyncio.timeout(20):
            while not any(text.startswith(start) for text in self.said):
                self._saying.clear()
                await self._saying.wait()

    async def ask(self, text: str) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """A request as it goes over the wire."""
        host, port = (await self.url).removeprefix("http://").removesuffix("/v1").split(":")
        reader, writer = await asyncio.open_connection(host, int(port))
        writer.write(text.replace("\n", "\r\n").encode())
        return reader, writer

    async def get(self, path: str) -> bytes:
        reader, writer = await self.ask(f"GET {path} HTTP/1.1\nHost: localhost\nConnection: close\n\n")
        answer = await reader.read()
        writer.close()
        return answer

    async def stream(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        body = '{"prompt": "a", "stream": true, "max_tokens": 900, "ignore_eos": true}'
        head = "POST /v1/completions HTTP/1.1\nHost: localhost\nContent-Type: application/json\nContent-Length: "
        return await self.ask(f"{head}{len(body)}\n\n{body}")

    def _say(self, text: str) -> None:
        self.said.append(text)
        self._saying.set()


@asynccontextmanager
async def run(folder: Path, loader: str = "load", **options: Any) -> AsyncIterator[Run]:
    running = Run(folder, loader, **options)
    try:
        async with asyncio.timeout(60):
            yield running
    finally:
        if not running.task.done():
            running.server.end()
            running.server.end()
            await asyncio.wait({running.task}, timeout=20)


async def test_it_loads_serves_and_ends(tmp_path: Path) -> None:
    async with run(tmp_path) as running:
        assert b"200 OK" in await running.get("/health")
        assert any(isinstance(event, LoadProgress) for event in running.heard)
        running.server.end()
        await running.task
        assert running.engine.pid is None
        assert running.said == []


async def test_a_running_stream_is_cut_at_the_end_when_its_time_is_up(tmp_path: Path) -> None:
    async with run(tmp_path, "load_endless", shutdown_seconds=0.05) as running:
        reader, writer = await running.stream()
        await reader.readuntil(b"data: ")
        running.server.end()
        rest = await reader.read()
        writer.close()
        await running.task
        assert b'data: {"error":{"message":"The server ends, and this reply with it."' in rest
        assert running.said == ["Ending: running requests have 0.05 s; ^C cuts them."]


async def test_a_second_signal_cuts_at_once(tmp_path: Path) -> None:
    async with run(tmp_path, "load_endless", shutdown_seconds=3600) as running:
        reader, writer = await running.stream()
        await reader.readuntil(b"data: ")
        running.server.end()
        await running.until_said("Ending")
        running.server.end()
        assert b'"error"' in await reader.read()
        writer.close()
        await running.task


async def test_an_engine_that_dies_is_told_and_comes_back(tmp_path: Path) -> None:
    async with run(tmp_path, "load_endless") as running:
        reader, writer = await running.stream()
        await reader.readuntil(b"data: ")
        assert running.engine._process is not None
        running.engine._process.kill()
        rest = await reader.readuntil(b'"error"')
        assert b"[DONE]" not in rest
        writer.close()
        await running.until_said("The engine ended unexpectedly; another one is being started.")
        await running.until_said("The engine is back.")
        assert b"200 OK" in await running.get("/health")


async def test_an_engine_that_dies_again_and_again_ends_it(tmp_path: Path) -> None:
    async with run(tmp_path, "load_crash") as running:
        await running.url
        for _ in range(4):
            reader, writer = await running.stream()
            with contextlib.suppress(ConnectionError):
                await reader.readuntil(b'"error"')
            writer.close()
            back = asyncio.ensure_future(running.until_said("The engine is back."))
            await asyncio.wait((back, running.task), return_when=asyncio.FIRST_COMPLETED)
            back.cancel()
            running.said.clear()
        with pytest.raises(PagedChatError) as caught:
            await running.task
    assert caught.value.message == "The engine ended again and again."
    assert caught.value.hint.startswith("Its log is ")


async def test_an_engine_whose_books_disagree_ends_it() -> None:
    link = endless_engine()
    config, url = EngineConfig(), asyncio.get_running_loop().create_future()
    server = Server(
        config, ServeOptions(port=0), SamplingOverrides(), listening=url.set_result, say=print, link=link
    )  # fmt: skip
    running = asyncio.create_task(server.run())
    await url
    link.say(IntegrityBroken(7, "block 3 has two owners", "/tmp/dump.json"))
    with pytest.raises(PagedChatError) as caught:
        await asyncio.wait_for(running, 20)
    assert str(caught.value) == (
        "The engine's books disagree: block 3 has two owners. "
        "What was known of it is in /tmp/dump.json; please report it."
    )


async def test_an_engine_that_cannot_start_ends_it(tmp_path: Path) -> None:
    async with run(tmp_path, "load_missing") as running:
        with pytest.raises(PagedChatError) as caught:
            await running.task
        assert not running.url.done()
    assert str(caught.value) == "There is no model 'fake'. Check its name."


async def test_it_can_be_ended_while_it_loads(tmp_path: Path) -> None:
    async with run(tmp_path) as running:
        await asyncio.sleep(0)
        running.server.end()
        await running.task
        assert not running.url.done()


async def test_a_port_that_is_taken_is_told_before_anything_is_loaded(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        with pytest.raises(PagedChatError) as caught:
            Server(EngineConfig(), ServeOptions(port=port), SamplingOverrides(), listening=print, say=print)
    assert str(caught.value) == (
        f"The server cannot listen on 127.0.0.1, port {port}: address already in use. "
        "Give another --port; 0 takes any that is free."
    )
