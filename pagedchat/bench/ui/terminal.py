"""A terminal that a program runs in: it takes keys, reads what is drawn and counts the frames.

Programs that ask are told that updates may be bracketed (mode 2026), so every frame is marked in what they write.
"""

import fcntl
import os
import pty
import select
import signal
import struct
import subprocess
import termios
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress

from pagedchat.errors import PagedChatError

COLUMNS, LINES = 200, 50
_FRAME_START = b"\x1b[?2026h"
_MODE_ASKED, _MODE_ANSWER = b"\x1b[?2026$p", b"\x1b[?2026;2$y"
_LAST_OUTPUT = 2000
"""Bytes of older output kept, for what comes in two pieces."""
_LAST_WORDS = 500
"""Bytes of it in an error message."""
_PATIENCE = 30.0
_SIZE_NAMES = frozenset({"COLUMNS", "LINES"})
"""Where the caller's terminal is described, a program would take that for the size of its own."""


class Terminal:
    """Runs one program; to be used in a `with` statement, which ends it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str]) -> None:
        inherited = {name: value for name, value in environment.items() if name not in _SIZE_NAMES}
        self._terminal, tty = pty.openpty()
        fcntl.ioctl(tty, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
        self._process = subprocess.Popen(  # noqa: S603 - our own program
            command,
            stdin=tty,
            stdout=tty,
            stderr=tty,
            env={**inherited, "TERM": "xterm-256color", "COLORTERM": "truecolor"},
            start_new_session=True,
        )
        os.close(tty)
        self._seen = b""
        """The end of what was read, the last piece in full."""
        self.num_frames = 0
        self.num_bytes = 0

    def __enter__(self) -> "Terminal":
        return self

    def __exit__(self, *_: object) -> None:
        """Hang up as a closed terminal window does, then make sure."""
        os.close(self._terminal)
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGTERM)
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()

    @property
    def pid(self) -> int:
        """The program's process id."""
        return self._process.pid

    def press(self, keys: str) -> None:
        """Send what a terminal sends for these keys."""
        os.write(self._terminal, keys.encode())

    def wait_for(self, text: str, patience: float = _PATIENCE) -> float:
        """Read until `text` is drawn; returns when that was, by `time.perf_counter`.

        Raises:
            PagedChatError: it is not drawn in time, or the program has ended.
        """
        wanted, deadline = text.encode(), time.perf_counter() + patience
        self._seen = b""
        while wanted not in self._seen:
            if not self._read_some(deadline - time.perf_counter()):
                raise PagedChatError(
                    f"The terminal did not show {text!r}.", f"It wrote: {self._seen[-_LAST_WORDS:]!r}"
                )
        return time.perf_counter()

    def wait_for_all(self, texts: Sequence[str], patience: float = _PATIENCE) -> list[float]:
        """Read until all of these have been drawn; returns when each was, by `time.perf_counter`.

        Raises:
            PagedChatError: one is not drawn in time, or the program has ended.
        """
        times: dict[str, float] = {}
        deadline = time.perf_counter() + patience
        self._seen = b""
        while missing := [text for text in texts if text not in times]:
            if not self._read_some(deadline - time.perf_counter()):
                raise PagedChatError(
                    f"The terminal did not show {missing[0]!r}.", f"It wrote: {self._seen[-_LAST_WORDS:]!r}"
                )
            now = time.perf_counter()
            times |= {text: now for text in missing if text.encode() in self._seen}
        return [times[text] for text in texts]

    def read_for(self, seconds: float) -> None:
        """Read whatever is drawn, for so long.

        Raises:
            PagedChatError: the program has ended.
        """
        deadline = time.perf_counter() + seconds
        while (left := deadline - time.perf_counter()) > 0:
            self._read_some(left)
        if self._process.poll() is not None:
            raise PagedChatError("The program under test has ended.", f"It wrote: {self._seen[-_LAST_WORDS:]!r}")

    def wait_for_end(self, patience: float) -> None:
        """Read until the program ends by itself.

        Raises:
            PagedChatError: it does not, or it failed.
        """
        deadline = time.perf_counter() + patience
        while self._read_some(deadline - time.perf_counter()):
            pass
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=5)
        if self._process.returncode != 0:
            raise PagedChatError("The program under test failed.", f"It wrote: {self._seen[-_LAST_WORDS:]!r}")

    def _read_some(self, seconds: float) -> bool:
        """Whether there was anything to read within this time."""
        ready, _, _ = select.select([self._terminal], [], [], max(0.0, seconds))
        if not ready:
            return False
        try:
            piece = os.read(self._terminal, 1 << 16)
        except OSError:  # how Linux says that the other end is closed
            return False
        self._take(piece)
        return bool(piece)

    def _take(self, piece: bytes) -> None:
        self.num_frames += self._count_new(_FRAME_START, piece)
        self.num_bytes += len(piece)
        if self._count_new(_MODE_ASKED, piece):
            os.write(self._terminal, _MODE_ANSWER)
        self._seen = self._seen[-_LAST_OUTPUT:] + piece

    def _count_new(self, mark: bytes, piece: bytes) -> int:
        """How often `mark` ends in this piece; its beginning may have come with the piece before."""
        return (self._seen[1 - len(mark) :] + piece).count(mark)
