"""The benchmark's clients, in processes of their own, against a server of ours in this process."""

import asyncio
from pathlib import Path

import pytest

from pagedchat.bench.serve.clients import num_processes, run_clients
from pagedchat.errors import PagedChatError
from tests.server.test_run import Run, run


async def address(running: Run) -> tuple[str, int]:
    host, port = (await running.url).removeprefix("http://").removesuffix("/v1").split(":")
    return host, int(port)


async def test_clients_count_the_tokens_of_their_streams(tmp_path: Path) -> None:
    async with run(tmp_path, "load_endless") as running:
        prompts = [[10, 11], [12, 13, 14]]
        streams, seconds = await asyncio.to_thread(run_clients, *await address(running), prompts, 7)
        assert [stream.num_tokens for stream in streams] == [7, 7]
        assert seconds > 0
        for stream in streams:
            assert 1 <= len(stream.times) <= 7
            assert stream.times == sorted(stream.times)


async def test_a_stream_that_ends_early_is_told(tmp_path: Path) -> None:
    async with run(tmp_path, "load_crash") as running:
        with pytest.raises(PagedChatError, match="Look at what the server said above"):
            await asyncio.to_thread(run_clients, *await address(running), [[10, 11]], 7)


@pytest.mark.parametrize(("clients", "cores", "processes"), [(1, 16, 1), (64, 16, 4), (64, 4, 2), (64, 1, 1)])
def test_two_cores_are_left_to_server_and_engine(clients: int, cores: int, processes: int) -> None:
    assert num_processes(clients, cores) == processes
