"""Draws what the engine changed a little at a time, so that a key never waits for more than a part of the screen.

The screen is drawn in rounds and a round in turns. Between two turns the loop is free: what was drawn is painted,
and keys are answered. How much a turn draws, and how soon the next one comes, follows from what the last one cost.
Knows nothing of the engine and of what the parts show.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import NamedTuple
from weakref import WeakKeyDictionary

from textual.widget import Widget

from pagedchat.tui.kit.textual_quirks import stays

TURN_SECONDS = 1 / 60
"""Between two turns at least; Textual paints no more often."""
ROUND_SECONDS = 1 / 20
"""Between the beginnings of two rounds at least."""
FIGURES_SECONDS = 0.5
"""Between two times that figures are drawn at least: with every fifth drawing of a text, to be painted together."""
TEXT_SECONDS = 0.1
"""Between two times that a text is drawn to which something is added: faster than anybody reads."""
SHARE = 0.5
"""Of a core that drawing may take."""
DEAR, CHEAP = 0.010, 0.005
"""Seconds of processor time: a turn that takes more draws less the next time, one that takes less draws more."""


class ScreenPart(NamedTuple):
    """Something that is drawn in one piece."""

    widget: Widget
    draw: Callable[[], None]
    """Takes over what changed; asks Textual to paint it."""
    seconds: float = 0.0
    """It is drawn once in so long at most, for what nobody reads faster. One such part a widget."""


class DrawTurns:
    """Draws round after round.

    Args:
        next_round: the parts to be drawn now; none while nothing has changed.
        cpu_clock: seconds of processor time that this thread has had.
        clock: seconds.
    """

    def __init__(
        self,
        next_round: Callable[[], Iterable[ScreenPart]],
        cpu_clock: Callable[[], float] = time.thread_time,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._next_round = next_round
        self._cpu_clock = cpu_clock
        self._clock = clock
        self._waiting: deque[ScreenPart] = deque()
        self._next_at = 0.0
        """When the next round may begin."""
        self._cpu_then = cpu_clock()
        self._cost = 0.0
        """Processor time from one turn to the next, lately: drawing, painting, and all else on this thread."""
        self._drawn: WeakKeyDictionary[Widget, float] = WeakKeyDictionary()
        """When parts were drawn that are not drawn every time, counted in their own seconds: figures are due when a
        text is, and are painted with it."""
        self._owed: dict[Widget, ScreenPart] = {}
        """Those of them that have changed since."""
        self.at_once = 1
        """Parts that a turn draws."""
        self._num_drawn = 0
        """By the last turn."""

    async def run(self) -> None:
        """Until cancelled."""
        while True:  # noqa: ASYNC110 - it waits for time to pass, not for something
            await asyncio.sleep(self.turn())

    def turn(self) -> float:
        """Draw some parts; returns in how many seconds to draw more."""
        self._look_back()
        now = self._clock()
        if not self._waiting and now >= self._next_at:
            self._begin_round(now)
        self._num_drawn = min(self.at_once, len(self._waiting))
        for _ in range(self._num_drawn):
            part = self._waiting.popleft()
            if stays(part.widget):
                part.draw()
        pause = self._cost / SHARE if self._num_drawn else 0.0
        return max(TURN_SECONDS, pause, 0.0 if self._waiting else self._next_at - now)

    def _begin_round(self, now: float) -> None:
        """Figures for which it is too early are owed: they are drawn later even if nothing else changes.

        Where all that changes has its time, the next round begins when that has come.
        """
        soonest = 0.0
        for part in self._next_round():
            if part.seconds:
                self._owed[part.widget] = part
                soonest = min(soonest or part.seconds, part.seconds)
            else:
                self._waiting.append(part)
        timed = soonest and not self._waiting
        self._next_at = (now // soonest + 1) * soonest if timed else now + ROUND_SECONDS
        for widget, part in [*self._owed.items()]:
            turn = now // part.seconds
            if self._drawn.get(widget) != turn:
                self._drawn[widget] = turn
                self._waiting.append(self._owed.pop(widget))

    def _look_back(self) -> None:
        """What the turn before has cost, and what follows from it."""
        cpu = self._cpu_clock()
        last, self._cpu_then = cpu - self._cpu_then, cpu
        if not self._num_drawn:
            return
        self._cost = (self._cost + last) / 2
        if last > DEAR:
            self.at_once = max(1, self.at_once - 1)
        elif last < CHEAP and self._num_drawn == self.at_once:
            self.at_once += 1
