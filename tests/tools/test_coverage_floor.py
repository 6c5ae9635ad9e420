"""The least share of branches: which parts of a report of coverage are held to it."""

import io
import json

import pytest

from tools.coverage_floor import main, shares


def summary(num_branches: int, missing: int) -> dict[str, object]:
    counts = {
        "num_statements": 10, "covered_lines": 9,
        "num_branches": num_branches, "covered_branches": num_branches - missing, "missing_branches": missing,
    }  # fmt: skip
    return {"summary": counts}


REPORT = {
    "files": {
        "pagedchat/engine/core.py": summary(60, 0),
        "pagedchat/engine/batch.py": summary(40, 5),
        "pagedchat/service/loop.py": summary(100, 6),
        "pagedchat/service/child.py": summary(0, 0),
    }
}


def test_a_part_is_judged_by_all_of_its_files_together():
    engine, service = shares(REPORT, ["engine", "service"])
    assert (engine.statements, engine.branches, engine.enough) == (90.0, 95.0, True)
    assert (service.branches, service.enough) == (94.0, False)


def test_a_part_of_which_nothing_ran_is_not_enough():
    [chat] = shares(REPORT, ["chat"])
    assert (chat.branches, chat.enough) == (0.0, False)


@pytest.mark.parametrize(("parts", "exit_code"), [(["engine"], 0), (["engine", "service"], 1)])
def test_what_is_missed_is_named(parts, exit_code, monkeypatch, capsys):
    monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(REPORT)))
    assert main(parts) == exit_code
    told = capsys.readouterr().out
    assert ("pagedchat/service/loop.py (6)" in told) == bool(exit_code)
    assert "batch.py" not in told
