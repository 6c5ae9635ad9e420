"""The command that runs worlds: what it says and what it keeps."""

from pathlib import Path

import pytest

from pagedchat.trace.reader import open_trace
from tools import simulate

SHORT = ["--steps-of-a-seed", "600"]


def test_a_seed_and_its_trace(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    trace = tmp_path / "seed.trace"
    assert simulate.main(["--seed", "4", "--trace", str(trace), *SHORT]) == 0
    assert "nothing was found" in capsys.readouterr().out
    assert open_trace(trace).end > 0


def test_many_seeds(capsys: pytest.CaptureFixture[str]) -> None:
    assert simulate.main(["--steps", "1000", *SHORT]) == 0
    assert "0 seeds failed" in capsys.readouterr().out


def test_what_fails_is_told_with_the_command_to_see_it_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def wrong(*_: object) -> bool:
        return False

    monkeypatch.setattr("tests.simulation.ui_process.counts_agree", wrong)
    assert simulate.main(["--steps", "500", *SHORT]) == 1
    told = capsys.readouterr().out
    assert "seed 0: ui_process.py" in told
    assert "python -m tools.simulate --seed 0" in told
