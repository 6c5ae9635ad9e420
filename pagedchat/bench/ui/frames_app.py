"""`python -m pagedchat.bench.ui.frames_app`: the inspector alone in a terminal, drawn frame by frame and timed.

A frame ends when what it changed has been written. Its cost is the processor time of the whole process, so that a
busy machine does not count; what is folded into the view between two frames belongs to the frame.
"""

import asyncio
import sys
import time
from collections.abc import Callable
from pathlib import Path

import msgspec
from textual.app import App, ComposeResult

from pagedchat.bench.ui.long_chats import LongChats
from pagedchat.tui.inspector.panel import InspectorPanel
from pagedchat.tui.inspector.pool.block_map import BlockMap
from pagedchat.tui.kit.textual_quirks import start_work
from pagedchat.view.engine_view import EngineView

STEPS_PER_FRAME = 2
"""30 steps a second at 15 frames a second."""
_WARM_UP = 10


class FramesScript(msgspec.Struct, frozen=True, kw_only=True):
    """One run; passed on the command line."""

    output: str
    num_blocks: int
    num_chats: int
    rate: int
    num_frames: int


class FrameTimes(msgspec.Struct, frozen=True, kw_only=True):
    """Milliseconds of processor time, frame by frame."""

    idle: list[float]
    """Nothing changed."""
    busy: list[float]
    """Every chat has grown by `STEPS_PER_FRAME` tokens."""
    redrawn: list[float]
    """The map in other colours: every cell of it is drawn anew."""


class FramesApp(App[FrameTimes]):
    """The inspector on the whole screen; ends by itself."""

    def __init__(self, script: FramesScript) -> None:
        super().__init__()
        self._script = script
        self._view = EngineView()
        self._chats = LongChats(self._view, script.num_blocks, script.num_chats, script.rate)
        self._panel = InspectorPanel(self._view)

    def compose(self) -> ComposeResult:
        """Nothing but the inspector."""
        yield self._panel

    def on_ready(self) -> None:
        """The first frame is out."""
        start_work(self, self._measure, "measure")

    async def _measure(self) -> None:
        await self._time(_WARM_UP, self._grow)
        count = self._script.num_frames
        self.exit(
            FrameTimes(
                busy=await self._time(count, self._grow),
                idle=await self._time(count, self._panel.refresh_view),
                redrawn=await self._time(count, self.query_one(BlockMap).cycle_colors),
            )
        )

    def _grow(self) -> None:
        self._chats.step(STEPS_PER_FRAME)
        self._panel.refresh_view()

    async def _time(self, count: int, change: Callable[[], None]) -> list[float]:
        times = []
        for _ in range(count):
            started = time.process_time()
            change()
            await self._drawn()
            times.append(round((time.process_time() - started) * 1000, 3))
        return times

    async def _drawn(self) -> None:
        """Until everything asked for so far is on the screen."""
        drawn = asyncio.Event()
        self._panel.call_after_refresh(drawn.set)
        await drawn.wait()


def main() -> int:
    """Measure, write the times as JSON."""
    script = msgspec.json.decode(sys.argv[1], type=FramesScript)
    times = FramesApp(script).run()
    if times is None:
        return 1
    Path(script.output).write_bytes(msgspec.json.encode(times))
    return 0


if __name__ == "__main__":
    sys.exit(main())
