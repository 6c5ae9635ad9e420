"""How loading goes, on one line of a terminal that is gone afterwards."""

import threading
from typing import TextIO

from pagedchat.chat.sanitize import one_line
from pagedchat.events import LoadProgress

_QUIET_SECONDS = 1.0
"""Loading that is done sooner says nothing."""


class ProgressLine:
    """Shown only where somebody watches and waits.

    A timer draws the first line: importing torch takes seconds and reports nothing.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._lock = threading.Lock()
        self._text = ""
        self._waited = self._is_over = False
        self._timer = threading.Timer(_QUIET_SECONDS, self._begin)
        self._timer.daemon = True
        if stream.isatty():
            self._timer.start()

    def show(self, progress: LoadProgress) -> None:
        """Loading went on."""
        share = f" {100 * progress.done // progress.total}%" if progress.total else ""
        with self._lock:
            self._text = f"{one_line(progress.message)}{share}"
            self._draw()

    def clear(self) -> None:
        """Wipe the line for good."""
        self._timer.cancel()
        with self._lock:
            if self._is_shown:
                self._write("")
            self._is_over = True

    def _begin(self) -> None:
        with self._lock:
            self._waited = True  # what is told later is shown at once
            self._draw()

    def _draw(self) -> None:
        if self._is_shown:
            self._write(self._text[:78])

    @property
    def _is_shown(self) -> bool:
        return self._waited and bool(self._text) and not self._is_over

    def _write(self, text: str) -> None:
        self._stream.write(f"\r\x1b[2K{text}")
        self._stream.flush()
