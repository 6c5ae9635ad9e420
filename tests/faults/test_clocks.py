"""The clock on the wall is set forwards and backwards: nothing waits, is ordered or is counted by it."""

import os
import signal
import time

import pytest

from pagedchat.service import client as client_module
from pagedchat.trace.reader import open_trace
from tests.faults.gated_engine import YEAR, jumping_clock
from tests.faults.screens import screens
from tests.faults.test_engine_ends import answers
from tests.service.fake_engine import ENTRY


@pytest.mark.parametrize(("direction", "years"), [("forwards", 1), ("backwards", -1)])
async def test_a_clock_that_jumps_changes_nothing(direction, years, tmp_path, monkeypatch):
    monkeypatch.setattr(time, "time", jumping_clock(years * YEAR))
    monkeypatch.setattr(client_module, "MAX_CRASHES", 1)
    entry = (*ENTRY, f"tests.faults.gated_engine:load_by_a_clock_that_jumps_{direction}")
    async with screens(tmp_path, entry) as program:
        first = program.ask("Hi", max_tokens=100)
        await program.until(lambda: not first.busy)
        second = program.ask("Hi", max_tokens=100)
        await program.until(lambda: second.open_text)
        os.kill(program.client.pid, signal.SIGKILL)
        await program.until(program.died)
        assert program.died().restarting
        assert first.entries[-1].turn.text.startswith(second.entries[-1].turn.text)
        assert await answers(program)
        os.kill(program.client.pid, signal.SIGKILL)  # twice within the time in which once is allowed
        await program.until(lambda: not program.died().restarting)
    for trace in (program.trace, program.trace.with_suffix(".2.trace")):
        recording = open_trace(trace)
        times = [recording.report(at).time for at in range(1, recording.end + 1)]
        assert times == sorted(times)
        assert recording.ended
