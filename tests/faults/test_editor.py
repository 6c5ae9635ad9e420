"""A prompt in the user's own editor, in the real program on a terminal of its own."""

import os
import signal

import psutil
import pytest

from tests.terminal_program import READY, TerminalProgram

DRAFTS = ".local/state/pagedchat/drafts"


@pytest.fixture
def editor(tmp_path):
    """An editor that is a script; it says on the terminal when it is there."""

    def make(*lines):
        path = tmp_path / "editor"
        path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        path.chmod(0o700)
        return {"EDITOR": str(path), "XDG_STATE_HOME": ""}

    return make


def drafts(program):
    return [path.read_text() for path in (program.home / DRAFTS).glob("*.md")]


def test_an_editor_has_the_terminal_as_it_was_and_gives_the_prompt_back(editor):
    environment = editor("stty -a | grep -o ' echo ' && echo EDITING", 'printf " and more" >> "$1"')
    with TerminalProgram(environment=environment) as program:
        program.wait_for(READY)
        program.press("draft\x0f")  # ^O
        program.wait_for(b" echo \r\nEDITING")
        program.wait_for("draft and more")
        assert drafts(program) == []
        program.press("\x15\x11")  # ^U, ^Q
        assert program.wait_for_end() == 0
        assert program.is_left()


def test_keys_that_are_signals_are_the_editors(editor):
    environment = editor("trap 'echo HEARD' INT", "echo EDITING; read line || read line", 'echo "$line" > "$1"')
    with TerminalProgram(environment=environment) as program:
        program.wait_for(READY)
        program.press("draft\x0f")
        program.wait_for("EDITING")
        program.press("\x03")  # ^C
        program.wait_for("HEARD")
        program.press("mended\r")
        program.wait_for("mended\x1b")  # drawn again, by the program
        program.press("\x11")
        assert program.wait_for_end() == 0


def test_a_program_that_is_killed_while_a_prompt_is_edited_leaves_it_in_a_file(editor):
    environment = editor("echo EDITING", "exec sleep 60")
    with TerminalProgram(environment=environment) as program:
        program.wait_for(READY)
        program.press("a draft that matters\x0f")
        program.wait_for("EDITING")
        children = [child for child in psutil.Process(program.pid).children() if child.name() == "sleep"]
        os.kill(program.pid, signal.SIGKILL)
        assert program.wait_for_end() == -signal.SIGKILL
        assert drafts(program) == ["a draft that matters"]
        for child in children:
            child.kill()
