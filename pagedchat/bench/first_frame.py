"""From the command to the first frame: starts `pagedchat` in a pseudo-terminal and watches what it draws."""

import contextlib
import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from types import MappingProxyType

from pagedchat.bench.bytecode import kept_bytecode
from pagedchat.errors import PagedChatError
from pagedchat.view.sentences.glyphs import CORNER

_COLUMNS, _LINES = 120, 36
_BORDER = CORNER.encode()
"""The corner of a pane: not there before a screen is drawn."""
_PATIENCE_SECONDS = 20.0
_LAST_OUTPUT = 2000
"""Bytes of output kept for an error message."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstFrameResult:
    """Seconds from starting the process to the first bytes with a pane's border."""

    runs: list[float]
    median_s: float


def measure_first_frame(model: str, repeats: int = 5) -> FirstFrameResult:
    """Start the terminal `repeats` times with `model`; the engine is loading meanwhile, as it does for a user.

    Raises:
        PagedChatError: the program ended or drew nothing.
    """
    command = [sys.executable, "-m", "pagedchat", "--model", model]
    with tempfile.TemporaryDirectory(prefix="pagedchat-bench-") as folder:
        variables = kept_bytecode(Path(folder))
        runs = [round(_time_once(command, variables), 4) for _ in range(1 + repeats)][1:]
    return FirstFrameResult(runs=runs, median_s=round(median(runs), 4))


def _time_once(command: Sequence[str], variables: Mapping[str, str] = MappingProxyType({})) -> float:
    terminal, tty = pty.openpty()
    fcntl.ioctl(tty, termios.TIOCSWINSZ, struct.pack("HHHH", _LINES, _COLUMNS, 0, 0))
    environment = {**os.environ, **variables, "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    started = time.perf_counter()
    process = subprocess.Popen(  # noqa: S603 - our own program
        command, stdin=tty, stdout=tty, stderr=tty, env=environment, start_new_session=True
    )
    os.close(tty)
    try:
        _read_until_border(terminal, started + _PATIENCE_SECONDS)
        return time.perf_counter() - started
    finally:
        _end(process, terminal)


def _read_until_border(terminal: int, deadline: float) -> None:
    drawn = b""
    while _BORDER not in drawn:
        ready, _, _ = select.select([terminal], [], [], max(0.0, deadline - time.perf_counter()))
        piece = _read(terminal) if ready else b""
        if not piece:
            raise PagedChatError("pagedchat drew no frame.", f"It wrote: {drawn[-_LAST_OUTPUT:]!r}")
        drawn += piece


def _read(terminal: int) -> bytes:
    try:
        return os.read(terminal, 1 << 16)
    except OSError:  # how Linux says that the other end is closed
        return b""


def _end(process: subprocess.Popen[bytes], terminal: int) -> None:
    """Hang up as a closed terminal window does, then make sure."""
    os.close(terminal)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGTERM)
    try:
        process.wait(timeout=5)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
