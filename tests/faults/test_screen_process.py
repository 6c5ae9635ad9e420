"""The process with the screen is killed or stopped, and the model in the box answers through it all."""

import os
import signal
import time

import psutil
import pytest

from pagedchat.trace.reader import open_trace
from tests.faults.gated_engine import STOPPED
from tests.terminal_program import READY, TerminalProgram

KILLED_WHILE_WRITING = """
import os, signal, types
from pagedchat.trace import chunk_file, writer

def write_half(descriptor, data):
    if os.fstat(descriptor).st_size > 2000:
        os.write(descriptor, data[: len(data) // 2])
        os.kill(os.getpid(), signal.SIGKILL)
    return os.write(descriptor, data)

chunk_file.os = types.SimpleNamespace(**{**vars(os), "write": write_half})
"""
MODEL_IN_THE_BOX = "from pagedchat.service.process import DEFAULT_ENTRY; client.DEFAULT_ENTRY = DEFAULT_ENTRY"
ANSWERED = "tok in "
"""Below the pane of a chat whose reply is complete."""


def test_a_recording_whose_writer_is_killed_is_read_up_to_its_last_whole_piece(tmp_path):
    with TerminalProgram("--trace", str(tmp_path / "run.trace"), before=KILLED_WHILE_WRITING) as program:
        program.wait_for(READY)
        engine = program.engine()
        program.press("Hi\r")
        assert program.wait_for_end() == -signal.SIGKILL
        engine.wait(60)  # it ends by itself
    recording = open_trace(tmp_path / "run.trace")
    assert recording.report(recording.end).batch
    assert not recording.ended


def test_a_program_that_is_stopped_in_mid_reply_goes_on_with_it():
    with TerminalProgram() as program:
        program.wait_for(READY)
        program.press("Hi\r")
        program.wait_for_reply()
        for stop in (signal.SIGSTOP, signal.SIGTSTP):
            program.signal(stop)
            program.wait_until(lambda: psutil.Process(program.pid).status() == "stopped", "it is not stopped")
            time.sleep(STOPPED)  # the engine goes on until nobody takes what it says
            program.signal(signal.SIGCONT)
            program.wait_for_reply()
        program.press("\x1b")  # Esc
        program.wait_for("stopped")
        program.press("\x11")  # ^Q
        assert program.wait_for_end() == 0
        assert program.is_left()


@pytest.mark.slow
def test_the_model_in_the_box_is_killed_and_answers_again():
    with TerminalProgram("--num-blocks", "64", "--device", "cpu", before=MODEL_IN_THE_BOX) as program:
        program.press("Hi\r")  # written while it loads
        program.wait_for(ANSWERED)
        engine = program.engine()
        os.kill(engine.pid, signal.SIGKILL)
        program.wait_for("The engine ended (SIGKILL, killed)")
        program.wait_for("64/64")  # the next one's blocks
        program.press("\x15Are you there?\r")  # what was not answered stands there again
        program.wait_for(ANSWERED)
        program.press("\x11\r")
        assert program.wait_for_end() == 0
        assert program.is_left()
        assert not psutil.pid_exists(engine.pid)
