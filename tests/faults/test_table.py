"""docs/faults.md says what is tested, and nothing else."""

import re
from functools import cache

import pytest

from pagedchat.resources import resource_dir

ROOT = resource_dir("kernels").parent
TEST = re.compile(r"^(?:async )?def (test_\w+)", re.MULTILINE)
ROWS = [
    line
    for line in (ROOT / "docs" / "faults.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith(("| fault |", "| --- |"))
]


@cache  # one of the tests below asks for each row
def names_of_tests(folder: str) -> set[str]:
    files = (ROOT / "tests" / folder).rglob("test_*.py")
    return {
        name for file in files if file.name != "test_table.py" for name in TEST.findall(file.read_text("utf-8"))
    }


def test_the_table_is_found():
    assert len(ROWS) > 20


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip())
def test_every_row_is_held_by_tests(row):
    named = set(re.findall(r"`(test_\w+)`", row.split("|")[-2]))
    assert named
    assert named <= names_of_tests(".")


def test_every_fault_that_is_tested_has_a_row():
    assert [name for name in sorted(names_of_tests("faults")) if f"`{name}`" not in "".join(ROWS)] == []
