"""Signals that end a program without a screen: it ends in order, as by ^C, with the exit code that shells expect.

A second signal of the same kind ends it at once, and comes by itself after some seconds: importing torch, for one,
may swallow the first. The screens have handlers of their own.
"""

import os
import signal
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType

ENDING = (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT)
GRACE = 5.0
"""Seconds for ending in order."""
EXIT_SIGNALLED = 128
"""Plus the signal's number."""


class Ending:
    """Which signal ended the work, if one did."""

    exit_code = EXIT_SIGNALLED + signal.SIGINT
    has_begun = False
    _last_resort: threading.Timer | None = None

    def begin(self, number: int, _frame: FrameType | None) -> None:
        """A signal's handler: `KeyboardInterrupt` is what everybody cleans up after."""
        signal.signal(number, signal.SIG_DFL)
        self.exit_code, self.has_begun = EXIT_SIGNALLED + number, True
        self._last_resort = threading.Timer(GRACE, os.kill, (os.getpid(), number))
        self._last_resort.daemon = True
        self._last_resort.start()
        raise KeyboardInterrupt

    def is_over(self) -> None:
        """It has ended in order, or there was no signal."""
        if self._last_resort is not None:
            self._last_resort.cancel()


@contextmanager
def ended_in_order() -> Iterator[Ending]:
    """While this is entered signals interrupt; those that are ignored, as by nohup, stay so."""
    ending = Ending()
    before = {number: signal.getsignal(number) for number in ENDING}
    for number, handler in before.items():
        if handler == signal.SIG_DFL:
            signal.signal(number, ending.begin)
    try:
        yield ending
    finally:
        ending.is_over()
        for number, handler in before.items():
            signal.signal(number, handler)
