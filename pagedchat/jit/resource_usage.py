"""What a compiled kernel takes of a multiprocessor, as the assembler reports it. Needs no GPU.

Spills are counted nowhere in a cubin, so all figures come from the one report that has them, `ptxas -v`.
"""

import re
from dataclasses import dataclass

_ENTRY = re.compile(r"Compiling entry function '([^']+)'")
_FIGURES = {
    "registers": re.compile(r"Used (\d+) registers"),
    "shared_bytes": re.compile(r"(\d+)(?:\+\d+)? bytes smem"),
    "stack_bytes": re.compile(r"(\d+) bytes stack frame"),
    "spill_stores": re.compile(r"(\d+) bytes spill stores"),
    "spill_loads": re.compile(r"(\d+) bytes spill loads"),
}
_REPORT_LINE = re.compile(r"\s*(?:ptxas (?:info|\s*\.)|\d+ bytes stack frame)")


@dataclass(frozen=True, slots=True)
class ResourceUsage:
    """Of one entry point; bytes of stack and spills are those of one thread."""

    entry: str
    registers: int = 0
    """Of a thread."""
    shared_bytes: int = 0
    """Static shared memory of a thread block; a launch may add to it."""
    stack_bytes: int = 0
    spill_stores: int = 0
    spill_loads: int = 0

    @property
    def spill_bytes(self) -> int:
        """Bytes written to and read from local memory because registers ran out."""
        return self.spill_stores + self.spill_loads


def parse_usage(log: str) -> tuple[ResourceUsage, ...]:
    """One `ResourceUsage` for every entry point that the log of `ptxas -v` reports, in its order.

    The figures of device functions that were not inlined stand before those of the entry that calls them or after;
    the first of a kind within an entry's lines is the entry's own.
    """
    _, *parts = _ENTRY.split(log)
    return tuple(
        ResourceUsage(entry, **{name: _first(figure, lines) for name, figure in _FIGURES.items()})
        for entry, lines in zip(parts[::2], parts[1::2], strict=True)
    )


def without_report(log: str) -> str:
    """What else the log says: warnings."""
    return "\n".join(line for line in log.splitlines() if line.strip("\0 ") and not _REPORT_LINE.match(line))


def _first(figure: re.Pattern[str], lines: str) -> int:
    match = figure.search(lines)
    return int(match[1]) if match else 0
