"""^C between two steps instead of within one, in whose midst it would leave an engine's books half written."""

import signal
import threading
from collections.abc import Callable
from types import FrameType, TracebackType
from typing import Any, Self

_Handler = Callable[[int, FrameType | None], Any]


class HeldInterrupts:
    """Inside, an interrupt waits until `let_through`, or the end. A second one does not wait.

    Only the main thread hears of signals, so that elsewhere nothing is done; nor where an interrupt calls no
    function.
    """

    def __init__(self) -> None:
        self._before: _Handler | None = None
        """What an interrupt calls outside."""
        self._held: int | None = None

    def __enter__(self) -> Self:
        if threading.get_ident() == threading.main_thread().ident:
            before = signal.signal(signal.SIGINT, self._hold)
            if callable(before):
                self._before = before
            else:
                signal.signal(signal.SIGINT, before)
        return self

    def __exit__(self, kind: type[BaseException] | None, _: BaseException | None, __: TracebackType | None) -> None:
        if self._before is not None:
            found = signal.signal(signal.SIGINT, self._before)
            if found != self._hold:
                signal.signal(signal.SIGINT, found)  # of somebody who set it meanwhile
        if kind is None:
            self.let_through()

    def let_through(self) -> None:
        """Whatever an interrupt that came meanwhile does outside, such as to raise KeyboardInterrupt."""
        if self._held is not None and self._before is not None:
            number, self._held = self._held, None
            self._before(number, None)

    def _hold(self, number: int, frame: FrameType | None) -> None:
        if self._held is None:
            self._held = number
        elif self._before is not None:
            self._held = None
            self._before(number, frame)
