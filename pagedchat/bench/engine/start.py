"""From starting a process to its first token, kernels cached and not, beside `import torch` alone.

Every run is a process of its own. Files are in the page cache and bytecode is written, since a first run of each
kind does not count. A run without a kernel cache has an empty folder in the place of ours.
"""

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from pagedchat.errors import PagedChatError

_CHILD = "pagedchat.bench.engine.start_child"
_PATIENCE_SECONDS = 120.0
MAX_COLD_RUNS = 3

Say = Callable[[str], None]
Way = Callable[[Path, dict[str, str]], dict[str, float]]
"""Starts a process with a checkpoint and an environment; gives the seconds from there to each thing done."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartFigure:
    """One way to start."""

    name: str
    runs: list[dict[str, float]]
    """Of each run, seconds from process start to "imports", "ready" and "first" (token), as far as they show."""

    def seconds(self, what: str) -> float | None:
        """The median; None where this way of starting does not show it."""
        values = [run[what] for run in self.runs if what in run]
        return median(values) if values else None


def measure_start(folder: Path, repeats: int, say: Say) -> list[StartFigure]:
    """Start in every way, `repeats` times, with an empty kernel cache at most three times.

    Args:
        folder: a checkpoint with a tokenizer.
        repeats: runs that count.
        say: told of progress.

    Raises:
        PagedChatError: a process failed; its last words are the hint.
    """
    figures = [_measure("import torch", _import_torch, folder, None, repeats, say)]
    with tempfile.TemporaryDirectory(prefix="pagedchat-bench-") as kernels:
        for name, way in _WAYS.items():
            figures.append(_measure(name, way, folder, kernels, repeats, say))
    for name, way in _WAYS.items():
        cold = f"{name}, no kernels cached"
        figures.append(_measure(cold, way, folder, None, min(repeats, MAX_COLD_RUNS), say, warm_ups=0))
    return figures


def _measure(
    name: str, way: Way, folder: Path, kernels: str | None, repeats: int, say: Say, warm_ups: int = 1
) -> StartFigure:
    say(f"start: {name}")
    runs = []
    for _ in range(warm_ups + repeats):
        with tempfile.TemporaryDirectory(prefix="pagedchat-bench-") as fresh:
            runs.append(way(folder, with_kernels_in(kernels or fresh)))
    figure = StartFigure(name=name, runs=runs[warm_ups:])
    say(f"start: {name}: " + ", ".join(f"{what} {figure.seconds(what):.2f} s" for what in figure.runs[0]))
    return figure


def with_kernels_in(kernels: str) -> dict[str, str]:
    """The environment of a process with another kernel cache.

    Bytecode may be written: who starts a program a second time has it.
    """
    inherited = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    return inherited | {"PAGEDCHAT_CACHE_DIR": kernels}


def _import_torch(_folder: Path, environment: dict[str, str]) -> dict[str, float]:
    program = 'import json, time, torch; print(json.dumps({"imports": time.monotonic()}))'
    return _stamps([sys.executable, "-c", program], environment)


def _api(folder: Path, environment: dict[str, str]) -> dict[str, float]:
    return _stamps([sys.executable, "-m", _CHILD, "api", str(folder)], environment)


def _process(folder: Path, environment: dict[str, str]) -> dict[str, float]:
    return _stamps([sys.executable, "-m", _CHILD, "process", str(folder)], environment)


def _one_shot(folder: Path, environment: dict[str, str]) -> dict[str, float]:
    """The first byte on standard output comes with the first token."""
    options = ["--model", str(folder), "--device", "cuda", "--raw", "--temperature", "0", "--max-tokens", "1"]
    command = [sys.executable, "-m", "pagedchat", "-p", "The sea is calm tonight. The tide", *options]
    started = time.monotonic()
    with _popen(command, environment) as process:
        first = process.stdout.read(1) if process.stdout else b""
        seconds = time.monotonic() - started
        _, complaint = process.communicate(timeout=_PATIENCE_SECONDS)
    if process.returncode or not first:
        raise _failed(command, complaint)
    return {"first": seconds}


_WAYS: dict[str, Way] = {"LLM in a script": _api, "pagedchat -p TEXT": _one_shot, "engine process": _process}


def _stamps(command: Sequence[str], environment: dict[str, str]) -> dict[str, float]:
    started = time.monotonic()
    return {what: stamp - started for what, stamp in last_words(command, environment).items()}


def last_words(command: Sequence[str], environment: dict[str, str]) -> Any:
    """What a process says in its last line, as JSON.

    Raises:
        PagedChatError: it failed; its complaint is the hint.
    """
    with _popen(command, environment) as process:
        said, complaint = process.communicate(timeout=_PATIENCE_SECONDS)
    if process.returncode:
        raise _failed(command, complaint)
    return json.loads(said.splitlines()[-1])


def _popen(command: Sequence[str], environment: dict[str, str]) -> subprocess.Popen[bytes]:
    return subprocess.Popen(  # noqa: S603 - this interpreter and modules of ours
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment,
        bufsize=0,
    )


def _failed(command: Sequence[str], complaint: bytes) -> PagedChatError:
    words = " ".join(command[1:3])
    return PagedChatError(f"A process to be timed failed ({words}).", complaint.decode(errors="replace")[-800:])
