"""`pagedchat models`: what is printed."""

import json

import pytest

from pagedchat.cli import main as cli
from pagedchat.cli import models
from pagedchat.local_models import LocalModel

FOUND = [LocalModel("pagedchat-toy", "in the box", 29 * 1024**2), LocalModel("/a/\x1b[31mred", "folder", 10)]


@pytest.fixture(autouse=True)
def found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(models, "local_models", lambda: FOUND)


def test_a_line_a_model_without_escapes(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["models"]) == 0
    out = capsys.readouterr().out
    assert out.splitlines()[0].split("  ")[0].strip() == "pagedchat-toy"
    assert "in the box, 29 MiB" in out
    assert "\x1b" not in out


def test_json_for_programs(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["models", "--json"]) == 0
    out = capsys.readouterr().out
    assert json.loads(out) == [model._asdict() for model in FOUND]
    assert "\x1b" not in out
