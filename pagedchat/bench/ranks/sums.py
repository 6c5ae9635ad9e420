"""How long a sum over ranks takes, with the residual sum and the norm behind it: of ours, and of other libraries.

Each way has processes of its own, so that one that does not run here takes nobody else with it. Loads no torch.
"""

import json
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from pagedchat.distributed.joining import shares_gpu
from pagedchat.own_process import command, environment

OURS, NCCL, ONE_SHOT, GLOO = (
    "one launch of ours",
    "NCCL and a launch",
    "torch's one shot and a launch",
    "gloo, then torch",
)
_ON_GPUS, _ON_CPU = (OURS, NCCL, ONE_SHOT), (OURS, GLOO)
NUMS_ROWS, WIDTH = (2, 16, 64, 256), 4096
"""From 16 KB to 2 MB of 16-bit numbers, as which they are summed on GPUs."""
MOST_SECONDS = 120.0
"""For a way, its start included."""
_LOOK = 0.05


@dataclass(frozen=True, slots=True)
class Sum:
    """What came out for one way."""

    size: int
    """Ranks."""
    way: str
    num_rows: int
    us: float
    """Microseconds of one; on GPUs in a graph, on CPUs as it is called."""
    failed: str = ""
    """Why there is no figure."""


def measure_sums(size: int, device: str) -> list[Sum]:
    """All ways of `size` ranks on a device, `cpu` or `cuda`."""
    ways = _ON_CPU if device == "cpu" else (OURS,) if shares_gpu() else _ON_GPUS
    return [each for way in ways for each in _measure(size, device, way)]


def _measure(size: int, device: str, way: str) -> list[Sum]:
    with tempfile.TemporaryDirectory(prefix="pagedchat-bench-") as folder:
        processes = [_start(rank, size, Path(folder), device, way) for rank in range(size)]
        try:
            failed = _wait(processes)
        finally:
            for process in processes:
                process.kill()
                process.wait()
        found = Path(folder) / "found.json"
        if not failed and found.is_file():
            figures = json.loads(found.read_text("utf-8"))
            return [Sum(size, way, num_rows, us) for num_rows, us in zip(NUMS_ROWS, figures, strict=True)]
        return [Sum(size, way, NUMS_ROWS[0], 0.0, f"failed: {_last_words(Path(folder)) or failed}")]


def _start(rank: int, size: int, folder: Path, device: str, way: str) -> subprocess.Popen[bytes]:
    arguments = (*command("pagedchat.bench.ranks.sum_worker"), str(rank), str(size), str(folder), device, way)
    with (folder / f"said-{rank}").open("wb") as said:
        return subprocess.Popen(  # noqa: S603 - a module of our own
            arguments, env=environment(), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=said
        )


def _wait(processes: list[subprocess.Popen[bytes]]) -> str:
    """Until all have ended, or one has failed, which is what is returned."""
    deadline = time.monotonic() + MOST_SECONDS
    while time.monotonic() < deadline:
        codes = [process.poll() for process in processes]
        if any(codes):
            return f"exit code {next(filter(None, codes))}"
        if None not in codes:
            return ""
        time.sleep(_LOOK)
    return f"no figure within {MOST_SECONDS:.0f} s"


def _last_words(folder: Path) -> str:
    """The last line of the first rank that has said something: why it failed."""
    said = [file.read_text("utf-8", "replace").split("\n") for file in sorted(folder.glob("said-*"))]
    lines = [line.strip() for of_rank in said for line in of_rank[-2:] if line.strip()]
    return lines[0][:200] if lines else ""
