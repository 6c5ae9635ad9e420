"""The real program in a terminal: whatever ends it, the terminal is as before and nothing is left behind."""

import signal
import time

import psutil
import pytest

from pagedchat.trace.reader import open_trace
from tests.terminal_program import READY, TerminalProgram
from tests.trace.recorded import RecordedEngine


@pytest.mark.parametrize(
    "number", [signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT, signal.SIGINT], ids=lambda number: number.name
)
def test_a_signal_ends_everything_in_order(number, tmp_path):
    with TerminalProgram("--trace", str(tmp_path / "run.trace")) as program:
        program.wait_for(READY)
        program.press("Hi\r")
        program.wait_for_reply()
        program.wait_until(program.sockets, "there is no socket")
        engine = program.engine()
        program.signal(number)
        program.signal(number)  # as terminals that are closed do
        assert program.wait_for_end() == 128 + number
        assert program.is_left()
        assert program.sockets() == []
        assert not psutil.pid_exists(engine.pid)
        assert open_trace(tmp_path / "run.trace").ended
        assert b"Traceback" not in program.written


def test_a_signal_is_heard_from_the_first_frame_on():
    with TerminalProgram() as program:
        program.wait_for(b"\x1b[?1049h")
        program.signal(signal.SIGTERM)
        assert program.wait_for_end() == 128 + signal.SIGTERM
        assert program.is_left()


def test_errors_may_be_sent_to_a_file(tmp_path):
    errors = tmp_path / "errors.txt"
    with TerminalProgram(errors=errors) as program:
        program.wait_for(READY)
        program.press("Hi\r")
        program.wait_for_reply()
        program.signal(signal.SIGTERM)
        assert program.wait_for_end() == 128 + signal.SIGTERM
        assert program.is_left()
    assert errors.read_text() == ""


def test_a_replay_is_ended_by_a_signal_too(tmp_path):
    RecordedEngine(tmp_path / "run.trace", num_blocks=64).recorder.close()
    with TerminalProgram("replay", str(tmp_path / "run.trace")) as program:
        program.wait_for("step")
        program.signal(signal.SIGTERM)
        assert program.wait_for_end() == 128 + signal.SIGTERM
        assert program.is_left()


@pytest.mark.parametrize("controls", [True, False], ids=["told by a signal", "found out by reading"])
def test_a_closed_window_ends_everything(controls, tmp_path):
    with TerminalProgram("--trace", str(tmp_path / "run.trace"), controls=controls) as program:
        program.wait_for(READY)
        program.wait_until(program.sockets, "there is no socket")
        engine = program.engine()
        program.hang_up()
        assert program.wait_for_end() == 128 + signal.SIGHUP
        assert program.sockets() == []
        assert not psutil.pid_exists(engine.pid)
        assert open_trace(tmp_path / "run.trace").ended


def is_drawn_since(program: TerminalProgram, start: int) -> bool:
    """Whether it has taken the screen and drawn all of it, in whatever pieces that was read."""
    return READY.encode() in bytes(program.written[start:]).partition(b"\x1b[?1049h")[2]


def test_a_program_that_is_stopped_goes_on_and_still_gives_the_terminal_back():
    with TerminalProgram() as program:
        program.wait_for(READY)
        for stop in (signal.SIGTSTP, signal.SIGSTOP):
            program.signal(stop)
            program.wait_until(lambda: psutil.Process(program.pid).status() == "stopped", "it is not stopped")
            if stop == signal.SIGTSTP:
                program.wait_until(program.is_left, "the terminal is not given back")
            resumed = len(program.written)
            program.signal(signal.SIGCONT)
            program.wait_until(lambda start=resumed: is_drawn_since(program, start), "it is not drawn again")
            assert program.attributes != program.attributes_before
        program.press("still here")
        program.wait_for("here")
        program.press("\x11")  # ^Q
        assert program.wait_for_end() == 0
        assert program.is_left()


def test_a_storm_of_resizes_is_weathered():
    with TerminalProgram() as program:
        program.wait_for(READY)
        for round_trip in range(300):
            program.resize(60 + round_trip % 100, 15 + round_trip % 40)
        program.resize(120, 40)
        program.press("still here")
        program.wait_for("here")
        program.press("\x11")
        assert program.wait_for_end() == 0


def test_a_defect_is_one_sentence_and_the_traceback_is_in_the_log():
    before = """
from pagedchat.tui.chat.prompt_screen import PromptScreen
def fail(*_):
    secret = "what was said"
    raise LookupError("odd")
PromptScreen.on_prompt_submitted = PromptScreen._on_prompt_submitted = fail
"""
    with TerminalProgram(before=before) as program:
        program.wait_for(READY)
        program.press("Hi\r")
        assert program.wait_for_end() == 1
        assert program.is_left()
        said = program.written[program.written.rindex(b"\x1b[?1004l") :].decode()
        [log] = program.home.rglob("engine-*.log")
        assert f"pagedchat failed: LookupError: odd.\r\nHow it came about is in {log}; please report it." in said
        assert "what was said" not in said
        assert 'raise LookupError("odd")' in log.read_text() or "in fail" in log.read_text()


def test_a_program_that_hangs_is_ended_and_the_terminal_is_given_back():
    before = """
import time
from pagedchat.tui.kit import terminal_app
from pagedchat.tui.engine_app import EngineApp
terminal_app.GRACE = 0.2
EngineApp.end = lambda *_: time.sleep(60)
"""
    with TerminalProgram(before=before) as program:
        program.wait_for(READY)
        program.signal(signal.SIGTERM)
        assert program.wait_for_end() == 128 + signal.SIGTERM
        assert program.is_left()


def test_a_terminal_that_reads_too_slowly_is_given_back_too():
    before = """
from pagedchat.tui.kit import terminal_app
terminal_app.GRACE = 1.0
"""
    with TerminalProgram(before=before) as program:
        program.wait_for(READY)
        program.press("Hi\r")
        program.wait_for_reply()
        time.sleep(2.0)  # nothing is read: what is drawn fills the terminal's buffer
        program.signal(signal.SIGTERM)
        time.sleep(2.0)
        assert program.wait_for_end() == 128 + signal.SIGTERM
        assert program.is_left()
