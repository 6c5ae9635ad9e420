"""One engine process as the UI sees it, after its end too."""

import asyncio
import socket
import sys

from pagedchat.config import EngineConfig
from pagedchat.events import EngineEvent, EngineReady, LoadProgress, RunState
from pagedchat.service.commands import Pause
from pagedchat.service.log_file import LogFile
from pagedchat.service.process import _MOST_TOGETHER, EngineProcess, _Connection
from pagedchat.service.wire import command_reader
from tests.service.fake_engine import ENTRY


async def test_what_is_said_to_a_process_that_is_gone_is_heard_by_nobody(tmp_path) -> None:
    heard: list[EngineEvent] = []
    process = await EngineProcess.start(
        EngineConfig(), LogFile(tmp_path), heard.append, [sys.executable, "-c", "raise SystemExit(3)"]
    )
    assert await process.wait() == 3
    process.send(Pause())
    process.kill()
    await process.close(1.0)
    assert await process.wait() == 3
    assert heard == []
    assert process.complaint == ""


async def test_what_is_said_after_the_end_is_heard_by_nobody(tmp_path) -> None:
    process = await EngineProcess.start(
        EngineConfig(), LogFile(tmp_path), lambda _: None, [*ENTRY, "tests.service.fake_engine:load"]
    )
    closing = asyncio.create_task(process.close(60.0))
    await asyncio.sleep(0)
    process.send(Pause())  # a prompt and then the key that quits, both of them typed at once
    await closing
    assert await process.wait() == 0


async def test_a_process_is_told_of_those_that_are_read_and_not_sent_yet() -> None:
    ours, theirs = socket.socketpair()
    read, said = [*range(20)], list[str]()

    class Listening(_Connection):
        def write(self, data: bytes) -> None:
            said.append(" ".join(str(getattr(one, "num_requests", "-")) for one in command_reader().feed(data)))
            super().write(data)

    loop = asyncio.get_running_loop()
    _, connection = await loop.create_unix_connection(
        lambda: Listening(lambda _: None, lambda: len(read)), sock=ours
    )
    with theirs:
        while read:
            read.pop()
            connection.send(Pause())
        read.append(1)  # read in the same turn of the event loop
        await asyncio.sleep(0)
        read.pop()
        connection.send(Pause())
        await asyncio.sleep(0)
        connection.send(Pause())  # nobody comes, which is known
        await asyncio.sleep(0)
        connection.end()
    assert said == [f"{'- ' * 16}4", f"{'- ' * 4}1", "- 0", "-"]


async def test_what_is_said_in_one_turn_goes_out_together_but_never_much_at_a_time() -> None:
    ours, theirs = socket.socketpair()
    written: list[int] = []

    class Counting(_Connection):
        def write(self, data: bytes) -> None:
            written.append(len([*command_reader().feed(data)]))
            super().write(data)

    loop = asyncio.get_running_loop()
    _, connection = await loop.create_unix_connection(lambda: Counting(lambda _: None), sock=ours)
    with theirs:
        for _ in range(2 * _MOST_TOGETHER + 4):
            connection.send(Pause())
        assert written == [_MOST_TOGETHER, _MOST_TOGETHER]
        await asyncio.sleep(0)
        assert written[2:] == [4]
        connection.send(Pause())
        connection.end()
        assert written[3:] == [1]
        await asyncio.sleep(0)
        assert len([*command_reader().feed(theirs.recv(100_000))]) == 2 * _MOST_TOGETHER + 5
    connection.abort()
    await connection.lost.wait()


async def test_a_process_that_is_not_listened_to_is_heard_later(tmp_path) -> None:
    heard: asyncio.Queue[EngineEvent] = asyncio.Queue()
    process = await EngineProcess.start(
        EngineConfig(), LogFile(tmp_path), heard.put_nowait, [*ENTRY, "tests.service.fake_engine:load"]
    )
    process.hold(True)
    process.hold(True)
    await asyncio.sleep(0)
    assert heard.empty()
    process.hold(False)
    async with asyncio.timeout(60):
        assert [type(await heard.get()) for _ in range(3)] == [LoadProgress, EngineReady, RunState]
    await process.close(3.0)


async def test_what_a_process_said_before_its_end_is_heard_though_nobody_listened(tmp_path) -> None:
    heard: list[EngineEvent] = []
    process = await EngineProcess.start(
        EngineConfig(), LogFile(tmp_path), heard.append, [*ENTRY, "tests.service.fake_engine:load_missing"]
    )
    process.hold(True)
    assert await process.wait() == 1
    assert len(heard) == 1
    process.hold(True)  # too late for that
