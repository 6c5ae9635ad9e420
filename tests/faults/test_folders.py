"""Folders that cannot be written to, or are somebody else's: all that wants to keep something does without."""

import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.terminal_program import READY, TerminalProgram

NOWHERE = "/dev/null/nowhere"
NO_TEMPORARY_FILES = f"import tempfile; tempfile.tempdir = {NOWHERE!r}"
OF_OTHERS = """
import os, sys
from pathlib import Path
from pagedchat.chat.prompt_history import PromptHistory
from pagedchat.jit.cache import KernelCache
from pagedchat.jit.compiler import Cubin
from pagedchat.service.log_file import LogFile
from pagedchat.trace.format import TraceError
from pagedchat.trace.recorder import Recorder
import platformdirs, tempfile, traceback

if os.getuid() == 0:
    os.setuid(65534)
folder, tempfile.tempdir = Path(sys.argv[1]), sys.argv[2]
log = LogFile(folder)
os.write(log.open(), b"a line")
print(log.complaint, log.tail())
history = PromptHistory(folder / "prompts")
history.add("Hi")
print(history[-1])
kernels = KernelCache(folder)
kernels.put("kernel", Cubin(b"", (), 0.0))
print(kernels.get("kernel"))
try:
    Recorder(folder / "run.trace")
except TraceError as error:
    print(error)
"""


def test_a_program_that_can_write_nowhere_chats(tmp_path):
    environment = {"HOME": NOWHERE, "XDG_RUNTIME_DIR": NOWHERE, "PAGEDCHAT_CACHE_DIR": NOWHERE}
    with TerminalProgram(before=NO_TEMPORARY_FILES, environment=environment) as program:
        program.wait_for(READY)
        program.press("Hi\r")
        program.wait_for_reply()
        for complaint in (b"log is not kept", b"recording cannot be kept"):
            program.wait_until(lambda said=complaint: said in program.written, f"{complaint!r} is not written")
        program.press("\x11\r")  # ^Q, and yes
        assert program.wait_for_end() == 0
        assert program.is_left()
        assert b"Traceback" not in program.written


def test_a_recording_in_a_folder_that_cannot_be_written_to_is_refused_at_the_start():
    with TerminalProgram("--trace", f"{NOWHERE}/run.trace") as program:
        assert program.wait_for_end() == 2  # an option that is wrong
        said = program.written.decode()
    assert said.startswith(f"pagedchat: --trace: '{NOWHERE}/run.trace' cannot be written: ")
    assert "Traceback" not in said


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """One into which any user may go; those above `tmp_path` are closed."""
    with tempfile.TemporaryDirectory(dir="/tmp") as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_folder_of_somebody_else_is_left_alone(open_folder):
    folder, ours = open_folder / "theirs", open_folder / "ours"
    folder.mkdir(0o500)
    ours.mkdir()
    ours.chmod(0o777)
    process = subprocess.run(
        [sys.executable, "-c", OF_OTHERS, str(folder), str(ours)], capture_output=True, text=True, check=True
    )
    log, prompt, kernel, trace = process.stdout.splitlines()
    assert f"{folder} cannot be written to (permission denied)" in log
    assert log.endswith("a line")
    assert prompt == "Hi"
    assert kernel == "None"
    assert "cannot be written: Permission denied." in trace
    folder.chmod(0o700)
    assert list(folder.iterdir()) == []
