"""A program on a terminal: it leaves the terminal as it was found, whatever ends it. Knows no engine, no chats."""

import asyncio
import logging
import os
import signal
import sys
import termios
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from types import FrameType
from typing import Any

from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.filter import LineFilter

from pagedchat.errors import PagedChatError
from pagedchat.service.log_file import LogFile
from pagedchat.tui.kit.few_colours import FewColours
from pagedchat.tui.kit.glyph_filter import GlyphFilter
from pagedchat.tui.kit.lazy_stylesheet import LazyStylesheet
from pagedchat.tui.kit.plain_toasts import PlainToasts
from pagedchat.tui.kit.terminal_driver import TerminalDriver, drawn_on

ENDING = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
GRACE = 5.0
"""Seconds for ending in order; after that the program ends anyhow."""
LAST_WORDS = 2.0
"""Seconds that a terminal has for taking what gives it back."""
EXIT_SIGNALLED = 128
"""Plus the signal's number, as shells have it."""
_ALL_OFF = "".join(f"\x1b[?{mode}l" for mode in (1000, 1003, 1015, 1016, 1006, 2004, 2048, 1004))
_LEAVE = f"{_ALL_OFF}\x1b[?7h\x1b[<u\x1b[?1049l\x1b[?25h".encode()
"""Mouse, paste, resize and focus reports off, lines wrapped, plain keys, the screen from before, a cursor."""


class TerminalApp(PlainToasts):
    """An app that is run by `run_on_terminal`.

    Args:
        ascii_only: whether only ASCII characters may be drawn, of the signs that are not anybody's text.
    """

    def __init__(self, *, ascii_only: bool = False) -> None:
        super().__init__()
        self.stylesheet = LazyStylesheet(variables=self.get_css_variables())
        self.ascii = ascii_only
        """As above."""
        self._glyphs = GlyphFilter(ascii_only=ascii_only)
        self._few_colours = FewColours()

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Textual's own, and the signs and colours that terminals have."""
        # Without a terminal nobody is short of colours, whatever the environment says of one.
        few = [self._few_colours] if not self.is_headless and self.console.color_system == "standard" else []
        return [*super().get_line_filters(), self._glyphs, *few]

    def get_driver_class(self) -> type[Driver]:
        """Our own in the place of Textual's for a terminal; tests and browsers have others."""
        found = super().get_driver_class()
        return TerminalDriver if found is LinuxDriver else found

    def _fatal_error(self) -> None:
        """After a defect; Textual's own would print all variables, the chats among them."""
        self._close_messages_no_wait()

    @property
    def defect(self) -> BaseException | None:
        """The exception that ended the program, if one did."""
        return getattr(self._exception, "error", self._exception)  # a worker's is wrapped

    def end(self, exit_code: int) -> None:
        """The system wants the program to end: it does, without a question."""
        self.exit(return_code=exit_code)


def run_on_terminal(app: TerminalApp) -> int:
    """Run an app until it ends, or until a signal ends it in order.

    Returns:
        The exit status: 128 and its number after a signal.

    Raises:
        PagedChatError: it was ended by a defect; the traceback is in the log.
    """
    logging.getLogger().addHandler(logging.NullHandler())  # what libraries log is not for the screen
    run = _Run(app)
    with run.ended_by_signals():
        try:
            asyncio.run(run.main())
        except (Exception, KeyboardInterrupt):
            if run.exit_code is None:  # else the terminal may be gone, and nobody is there to be told
                raise
    if run.exit_code is not None:
        return run.exit_code
    if app.defect is not None:
        raise _told(app.defect)
    return app.return_code or 0


class _Run:
    """One run of an app, and the signals that come in it."""

    def __init__(self, app: TerminalApp) -> None:
        self._app = app
        self._loop: asyncio.AbstractEventLoop | None = None
        self._found = _attributes()
        self._last_resort = threading.Timer(GRACE, self._leave_now)
        self._last_resort.daemon = True
        self.exit_code: int | None = None
        """After a signal."""

    async def main(self) -> None:
        """The app, from start to end."""
        self._loop = asyncio.get_running_loop()
        await self._app.run_async()

    @contextmanager
    def ended_by_signals(self) -> Iterator[None]:
        """While this is entered the first of them ends the app; more of them, as terminals send, do no more."""
        before = {number: signal.signal(number, self._end) for number in ENDING}
        try:
            yield
        finally:
            self._last_resort.cancel()
            _set_attributes(self._found)
            for number, handler in before.items():
                signal.signal(number, handler)

    def _end(self, number: int, _frame: FrameType | None) -> None:
        if self.exit_code is not None:
            return
        self.exit_code = EXIT_SIGNALLED + number
        self._last_resort.start()
        if self._loop is None or self._loop.is_closed():
            raise KeyboardInterrupt
        self._loop.call_soon_threadsafe(self._app.call_later, self._app.end, self.exit_code)

    def _leave_now(self) -> None:
        """The app does not end by itself: it hangs, or its terminal takes nothing any more."""
        with suppress(OSError, ValueError):
            terminal = drawn_on()
            _give_back(terminal.fileno() if terminal is not None else -1)
        _set_attributes(self._found)
        os._exit(self.exit_code or 1)


def _give_back(terminal: int) -> None:
    """Undo all modes, though a thread may be in the middle of writing what the terminal does not read.

    That thread has the terminal until its text is through: what is underway is thrown away again and again, and no
    more comes, for it must not wait any longer.
    """
    threading.excepthook = lambda _: None  # its error is no news
    rest, deadline = _LEAVE, time.monotonic() + LAST_WORDS
    os.set_blocking(terminal, False)
    try:
        while rest and time.monotonic() < deadline:
            try:
                rest = rest[os.write(terminal, rest) :]
            except BlockingIOError:
                with suppress(termios.error):
                    termios.tcflush(terminal, termios.TCOFLUSH)
                time.sleep(0.005)
    finally:
        os.set_blocking(terminal, True)  # a shell has the same terminal


def _attributes() -> list[Any] | None:
    """The terminal's; None where there is none."""
    try:
        return termios.tcgetattr(sys.__stdin__) if sys.__stdin__ is not None else None
    except (termios.error, OSError, ValueError):
        return None


def _set_attributes(attributes: list[Any] | None) -> None:
    if attributes is not None and sys.__stdin__ is not None:
        with suppress(termios.error, OSError, ValueError):
            termios.tcsetattr(sys.__stdin__, termios.TCSANOW, attributes)


def _told(defect: BaseException) -> PagedChatError:
    log = LogFile()
    with suppress(OSError):
        os.close(log.open())
    log.add_traceback(defect)
    lines = str(defect).strip().splitlines()
    reason = f"{type(defect).__name__}: {lines[0][:200]}" if lines else type(defect).__name__
    where = f"How it came about is in {log.path}; please report it." if log.path else "Please report it."
    return PagedChatError(f"pagedchat failed: {reason.rstrip('.')}.", where)
