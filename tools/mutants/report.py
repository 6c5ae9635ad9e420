"""What became of the mutants, file by file: read from what mutmut keeps, told as a table."""

import json
from collections import Counter
from pathlib import Path

Results = dict[str, Counter[str]]
"""For each file how many mutants were killed, survived, or met no test."""
FATES = ("killed", "survived", "untested")
SURVIVED, NOT_CHECKED, UNTESTED = 0, None, (5, 33)
"""Exit codes that mutmut keeps. All others tell of tests that failed, or that went on without an end."""


def read(folder: Path) -> Results:
    """What is known of the files in this folder of mutants; those without mutants are left out."""
    results: Results = {}
    for path in sorted(folder.glob("*.py.meta")):
        codes = json.loads(path.read_text(encoding="utf-8"))["exit_code_by_key"].values()
        fates = Counter(_fate(code) for code in codes if code is not NOT_CHECKED)
        if fates:
            results[path.name.removesuffix(".meta")] = fates
    return results


def score(results: Results) -> float:
    """Per cent of the mutants that were killed; all of them where there are none."""
    total = sum(results.values(), Counter[str]())
    return 100 * total["killed"] / total.total() if total else 100.0


def table(results: Results) -> str:
    """A line for each file and one for all."""
    lines = [f"{'file':24} {'mutants':>8} " + " ".join(f"{fate:>8}" for fate in FATES) + f" {'score':>8}"]
    lines += [_line(name, {name: fates}) for name, fates in results.items()]
    return "\n".join([*lines, _line("all", results)])


def _line(name: str, results: Results) -> str:
    total = sum(results.values(), Counter[str]())
    counts = " ".join(f"{total[fate]:8}" for fate in FATES)
    return f"{name:24} {total.total():8} {counts} {score(results):6.1f} %"


def _fate(code: int) -> str:
    if code == SURVIVED:
        return "survived"
    return "untested" if code in UNTESTED else "killed"
