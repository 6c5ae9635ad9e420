"""The program itself on a server: killed in the middle of a reply, and attached again."""

import re
import signal

import pytest

from tests.server.program_server import program_server
from tests.terminal_program import READY, TerminalProgram

pytestmark = pytest.mark.usefixtures("home")


@pytest.fixture
def home(tmp_path):
    """Where two runs of the program keep the same history."""
    return {"HOME": str(tmp_path), "XDG_RUNTIME_DIR": str(tmp_path)}


def letters(program: TerminalProgram) -> str:
    """What the fake model has written, line after line; the one reply is there once, on every frame."""
    screen = program.screen()
    assert screen.count("│ ai  │") <= 1, screen
    return "".join(re.findall(r"│ (?:ai  |    )│ ([a-z]{8,})", screen))


def test_a_reply_outlives_kill_9_and_the_next_terminal_has_all_of_it(tmp_path, home):
    with program_server("load_endless", tmp_path) as address:
        with TerminalProgram("--attach", address, environment=home) as program:
            program.wait_for(READY)
            program.press("tell\r")
            program.wait_until(lambda: len(letters(program)) > 300, "no reply is written")
            program.signal(signal.SIGKILL)
            program.wait_for_end()
            before = letters(program)
        with TerminalProgram("--attach", address, environment=home) as again:
            # The history has half of it, interrupted, on the first frame, and may have more than was drawn before;
            # the server's own reply takes its place.
            again.wait_until(
                lambda: len(letters(again)) > len(before) + 8 and "interrupted" not in again.screen(),
                "the reply does not go on",
            )
            assert letters(again).startswith(before)
            assert "│ you │ tell" in again.screen()
            again.wait_until(lambda: "› Write a prompt" in again.screen(), "the prompt is left to be edited")
            again.press("\x11")  # ^Q asks; Enter leaves the chats there
            again.wait_for("Leave 127.0.0.1")
            again.press("\r")
            assert again.wait_for_end() == 0


def test_the_inspector_of_a_server_is_read_only_and_ends_by_itself(tmp_path, home):
    with (
        program_server("load_endless", tmp_path) as address,
        TerminalProgram("inspect", address, environment=home) as program,
    ):
        program.wait_for(READY)
        program.press(" ")
        program.wait_for("only looks on")
        program.press("q")
        assert program.wait_for_end() == 0


def test_nobody_there_is_a_sentence_and_an_exit_code(home):
    with TerminalProgram("--attach", "127.0.0.1:9", environment=home) as program:
        program.wait_for("Nothing answers at 127.0.0.1:9")
        program.press("\x11")
        assert program.wait_for_end() == 1
        assert (
            "Start it with: pagedchat serve"
            in program.written.decode(errors="replace").rpartition("\x1b[?1049l")[2]
        )
