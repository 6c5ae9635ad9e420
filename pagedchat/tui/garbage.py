"""Python's search for unreachable cycles, done so that nobody has to wait for it.

Left alone, a full search of all objects comes whenever enough of them were made, and takes a tenth of a second in
which no key is answered. Here the young objects are searched as ever; every few seconds those that have survived
are searched once and then left out of all later searches; everything is searched again when nothing else is done.
"""

import asyncio
import gc
import time
from collections.abc import Callable

PAUSE = 2.0
"""Seconds between two looks: few enough that little has survived."""
ALL_AT_LATEST = 600.0
"""Seconds after which everything is searched although the program is never idle."""
_NEVER = 1_000_000
"""So many searches of the young ones before Python searches everything by itself."""


class Garbage:
    """Decides what is searched when.

    Args:
        busy: whether the user may be waiting for something.
        clock: seconds.
    """

    def __init__(self, busy: Callable[[], bool], clock: Callable[[], float] = time.monotonic) -> None:
        self._busy = busy
        self._clock = clock
        self._searched = clock()
        """When everything was searched."""
        self._was_busy = True

    async def run(self) -> None:
        """Until cancelled; then Python does as before."""
        before = gc.get_threshold()
        gc.set_threshold(before[0], before[1], _NEVER)
        try:
            while True:
                await asyncio.sleep(PAUSE)
                self.look()
        finally:
            gc.unfreeze()
            gc.set_threshold(*before)

    def look(self) -> bool:
        """Search now; returns whether everything was searched."""
        busy, was_busy = self._busy(), self._was_busy
        self._was_busy = busy
        late = self._clock() >= self._searched + ALL_AT_LATEST
        if not busy and not was_busy and not late:
            return False
        everything = late or not busy
        if everything:
            gc.unfreeze()
            self._searched = self._clock()
        gc.collect()
        gc.freeze()
        return everything
