"""The terminal as Textual drives it, with seven things done otherwise: suspending, going on, being hung up, what
was typed before there was a screen, pastes, where it draws while errors go elsewhere, and frames, each of which is
written in one piece. It knows whether the terminal has taken what was written."""

import fcntl
import os
import select
import signal
import struct
import sys
import termios
import threading
from typing import IO, Any, TextIO

from textual._ansi_sequences import SYNC_END, SYNC_START
from textual.drivers.linux_driver import LinuxDriver

from pagedchat.tui.kit.terminal_input import read_terminal


def drawn_on() -> TextIO | None:
    """Where the screen is: standard error, or with `2> FILE` standard output, which every screen has."""
    error = sys.__stderr__
    return error if error is not None and error.isatty() else sys.__stdout__


class _Output:
    """What the thread that writes has for a file: it counts the texts that the terminal has taken."""

    def __init__(self, file: IO[str]) -> None:
        self._file = file
        self._num_written = 0
        self.num_taken = 0

    def write(self, text: str) -> None:
        """As a file's."""
        self._file.write(text)
        self._num_written += 1

    def flush(self) -> None:
        """As a file's: it takes as long as the terminal does."""
        self._file.flush()
        self.num_taken = self._num_written

    def fileno(self) -> int:
        """As a file's."""
        return self._file.fileno()


class TerminalDriver(LinuxDriver):
    """What signals ask for is done by the event loop: a handler may come while the lock of the output is held.

    Textual 8.2 takes every SIGCONT for the end of a suspension of its own. After a SIGSTOP, which nobody hears
    before it acts, it would take the terminal's raw state for the one to be restored at the end, and no shell would
    echo any more.
    """

    _suspended = False
    _watched = False
    _frame: list[str] | None = None
    """The pieces of a frame that is not complete."""
    _typed_ahead = ""

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._output = _Output(drawn_on() or self._file)
        self._file: Any = self._output
        self._num_written = 0

    @property
    def is_behind(self) -> bool:
        """Whether the terminal has still to take what was written last: over a slow line it may for seconds."""
        return self._num_written > self._output.num_taken

    def write(self, data: str) -> None:
        """Write what a terminal can get, a frame in one piece: each piece wakes the thread that writes."""
        if data == SYNC_START:
            self._frame = []
        if self._frame is None:
            self._pass_on(data)
            return
        self._frame.append(data)
        if data == SYNC_END:
            whole, self._frame = "".join(self._frame), None
            self._pass_on(whole)

    def _pass_on(self, data: str) -> None:
        """A thread that has died of its terminal would never take it."""
        writer = self._writer_thread
        if not self._suspended and (writer is None or writer.is_alive()):
            self._num_written += 1
            super().write(data)

    def _sigtstp_application(self, *_: Any) -> None:
        if self._loop.is_closed():  # nothing is drawn any more
            os.kill(os.getpid(), signal.SIGSTOP)
        else:
            self._loop.call_soon_threadsafe(self._suspend)

    def _sigcont_application(self, *_: Any) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._go_on)

    def _suspend(self) -> None:
        """Give the terminal back as it was, and stop."""
        if self._auto_restart and not self._suspended:
            self.suspend_application_mode()
            self._suspended = True
        os.kill(os.getpid(), signal.SIGSTOP)

    def _go_on(self) -> None:
        """Take the terminal anew, whatever has become of it meanwhile, and draw everything."""
        if not (self._auto_restart and self._app.is_running):
            return
        if not self._suspended:
            self.suspend_application_mode()
        self._suspended = False
        self._must_signal_resume = True
        self.resume_application_mode()
        self._app.refresh(layout=True)

    def start_application_mode(self) -> None:
        """Take the terminal; from the first time on it is watched, too."""
        found = _take_all_keys(self.fileno)
        self._typed_ahead = _typed_ahead(self.fileno) if found is not None else ""
        super().start_application_mode()  # type: ignore[no-untyped-call]
        if found is not None:
            self.attrs_before = found
        if not self._watched:
            self._watched = True
            threading.Thread(target=_watch_terminal, args=(self.fileno,), name="terminal", daemon=True).start()

    def run_input_thread(self) -> None:
        """Read keys, after those that were typed ahead."""
        typed, self._typed_ahead = self._typed_ahead, ""
        read_terminal(self.fileno, self.exit_event, self.process_message, typed, debug=self._debug)


def _watch_terminal(descriptor: int) -> None:
    """Say that the terminal is gone where the kernel does not: to a program that it does not control.

    Whoever only reads takes that for the end of a file, again and again.
    """
    poll = select.poll()
    poll.register(descriptor, 0)
    if any(events & (select.POLLHUP | select.POLLERR) for _, events in poll.poll()):
        os.kill(os.getpid(), signal.SIGHUP)


def _take_all_keys(terminal: int) -> list[Any] | None:
    """From now on ^Q and ^S are keys and Enter is not ^J: for a moment the screen is there, and the system would
    take and change them still.

    Returns:
        The attributes from before; None where there are none.
    """
    try:
        found = termios.tcgetattr(terminal)
        iflag, oflag, cflag, lflag, *others = found
        iflag &= ~(termios.IXON | termios.IXOFF | termios.ICRNL)
        termios.tcsetattr(terminal, termios.TCSANOW, [iflag, oflag, cflag, lflag & ~termios.ICANON, *others])
    except termios.error:
        return None
    return found


def _typed_ahead(terminal: int) -> str:
    """What waits there from before, in which the system has made line feeds of Enter."""
    waiting = struct.unpack("i", fcntl.ioctl(terminal, termios.FIONREAD, struct.pack("i", 0)))[0]
    typed = os.read(terminal, waiting) if waiting else b""
    return typed.decode(errors="replace").replace("\n", "\r")
