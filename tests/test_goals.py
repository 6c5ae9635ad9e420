"""docs/goals.md names tests that there are, and says what is not done."""

import re

import pytest

from pagedchat.resources import resource_dir

ROOT = resource_dir("kernels").parent
ROWS = [
    line
    for line in (ROOT / "docs" / "goals.md").read_text(encoding="utf-8").splitlines()
    if line.startswith("| ") and not line.startswith(("| goal |", "| --- |"))
]
NAMES = {
    name
    for file in (ROOT / "tests").rglob("test_*.py")
    for name in re.findall(r"^(?:async )?def (test_\w+)|^(Test\w+) = ", file.read_text("utf-8"), re.MULTILINE)
    for name in name
    if name
}


def test_the_goals_are_found():
    assert len(ROWS) > 30


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row.split("|")[1].strip()[:40])
def test_every_goal_is_held_by_tests_or_not_yet(row):
    _, _, how, held, _ = row.split("|")
    named = set(re.findall(r"`([Tt]est_?\w+)`", held))
    assert bool(named) != (how.strip() == "not yet")
    assert named <= NAMES
