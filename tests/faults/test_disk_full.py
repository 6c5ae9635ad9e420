"""No room on the disk: chats go on, what was written before is whole, and what is not kept any more is said."""

import os
from pathlib import Path

import pytest

from pagedchat.jit.cache import KernelCache
from pagedchat.trace.reader import open_trace
from tests.faults.gated_engine import FULL
from tests.faults.screens import screens
from tests.faults.test_engine_ends import answers
from tests.terminal_program import READY, TerminalProgram

FULL_DEVICE = Path("/dev/full")
SMALL_FILES = f"""
import resource
resource.setrlimit(resource.RLIMIT_FSIZE, ({FULL}, {FULL}))
"""


async def test_a_kernel_that_cannot_be_kept_is_used_all_the_same(tmp_path):
    async with screens(tmp_path) as program:
        program.gates.order("loading", "fill the disk")
        assert await answers(program)
        assert "Compiled kernels cannot be kept" in program.client.log_path.read_text()
    assert list((tmp_path / "kernels").iterdir()) == []
    assert KernelCache(tmp_path / "kernels").get("kernel") is None


@pytest.mark.skipif(not FULL_DEVICE.exists(), reason="needs /dev/full")
async def test_a_log_that_cannot_be_written_any_more_ends_nothing(tmp_path):
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / f"engine-{os.getpid()}.log").symlink_to(FULL_DEVICE)
    async with screens(tmp_path) as program:
        assert await answers(program)
        program.gates.order("decode", "lose the device")
        chat = program.ask("Hi")
        await program.until(program.died)
        assert chat.notice.message.startswith("The engine crashed: ")
        assert await answers(program)


def test_a_recording_that_cannot_go_on_says_so_and_keeps_what_it_has(tmp_path):
    with TerminalProgram("--trace", str(tmp_path / "run.trace"), before=SMALL_FILES) as program:
        program.wait_for(READY)
        program.press("Hi\r")
        program.wait_for("File too large. The chats go on.")
        program.wait_for_reply()
        program.press("\x11\r")  # ^Q, and yes
        assert program.wait_for_end() == 0
        assert program.is_left()
    recording = open_trace(tmp_path / "run.trace")
    assert recording.end > 0
    assert not recording.ended
