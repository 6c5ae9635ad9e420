"""The benchmark's clients against a server of ours in this process."""

from pathlib import Path

import pytest

from pagedchat.bench.serve.clients import ServerProcess
from pagedchat.errors import PagedChatError
from tests.server.test_run import run


async def test_clients_count_the_tokens_of_their_streams(tmp_path: Path) -> None:
    async with run(tmp_path, "load_endless") as running:
        process = ServerProcess([])
        host, port = (await running.url).removeprefix("http://").removesuffix("/v1").split(":")
        process._host, process._port = host, int(port)
        streams = await process._run([[10, 11], [12, 13, 14]], 7)
        assert [stream.num_tokens for stream in streams] == [7, 7]
        for stream in streams:
            assert 1 <= len(stream.times) <= 7
            assert stream.times == sorted(stream.times)


async def test_a_stream_that_ends_early_is_told(tmp_path: Path) -> None:
    async with run(tmp_path, "load_crash") as running:
        process = ServerProcess([])
        host, port = (await running.url).removeprefix("http://").removesuffix("/v1").split(":")
        process._host, process._port = host, int(port)
        with pytest.raises(PagedChatError, match="Look at what it said above"):
            await process._run([[10, 11]], 7)
