"""The longest a chat waits from one token to the next, in an engine that has just been started without kernels.

Every run is a process of its own with an empty kernel cache, so that what has to be compiled or captured is while
chats are running.
"""

import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pagedchat.bench.engine.start import last_words, with_kernels_in
from pagedchat.bench.kernels.report import Table

_CHILD = "pagedchat.bench.engine.stutter_child"
WAYS = {"LLMEngine in a script": "api", "engine process": "process"}
SECONDS = {"cpu": 4.0, "cuda": 20.0}
"""For which chats ask again, by device."""

Say = Callable[[str], None]
_Run = tuple[list[float], int, list[list[str]]]
"""The longest gaps, tokens, and what was noted in those gaps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StutterFigure:
    """One way to ask."""

    name: str
    worst_ms: float
    """The longest time between two tokens of a chat, in any of the runs."""
    second_ms: float
    """The longest but one of the same run."""
    num_tokens: int
    """Of that run."""
    meanwhile: list[list[str]]
    """What the engine's log says of the steps in these two: pieces of missing steps that came before them, and
    which of them ran without a graph."""


def measure_stutter(folder: Path, device: str, dtype: str, repeats: int, say: Say) -> list[StutterFigure]:
    """Run chats in every way; of the runs the worst one counts.

    Args:
        folder: a checkpoint with a tokenizer.
        device: cpu or cuda.
        dtype: of weights and cache.
        repeats: runs.
        say: told of progress.

    Raises:
        PagedChatError: a process failed; its last words are the hint.
    """
    return [
        _worst(name, [_run(way, folder, device, dtype) for _ in range(repeats)], say) for name, way in WAYS.items()
    ]


def _run(way: str, folder: Path, device: str, dtype: str) -> _Run:
    with tempfile.TemporaryDirectory(prefix="pagedchat-bench-") as fresh:
        command = [sys.executable, "-m", _CHILD, way, str(folder), device, dtype, str(SECONDS[device])]
        said = last_words(command, with_kernels_in(fresh))
    return said["worst"], said["num_tokens"], said["meanwhile"]


def _worst(name: str, runs: list[_Run], say: Say) -> StutterFigure:
    (worst, second), num_tokens, meanwhile = max(runs)
    figure = StutterFigure(
        name=name, worst_ms=1e3 * worst, second_ms=1e3 * second, num_tokens=num_tokens, meanwhile=meanwhile
    )
    say(f"stutter: {name}: {figure.worst_ms:.1f} ms, then {figure.second_ms:.1f} ms")
    for gap, what in zip(("longest", "second"), figure.meanwhile, strict=False):
        say(f"stutter: {name}: in the {gap}: {'; '.join(what) or 'nothing that the engine took note of'}")
    return figure


def stutter_table(figures: list[StutterFigure]) -> Table:
    """A row for each way."""
    rows = tuple((one.name, f"{one.worst_ms:.1f}", f"{one.second_ms:.1f}", str(one.num_tokens)) for one in figures)
    header = ("4 chats that join, no kernels cached", "worst, ms", "second, ms", "tokens")
    return Table("Stutter: the longest between two tokens of a chat", header, rows)
