"""The real program in a terminal of its own, a pty that controls it, on an engine with a fake model in it."""

import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import psutil
import pyte

from pagedchat.jit.cache import default_folder

PATIENCE = 60.0
PROGRAM = """
import sys
from pagedchat.service import client
from tests.service.fake_engine import ENTRY
client.DEFAULT_ENTRY = (*ENTRY, "tests.service.fake_engine:" + sys.argv[1])
{before}
from pagedchat.cli.main import main
sys.exit(main(sys.argv[2:]))
"""
READY = "500/500"
"""Drawn in the header once the fake engine is ready: its free blocks."""
_RATE = re.compile(rb"[1-9][\d.,]*(?:\x1b\[[\d;]*m)* tok/s")
"""Of tokens that are generated."""
_ASKS_FOR_FRAMES, _KNOWS_FRAMES = b"\x1b[?2026$p", b"\x1b[?2026;2$y"
_FRAME_BEGINS, _FRAME_ENDS = b"\x1b[?2026h", b"\x1b[?2026l"
"""Synchronized output: the terminal is asked for it, and answers."""
LEFT = (
    b"\x1b[?1049l",
    b"\x1b[?25h",
    b"\x1b[?1000l",
    b"\x1b[?1003l",
    b"\x1b[?1006l",
    b"\x1b[?2004l",
    b"\x1b[?1004l",
)
"""What a terminal must be sent to be as before: the other screen, the cursor, no mouse, paste or focus reports."""


def _be_controlled() -> None:
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


class TerminalProgram:
    """To be used in a `with` statement, which makes sure that nothing is left.

    Args:
        *argv: the command line.
        loader: which engine of `tests.service.fake_engine`.
        before: Python to be run in the program before it starts.
        environment: over that of a user without any files.
        controls: whether the terminal's signals reach the program, as from a shell; else it only cannot be read any
            more after `hang_up`.
        errors: the file that standard error goes to; None: the terminal too.
    """

    def __init__(
        self,
        *argv: str,
        loader: str = "load_for_minutes",
        before: str = "",
        environment: Mapping[str, str] | None = None,
        controls: bool = True,
        errors: Path | None = None,
    ) -> None:
        self._home = tempfile.TemporaryDirectory(prefix="pc", dir="/tmp")  # a socket's path is short
        self.home = Path(self._home.name)
        self._terminal, self._tty = pty.openpty()
        self.resize(120, 40)
        self.attributes_before = termios.tcgetattr(self._tty)
        stderr = self._tty if errors is None else os.open(errors, os.O_WRONLY | os.O_CREAT)
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM.format(before=before), loader, *argv],
            stdin=self._tty, stdout=self._tty, stderr=stderr,
            env=self._environment() | dict(environment or {}),
            start_new_session=True,
            preexec_fn=_be_controlled if controls else None,  # noqa: PLW1509 - nothing else runs here
        )  # fmt: skip
        if errors is not None:
            os.close(stderr)
        self.written = b""
        """All that the program has written so far."""

    def _environment(self) -> dict[str, str]:
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "COLUMNS", "LINES"))
        }
        return {
            **kept, "TERM": "xterm-256color", "HOME": str(self.home), "XDG_RUNTIME_DIR": str(self.home),
            "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
            # Its home is its own, and empty; kernels for CPUs are the same anywhere, and take seconds to compile.
            "PAGEDCHAT_CACHE_DIR": str(default_folder().parent),
        }  # fmt: skip

    def __enter__(self) -> "TerminalProgram":
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self.pid, signal.SIGKILL)
        self._process.wait()
        for descriptor in {self._terminal, self._tty} - {-1}:
            os.close(descriptor)
        self._home.cleanup()

    # --- what is done to it -------------------------------------------------------------------------

    @property
    def pid(self) -> int:
        """Of the program."""
        return self._process.pid

    def press(self, keys: str) -> None:
        """Send what a terminal sends for these keys."""
        os.write(self._terminal, keys.encode())

    def signal(self, number: int) -> None:
        """Send a signal to the program alone."""
        os.kill(self.pid, number)

    def resize(self, columns: int, rows: int) -> None:
        """Give the terminal another size; the kernel sends SIGWINCH."""
        fcntl.ioctl(self._terminal, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def hang_up(self) -> None:
        """Close the terminal's window."""
        os.close(self._tty)
        os.close(self._terminal)
        self._terminal = self._tty = -1

    # --- what is seen of it -------------------------------------------------------------------------

    def wait_for(self, text: str | bytes) -> None:
        """Read until this is written, in one piece, after what was read before."""
        wanted, start = text.encode() if isinstance(text, str) else text, len(self.written)
        self.wait_until(lambda: wanted in self.written[start:], f"{text!r} is not written")

    def wait_for_reply(self) -> None:
        """Read until tokens are generated: a rate above zero is shown after what was read before."""
        start = len(self.written)
        self.wait_until(lambda: _RATE.search(self.written[start:]), "no reply is written")

    def wait_until(self, holds, complaint: str) -> None:
        """Read until something holds."""
        deadline = time.monotonic() + PATIENCE
        while not holds():
            if time.monotonic() > deadline:
                raise AssertionError(f"{complaint}; the end of what is: {self.written[-3000:]!r}")
            self._read_some()

    def wait_for_end(self) -> int:
        """Read until it has ended; returns its exit status."""
        self.wait_until(lambda: self._process.poll() is not None, "the program has not ended")
        while self._terminal >= 0 and self._read_some():
            pass
        return self._process.returncode

    def _read_some(self) -> bool:
        if self._terminal < 0:
            time.sleep(0.01)
            return False
        if not select.select([self._terminal], [], [], 0.05)[0]:
            return False
        before = self.written.count(_ASKS_FOR_FRAMES)
        self.written += os.read(self._terminal, 1 << 16)
        if self.written.count(_ASKS_FOR_FRAMES) > before:
            os.write(self._terminal, _KNOWS_FRAMES)
        return True

    def screen(self, columns: int = 120, rows: int = 40) -> str:
        """What a terminal of this size shows of all that it has written: a frame once all of it has come, as those
        do that know where frames begin and end. What is read at a time ends anywhere."""
        shown = self.written
        if shown.rfind(_FRAME_BEGINS) > shown.rfind(_FRAME_ENDS):
            shown = shown[: shown.rfind(_FRAME_BEGINS)]
        screen = pyte.Screen(columns, rows)
        pyte.ByteStream(screen).feed(shown)
        return "\n".join(screen.display)

    @property
    def attributes(self) -> list:
        """The terminal's settings now: echo, lines, signals."""
        return termios.tcgetattr(self._tty)

    def is_left(self) -> bool:
        """Whether the terminal is as it was: its settings, its modes, its screen."""
        tail = self.written[self.written.rindex(b"\x1b[?1049h") :]
        return self.attributes == self.attributes_before and all(mode in tail for mode in LEFT)

    def sockets(self) -> list[Path]:
        """For `pagedchat stats`."""
        return [*self.home.rglob("*.sock")]

    def engine(self) -> psutil.Process:
        """The engine process."""
        [engine] = psutil.Process(self.pid).children()
        return engine
