"""A screen reads nothing for minutes, or its terminal does not: the engine goes on as long as there is room for
what it says, then waits; when the screen reads again it sees all of it, in order. Minutes are little room here."""

import asyncio
import sys
import time

import psutil

from pagedchat.events import Steps
from tests.faults.gated_engine import LOADER, STOPPED
from tests.faults.screens import PATIENCE, screens
from tests.faults.test_engine_ends import check_recordings
from tests.terminal_program import READY, TerminalProgram

LITTLE_ROOM = (sys.executable, "-m", "tests.faults.little_room", "--loader", LOADER)
LIMIT = 2_000
"""Parts of events that may wait in the process with the screen."""
NUM_CHATS, TOKENS = 60, 120
STANDS = 1.0
"""Seconds without any processor time after which the engine is taken to be waiting."""


async def stands_still(engine: psutil.Process) -> None:
    """Until it does, though there is work."""
    async with asyncio.timeout(PATIENCE):
        last, since = -1.0, time.monotonic()
        while time.monotonic() - since < STANDS:
            times = engine.cpu_times()
            if (used := times.user + times.system) != last:
                last, since = used, time.monotonic()
            await asyncio.sleep(0.05)


async def test_an_engine_whose_screen_does_not_read_waits_in_the_end_and_nothing_is_lost(tmp_path):
    async with screens(tmp_path, LITTLE_ROOM) as program:
        undisturbed = program.ask("Hi", max_tokens=TOKENS)
        await program.until(lambda: not undisturbed.busy)
        queue = program.client._events
        queue.limit = LIMIT
        program.reads.clear()
        chats = [program.ask("Hi", max_tokens=TOKENS) for _ in range(NUM_CHATS)]
        await stands_still(psutil.Process(program.client.pid))
        waiting = queue.num_parts
        assert queue.is_full
        assert all(chat.busy for chat in chats)
        program.desk.stop(chats[-1])  # what is said to the engine waits for it too
        await asyncio.sleep(STOPPED)
        assert queue.num_parts == waiting  # memory fills no further, however long that takes
        program.reads.set()
        await program.until(lambda: not any(chat.busy for chat in chats))
        assert all(chat.entries == undisturbed.entries for chat in chats[:-1])
        reports = [report for event in program.heard if isinstance(event, Steps) for report in event.reports]
        assert 3 * waiting < sum(1 + len(report.batch) + len(report.events) for report in reports)
        assert chats[-1].entries != undisturbed.entries  # it was not done, for all the time it had
        steps = [report.step for report in reports]
        assert steps == sorted(steps)
        assert set(steps) == set(range(steps[0], steps[-1] + 1))
        assert program.died() is None
    check_recordings(program)


def test_a_program_whose_terminal_does_not_read_goes_on_when_it_does():
    with TerminalProgram() as program:
        program.wait_for(READY)
        program.press("Hi\r")
        program.wait_for_reply()
        used = cpu_seconds(program.pid)
        time.sleep(max(STOPPED, 2.0))  # nothing is read
        assert cpu_seconds(program.pid) - used < 1.0  # once the terminal's buffer is full nothing is drawn
        program.wait_for_reply()
        program.press("\x1b")  # Esc
        program.wait_for("stopped")
        program.press("\x11")  # ^Q
        assert program.wait_for_end() == 0
        assert program.is_left()


def cpu_seconds(pid: int) -> float:
    times = psutil.Process(pid).cpu_times()
    return times.user + times.system
