"""What a frame of the inspector costs over a large pool: starts it in a terminal and reads the times it took."""

import os
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import msgspec

from pagedchat.bench.table import percentile
from pagedchat.bench.ui.frames_app import FramesScript, FrameTimes
from pagedchat.bench.ui.terminal import Terminal

_COMMAND = (sys.executable, "-P", "-m", "pagedchat.bench.ui.frames_app")
_PATIENCE = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class FramesResult:
    """Milliseconds of processor time a frame, medians and 99th percentiles."""

    num_blocks: int
    num_chats: int
    num_frames: int
    idle_ms: float
    idle_p99_ms: float
    busy_ms: float
    busy_p99_ms: float
    redrawn_ms: float
    redrawn_p99_ms: float

    @property
    def busy_frames_per_second(self) -> float:
        """So many such frames one core can draw."""
        return 1000 / self.busy_ms


def measure_frames(num_blocks: int, num_chats: int, rate: int, num_frames: int) -> FramesResult:
    """Draw `num_frames` frames of each kind."""
    with tempfile.TemporaryDirectory(prefix="pagedchat-bench-") as folder:
        output = Path(folder) / "frames.json"
        script = FramesScript(
            output=str(output), num_blocks=num_blocks, num_chats=num_chats, rate=rate, num_frames=num_frames
        )
        with Terminal([*_COMMAND, msgspec.json.encode(script).decode()], os.environ) as terminal:
            terminal.wait_for_end(_PATIENCE)
        times = msgspec.json.decode(output.read_bytes(), type=FrameTimes)
    return FramesResult(
        num_blocks=num_blocks,
        num_chats=num_chats,
        num_frames=num_frames,
        idle_ms=round(median(times.idle), 3),
        idle_p99_ms=round(percentile(times.idle, 99), 3),
        busy_ms=round(median(times.busy), 3),
        busy_p99_ms=round(percentile(times.busy, 99), 3),
        redrawn_ms=round(median(times.redrawn), 3),
        redrawn_p99_ms=round(percentile(times.redrawn, 99), 3),
    )
