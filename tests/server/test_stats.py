"""`pagedchat stats` of a server: who uses it, its engine, and no word of anybody's text."""

import argparse
import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pagedchat import events as ev
from pagedchat.chat.turns import Turn
from pagedchat.cli.stats import add_stats_options, run_stats
from pagedchat.engine.sampling_params import SamplingOverrides, SamplingParams
from pagedchat.errors import InvalidValueError, PagedChatError
from pagedchat.metrics.fold import MetricsFold
from pagedchat.remote.address import address_of
from pagedchat.remote.attached import AttachedLink
from pagedchat.remote.stats import ask_server
from pagedchat.server import hub, stats
from pagedchat.server.admission import Admission
from pagedchat.server.attach import AttachServer
from pagedchat.server.engine import EngineState
from pagedchat.server.stats import ServerStats
from pagedchat.service.commands import Generate
from tests.server.hub_walk import RigLink
from tests.server.test_run import Run, run


async def printed(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    parser = argparse.ArgumentParser()
    add_stats_options(parser)
    assert await asyncio.to_thread(run_stats, parser.parse_args(argv)) == 0
    return capsys.readouterr().out


async def url_of(running: Run) -> str:
    return (await running.url).removesuffix("/v1")


async def test_a_server_tells_who_uses_it_and_nothing_of_what_they_say(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with run(tmp_path, "load_endless") as running:
        url = await url_of(running)
        link = AttachedLink(address_of("--attach", url), key="a user")
        await link.start()
        events = link.events()
        while not isinstance(await anext(events), ev.EngineReady):
            pass
        link.send(Generate(1, 1, [Turn("user", "a secret")], SamplingOverrides(max_tokens=900, ignore_eos=True)))
        while not isinstance(await anext(events), ev.TextDelta):
            pass
        reader, writer = await running.stream()
        await reader.readuntil(b"data: ")
        told: dict[str, Any] = {"chats": []}
        while len(told["chats"]) < 2:  # steps are told at the rate at which screens draw
            told = await asyncio.to_thread(ask_server, address_of("URL", url), "")
        assert told["state"] == "running"
        assert told["serves"] == {
            "url": await running.url, "requests": 1, "terminals": 1, "left": 0, "onlookers": 0,
        }  # fmt: skip
        assert [chat["name"] for chat in told["chats"]] == ["terminal 1, chat 1", "request"]
        assert told["chats_left_out"] == 0
        assert told["queues"]["running"] == 2
        assert told["rates"]["batch"] in (1, 2)
        assert "secret" not in json.dumps(told)
        text = await printed(capsys, url)
        assert f"serves   {url}/v1: 1 request, 1 terminal, 0 onlookers\n" in text
        assert f"metrics  {url}/metrics\n" in text
        assert "1 terminal 1, chat 1  running" in text
        assert json.loads(await printed(capsys, url, "--json"))["pid"] == told["pid"]
        writer.close()
        await link.close()


async def test_a_key_is_asked_for_by_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async with run(tmp_path, api_key="letmein") as running:
        url = await url_of(running)
        where = url.removeprefix("http://")
        for key, wanted in (("", "an API key"), ("other", "another API key")):
            monkeypatch.setenv("PAGEDCHAT_API_KEY", key)
            with pytest.raises(PagedChatError) as refused:
                await printed(capsys, url)
            assert str(refused.value) == (
                f"The server at {where} wants {wanted}. Put it into the variable PAGEDCHAT_API_KEY."
            )
        monkeypatch.setenv("PAGEDCHAT_API_KEY", "letmein")
        assert "idle" in await printed(capsys, where)


@asynccontextmanager
async def answering(answer: bytes) -> AsyncIterator[str]:
    """Somebody else's server."""

    async def answer_one(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(answer)
        writer.close()
        await writer.wait_closed()

    async with await asyncio.start_server(answer_one, "127.0.0.1", 0) as server:
        yield f"127.0.0.1:{server.sockets[0].getsockname()[1]}"


def page(body: bytes, status: str = "200 OK") -> bytes:
    return b"HTTP/1.1 %s\r\ncontent-length: %d\r\n\r\n%s" % (status.encode(), len(body), body)


FOREIGN = {
    "no page": page(b"no", "404 Not Found"),
    "no JSON": page(b"<html>"),
    "a list": page(b"[1]"),
    "nested": page(b"[" * 100_000),
    "no fields": page(b"{}"),
    "other kinds": page(json.dumps(dict.fromkeys(
        ("version", "pid", "model", "uptime", "state", "engine", "pool", "queues", "counters", "rates", "chats",
         "metrics_url"), 7)).encode()),
}  # fmt: skip


@pytest.mark.parametrize("answer", FOREIGN.values(), ids=FOREIGN)
async def test_what_is_no_pagedchat_is_told(answer: bytes, capsys: pytest.CaptureFixture[str]) -> None:
    async with answering(answer) as where:
        with pytest.raises(PagedChatError, match=f"What answers at {where} is no pagedchat that tells its figures"):
            await printed(capsys, where)


async def test_what_cannot_be_reached_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    async with answering(b"") as where:
        with pytest.raises(PagedChatError, match=f"The server at {where} cannot be asked: "):
            await printed(capsys, where)
    with pytest.raises(PagedChatError, match=f"Nothing answers at {where}. Start it with: pagedchat serve"):
        await printed(capsys, where)


@pytest.mark.parametrize(
    ("argv", "said"),
    [
        (["ftp://x"], "URL is 'ftp://x'. It must be a URL such as http://127.0.0.1:8000."),
        (["localhost", "--pid", "1"], "Both a URL and --pid are given. Give one of them."),
    ],
)
async def test_mistakes_name_what_is_wrong(argv: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(InvalidValueError) as refused:
        await printed(capsys, *argv)
    assert str(refused.value) == said


async def told_of(link: RigLink, *, answers: bool = True) -> dict[str, Any]:
    """With a report that five sequences wait."""
    state, figures = EngineState(), MetricsFold()
    state.fold(link.info)
    core = link.rig.loop._core
    for seq_id in [core.open() for _ in range(5)]:
        core.extend(seq_id, [7, 8, 9, 10, 11], SamplingParams(max_tokens=2))
    link.rig.loop._settle()
    link.pump()
    [steps] = [event for event in link.rig.events if isinstance(event, ev.Steps)]
    figures.fold(steps)
    answer = ServerStats("fake", state, figures, link.hub, AttachServer(link.hub), Admission(1))
    telling = asyncio.create_task(answer())
    if answers:
        await asyncio.sleep(0)
        link.pump()
    return await telling


async def test_figures_of_many_sequences_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hub, "MOST_SEQUENCES", 2)
    told = await told_of(RigLink(500))
    assert (len(told["chats"]), told["chats_left_out"]) == (2, 3)
    assert told["chats"][0] == {
        "session_id": 1, "name": "request", "status": "waiting", "tokens": 5, "blocks_own": 0, "blocks_shared": 0,
        "tokens_per_second": None,
    }  # fmt: skip


async def test_an_engine_in_a_long_step_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stats, "_PATIENCE", 0.01)
    told = await told_of(RigLink(500), answers=False)
    assert (told["chats"], told["chats_left_out"]) == ([], 5)


async def test_an_engine_that_ends_leaves_nobody_waiting() -> None:
    link = RigLink(500)
    asking = asyncio.create_task(link.hub.sequences(3600.0))
    await asyncio.sleep(0)
    link.hub.hear(ev.EngineDied(-9, "", restarting=True))
    assert await asking is None
    assert await link.hub.sequences(3600.0) is None
    link.hub.hear(link.info)
    again = [asyncio.create_task(link.hub.sequences(3600.0)) for _ in range(2)]
    await asyncio.sleep(0)
    link.pump()
    first, second = await asyncio.gather(*again)
    assert first is second
    assert first is not None
