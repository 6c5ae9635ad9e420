"""What is said about an engine that ended."""

import signal

import pytest

from pagedchat.events import EngineDied
from pagedchat.view.sentences.engine_words import why_it_ended

TAIL = """\
Traceback (most recent call last):
  File "child.py", line 1, in <module>
ModuleNotFoundError: No module named 'msgspec'
a last line
"""


@pytest.mark.parametrize(
    ("exit_code", "log_tail", "words"),
    [
        (-signal.SIGKILL, TAIL, "SIGKILL, killed"),
        (70, "pagedchat.errors.DeviceError: Rank 1 was killed.", "Rank 1 was killed."),
        (70, "pagedchat.errors.DeviceError: ", "exit status 70, pagedchat.errors.DeviceError:"),
        (-signal.SIGSEGV, "Fatal Python error: Segmentation fault", "SIGSEGV, segmentation fault"),
        (-200, "", "signal 200"),
        (70, "Traceback (most recent call last):\nMemoryError\n", "exit status 70, MemoryError"),
        (70, "torch.AcceleratorError: CUDA \x1b[2Jbad", "exit status 70, torch.AcceleratorError: CUDA bad"),
        (1, TAIL, "exit status 1, ModuleNotFoundError: No module named 'msgspec'"),
        (1, "all is well: no Error here", "exit status 1"),
        (None, "", "no exit status"),
    ],
)
def test_how_an_engine_ended(exit_code, log_tail, words):
    assert why_it_ended(EngineDied(exit_code, log_tail, True)) == words
