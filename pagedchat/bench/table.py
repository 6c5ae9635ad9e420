"""Rows of a benchmark as text, how they are shown, and the machine they were measured on."""

import platform
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

import psutil

from pagedchat import __version__
from pagedchat.chat.sanitize import one_line, sanitize


@dataclass(frozen=True, slots=True)
class Row:
    """One line of the printed table."""

    name: str
    figure: str
    note: str = ""


def render_table(title: str, rows: Sequence[Row]) -> str:
    """Aligned columns under a title."""
    widths = [max(len(getattr(row, column)) for row in rows) for column in ("name", "figure")]
    lines = [f"  {row.name:<{widths[0]}}  {row.figure:>{widths[1]}}  {row.note}".rstrip() for row in rows]
    return "\n".join([title, *lines])


def show(page: str) -> None:
    """Figures on standard output; the names of models and machines in them are text, never escapes."""
    print(sanitize(page))


def say(what: str) -> None:
    """What is being measured now, on standard error."""
    print(f"pagedchat bench: {one_line(what)}", file=sys.stderr, flush=True)


def percentile(values: Sequence[float], percent: int) -> float:
    """The smallest value that at least `percent` of a hundred values do not exceed."""
    ordered = sorted(values)
    return ordered[max(0, -(-len(ordered) * percent // 100) - 1)]


def environment() -> dict[str, object]:
    """What the figures depend on, without a name of the machine."""
    return {
        "cpu": _cpu_name(),
        "cores": psutil.cpu_count(logical=False),
        "logical_cores": psutil.cpu_count(),
        "memory_bytes": psutil.virtual_memory().total,
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "pagedchat": __version__,
        **{package: version(package) for package in ("torch", "transformers", "textual")},
    }


def _cpu_name() -> str:
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    except OSError:
        return platform.processor()
    names = [line.partition(":")[2].strip() for line in lines if line.startswith("model name")]
    return names[0] if names else platform.processor()
