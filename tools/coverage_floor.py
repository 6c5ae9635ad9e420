"""The least share of branches that tests take: `coverage json -o - | python -m tools.coverage_floor PART...`.

Prints for each part of the package (`engine` is `pagedchat/engine/`) which share of its statements and branches
ran, and fails where fewer branches did than FLOOR says. Reads coverage's report; runs nothing.
"""

import json
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

FLOOR = 95.0
"""Percent of a part's branches."""


@dataclass(frozen=True)
class Share:
    """What ran of one part. `missed` names the files with the most branches that did not, worst first."""

    part: str
    statements: float
    """Percent."""
    branches: float
    """Percent."""
    missed: list[str]

    @property
    def enough(self) -> bool:
        """Whether the tests hold the part."""
        return self.branches >= FLOOR


def shares(report: Mapping[str, Any], parts: Iterable[str]) -> list[Share]:
    """Of each part, from the report in coverage's JSON; a part without a file in it has run nothing."""
    return [_share(part, _files_of(report, part)) for part in parts]


def _files_of(report: Mapping[str, Any], part: str) -> dict[str, Mapping[str, int]]:
    return {
        path: entry["summary"] for path, entry in report["files"].items() if path.startswith(f"pagedchat/{part}/")
    }


def _share(part: str, files: Mapping[str, Mapping[str, int]]) -> Share:
    missed = {path: summary["missing_branches"] for path, summary in files.items()}
    return Share(
        part,
        _percent(files.values(), "covered_lines", "num_statements"),
        _percent(files.values(), "covered_branches", "num_branches"),
        [f"{path} ({count})" for path, count in sorted(missed.items(), key=lambda item: -item[1]) if count],
    )


def _percent(summaries: Iterable[Mapping[str, int]], ran: str, of: str) -> float:
    summaries = list(summaries)
    total = sum(summary[of] for summary in summaries)
    return 100.0 * sum(summary[ran] for summary in summaries) / total if total else 0.0


def main(parts: list[str]) -> int:
    """Print the table; returns the exit code."""
    found = shares(json.load(sys.stdin), parts)
    print(f"{'':10}{'statements':>12}{'branches':>12}")
    for share in found:
        print(f"{share.part:10}{share.statements:>11.1f}%{share.branches:>11.1f}%")
    for share in found:
        if not share.enough:
            print(f"{share.part}: at least {FLOOR:g} % of the branches must run; missed: {', '.join(share.missed)}")
    return 0 if all(share.enough for share in found) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
